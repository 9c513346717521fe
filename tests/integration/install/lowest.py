"""Makes build/lowest-venv: `python -m tests.integration.install.lowest`.

What pyproject.toml names is at the lowest version that it allows, with the extras that the quick
tests need; what these bring along, and the tools of the tests, are at the newest that go with it.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.integration.install.environments import uv
from tests.support.command import ROOT

_FOLDER = ROOT / "build" / "lowest-venv"
_EXTRAS = ("gcp", "tensorflow", "openvino")
_OF_OTHER_EXTRAS = ("scikit-learn",)  # in .venv it comes with openTSNE


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    python = _FOLDER / "bin" / "python"
    uv(["venv", "--clear", "--seed", "--python", sys.executable, _FOLDER])
    lowest = ["--resolution", "lowest-direct", "--build-constraint", _pins(project)]
    uv(["pip", "install", "--python", python, *lowest, "--editable", f".[{','.join(_EXTRAS)}]"])
    constraints = _FOLDER / "lowest.txt"
    constraints.write_text("\n".join(_installed(python, project)) + "\n", "utf-8")
    tools = [Requirement(each).name for each in project["dependency-groups"]["dev"]]
    tools += [*project["dependency-groups"]["build"], *_OF_OTHER_EXTRAS]
    uv(["pip", "install", "--python", python, "--constraint", constraints, *tools])


def _pins(project: dict) -> Path:
    """What builds our package is what `make` builds it with."""
    path = _FOLDER / "build.txt"
    path.write_text("\n".join(project["dependency-groups"]["build"]) + "\n", "utf-8")
    return path


def _installed(python: Path, project: dict) -> list[str]:
    """The pins of what pyproject.toml names itself."""
    named = [*project["project"]["dependencies"]]
    for extra in _EXTRAS:
        named += project["project"]["optional-dependencies"][extra]
    names = {_plain(Requirement(each).name) for each in named}
    frozen = subprocess.run(
        [Path(sys.executable).with_name("uv"), "pip", "freeze", "--python", python],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line for line in frozen.splitlines() if _plain(line.partition("==")[0]) in names]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
