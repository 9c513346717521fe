"""What this process has or lacks: optional packages, cores, instructions, memory, a notebook."""

import ctypes
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path, PurePosixPath
from typing import Any

from bert_embed.base.errors import InputError

_WITHOUT_TENSORFLOW = (3, 14)  # the first Python that it has no wheels for, as in pyproject.toml


@contextmanager
def requires(what: str, *packages: str) -> Iterator[None]:
    """Has a failed import in its block say what needs which packages, and how to install them."""
    try:
        yield
    except ImportError as error:
        raise InputError(missing(what, *packages)) from error


def missing(what: str, *packages: str) -> str:
    """Returns the sentence for packages that are not installed, with the command for it."""
    needs = f"{what} requires {' and '.join(packages)}"
    if "tensorflow" in packages and sys.version_info >= _WITHOUT_TENSORFLOW:
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"{needs}; TensorFlow has no wheels for {python}: make an environment with Python 3.13"
        )
    which = "which is" if len(packages) == 1 else "which are"
    return f"{needs}, {which} not installed here: pip install {shlex.join(packages)}"


def in_notebook() -> bool:
    """Whether stderr is the output of a notebook's cell."""
    return type(sys.stderr).__module__.startswith("ipykernel")


class Absent(MetaPathFinder):
    """Has imports of packages fail, but for modules that were imported before.

    From `__enter__` on, which a `with` statement calls, until its end.
    """

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *raised: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Finds nothing, and ends the search for these packages."""
        # A part of a package, too: start files of Python may have imported the name `google.cloud`.
        if any(f"{fullname}.".startswith(f"{name}.") for name in self._packages):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Returns how many cores this process may use; 1.5 count as 2, else half of one is idle."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> float | None:
    """Returns the smallest quota, in cores, of this process' control group (v2), or None.

    The quotas of the groups above it apply to it too. `membership` names it, `mount` is the folder
    of the groups' files.
    """
    quotas = []
    for line in _read(membership).splitlines():
        if line.startswith("0::"):
            path = PurePosixPath(line.removeprefix("0::"))
            # In a container the path may be that of the host, of which only the root is mounted.
            quotas += [_quota(mount / str(part).lstrip("/")) for part in (path, *path.parents)]
    return min(filter(None, quotas), default=None)


def _quota(folder: Path) -> float | None:
    """Returns the cores of a group; None for no quota, which is "max"."""
    words = _read(folder / "cpu.max").split()
    if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
        return int(words[0]) / int(words[1])
    return None


def _read(path: Path) -> str:
    """The text of a file of the system, "" where it has none such."""
    with suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


CPUINFO = Path("/proc/cpuinfo")  # Linux' words on the processor; elsewhere it is missing
_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")  # x86's three, and Arm's


def facts() -> dict[str, str]:
    """Returns what Linux says of the first processor, by name; empty elsewhere."""
    said: dict[str, str] = {}
    for line in _read(CPUINFO).splitlines():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    return said


def flags() -> frozenset[str]:
    """Returns the names of the processor's instruction sets; empty where Linux does not say."""
    said = facts()
    return frozenset((said.get("flags") or said.get("Features") or "").split())


def has_int8_products() -> bool:
    """Returns whether this processor has instructions for products in int8, which are fast."""
    apple = (sys.platform, platform.machine()) == ("darwin", "arm64")  # each of them has asimddp
    return apple or not flags().isdisjoint(_INT8)


def package_variables() -> dict[str, str]:
    """Returns the variables with which another Python finds these packages, in any folder."""
    home = str(Path(__file__).absolute().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    # The current folder may hold a package of the same name, such as a clone of Google's bert.
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def has_bfloat16_products() -> bool:
    """Returns whether this processor has instructions for fast products in bfloat16.

    Intel's have them in AMX, which a virtual machine may hide. Their AVX512-BF16 computes half as
    many products a second as float32 does, AMD's twice as many.
    """
    return "amx_bf16" in flags() or facts().get("vendor_id") != "GenuineIntel"


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_LARGE = 1 << 20
# Of the user, for these or for all settings of glibc's allocator.
_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def set_up_process() -> None:
    """Lets TensorFlow print errors alone, glibc return large blocks; the environment wins."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Blocks of 1 MiB or more as soon as they are freed: glibc raises this limit up to 32 MiB while
    # a program runs. The values between a model's operations, whose sizes differ from batch to
    # batch, then leave gaps that nothing fits into: 40 MiB a thread after some thousand sentences.
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGE)  # what glibc would set with it
