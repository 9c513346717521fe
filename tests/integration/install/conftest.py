"""The wheel, and the environment that has it with no extra."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.install.environments import FOLDER, Environment, build_wheel, environment
from tests.support.command import ROOT

# Modules of many people's folders, by the names of ours.
_STRANGERS = ("storage.py", "pipeline.py", "bert.py", "transforms/__init__.py")


@pytest.fixture(scope="session")
def wheel() -> Path:
    return build_wheel()


@pytest.fixture(scope="session")
def base(wheel: Path) -> Environment:
    return environment("base", wheel)


@pytest.fixture(scope="session")
def empty_cache(tmp_path_factory) -> Path:
    """No model is in it until a test fetches the default one."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def texts() -> Path:
    path = FOLDER / "texts.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    written = ROOT / "examples" / "write_language_reference.py"
    subprocess.run([sys.executable, written, path], check=True, capture_output=True)
    lines = path.read_text("utf-8").splitlines()
    wanted = (each for each in lines if json.loads(each)["id"].startswith(("calls/", "types/")))
    path.write_text("\n".join(wanted) + "\n", "utf-8")
    return path


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    """A folder of modules that end whatever imports them."""
    for name in _STRANGERS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise SystemExit({name!r})\n", "utf-8")
    return tmp_path
