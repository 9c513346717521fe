"""Clean environments with the built wheel and nothing of ours beside it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.command import ROOT

FOLDER = ROOT / "build" / "install"
PYTHONS = ("3.11.2", "3.12", "3.13", "3.14")  # the oldest is Debian 12's
_UV = Path(sys.executable).with_name("uv")
_PINS = ROOT / "requirements.txt"
_GOOGLE = [
    f"google.cloud.{name}" for name in ("storage", "bigquery", "bigquery_storage", "dataflow")
]
EXTRAS = {  # of pyproject.toml, and what can be imported with each alone
    "gcp": _GOOGLE,
    "tensorflow": ["tensorflow", "tensorflow_text", "tensorflow_hub"],
    "openvino": ["openvino"],
    "faiss": ["faiss"],
    "map": ["openTSNE"],
}


@dataclass(frozen=True)
class Environment:
    """An environment under build/install."""

    folder: Path

    def run(self, *words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment in a folder, with nothing else of ours in sight."""
        own = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.folder / "bin" / str(words[0]), *map(str, words[1:])],
            cwd=cwd,
            env={**own, "PATH": f"{self.folder / 'bin'}:{os.defpath}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    @cached_property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    @property
    def megabytes(self) -> float:
        files = (path for path in self.packages.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files) / 1e6


def build_wheel() -> Path:
    folder = FOLDER / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    source = FOLDER / "source"
    shutil.rmtree(source, ignore_errors=True)
    stale = source / "build" / "lib" / "bert_embed" / STALE
    stale.parent.mkdir(parents=True)
    stale.write_text("", "utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *_SOURCES], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if os.path.lexists(ROOT / name):  # not removed since the last commit
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name, follow_symlinks=False)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    flags = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([*pip, *flags, source], check=True)
    return next(folder.glob("*.whl"))


STALE = "removed_since.py"  # as an earlier build may have left it in a clone
_SOURCES = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
    *("src", "bert_embed", "transforms", "pipeline"),
)


def environment(
    name: str,
    wheel: Path,
    extras: Sequence[str] = (),
    python: str = sys.executable,
    versions: Sequence[object] = ("--constraint", _PINS),
) -> Environment:
    """Makes an environment with the wheel and extras of it.

    Args:
        name: Of its folder.
        wheel: The wheel.
        extras: Names of extras.
        python: A program of Python.
        versions: What says which ones of packages.
    """
    folder = FOLDER / name
    uv(["venv", "--clear", "--python", python, folder])
    asked = f"bert-embed[{','.join(extras)}] @ {wheel.as_uri()}"
    uv(["pip", "install", "--python", folder / "bin" / "python", *versions, asked])
    return Environment(folder)


def uv(words: Sequence[object]) -> None:
    """Runs uv; what it says is only shown if it fails."""
    done = subprocess.run(
        [_UV, *map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def find_python(version: str) -> str | None:
    """Returns a program of a Python: in the system, on the path or of pyenv; None without one."""
    short = ".".join(version.split(".")[:2])
    versions = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}*"))
    found = [f"/usr/bin/python{short}", shutil.which(f"python{short}")]
    for program in [*found, *(str(each / "bin" / "python") for each in versions)]:
        if program and _is_version(program, version):
            return program
    return None


def _is_version(program: str, version: str) -> bool:
    """Whether a program is there and of a version, not only a link to a tool that finds one."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return re.fullmatch(rf"Python {re.escape(version)}(\.\d+)*\s*", done.stdout) is not None


def declared_extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name != "all"]
