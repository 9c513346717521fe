"""The Python that `measure.py` runs with: JAX, torch and sentence-transformers, nothing of ours."""

import shutil
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_FOLDER = Path("build/gpu-venv")
_LISTS = (_HERE / "requirements.txt", _HERE.parent / "cpu_torch.py")
_CUDA = "# CUDA's."  # what stands below this line in requirements.txt is for GPUs alone
_WANTED_ANYWAY = "nvidia-cuda-runtime"  # torch calls it when it is imported


def has_gpu() -> bool:
    """Returns whether an NVIDIA driver is at work here."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()


def gpu_python() -> Path:
    """Returns the Python of the environment, which is made first if it is not there.

    With a GPU that is 8 GB; without one the CUDA packages stay away, and 2 GB are left.
    """
    python = _FOLDER.absolute() / "bin" / "python"
    lists = "".join(path.read_text(encoding="utf-8") for path in _LISTS) + f"\n{has_gpu()}"
    mark = _FOLDER / "made-from"
    if not mark.exists() or mark.read_text(encoding="utf-8") != lists:
        shutil.rmtree(_FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", _FOLDER], check=True)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        if has_gpu():
            subprocess.run([*pip, "-r", _LISTS[0]], check=True)
        else:
            subprocess.run([*pip, "--no-deps", *without_cuda()], check=True)
            subprocess.run([python, _LISTS[1]], check=True)
        mark.write_text(lists, encoding="utf-8")
    return python


def without_cuda() -> list[str]:
    """Returns the packages that a machine without a GPU needs, with their versions."""
    above, below = _LISTS[0].read_text(encoding="utf-8").split(_CUDA)
    wanted = [line for line in below.splitlines() if line.startswith(_WANTED_ANYWAY)]
    return [line for line in above.splitlines() if line and not line.startswith("#")] + wanted
