"""What this machine's processor is, which cores are ours, and settings of our own processes."""

import ctypes
import math
import os
import platform
import sys
from pathlib import Path, PurePosixPath

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Returns how many cores this process may use; 1.5 count as 2, else half of one is idle."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> float | None:
    """Returns the smallest quota, in cores, of this process' control groups (v1 or v2), or None.

    The quotas of the groups above a group apply to it too. `membership` lists the groups, a line
    for each; `mount` is the folder of their files.
    """
    try:
        lines = membership.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    quotas = []
    for number, controllers, group in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if number == "0":
            roots = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [mount / "cpu", mount / controllers]
        else:
            continue
        path = PurePosixPath(group)
        # In a container the path may be that of the host, of which only the root is mounted.
        for root in roots:
            quotas += [_quota(root / str(part).lstrip("/")) for part in (path, *path.parents)]
    return min(filter(None, quotas), default=None)


def _quota(folder: Path) -> float | None:
    """Returns the cores of a group; None for no quota, which is "max" in v2 and -1 in v1."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    v1 = [word for name in names for word in _words(folder / name)]
    for words in (_words(folder / "cpu.max"), v1):
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            return int(words[0]) / int(words[1])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii", "replace").split()
    except OSError:
        return []


CPUINFO = Path("/proc/cpuinfo")  # Linux' words on the processor; elsewhere it is missing
_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")  # x86's three, and Arm's


def facts() -> dict[str, str]:
    """Returns what Linux says of the first processor, by name; empty elsewhere."""
    try:
        text = CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return {}
    said: dict[str, str] = {}
    for line in text.splitlines():
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


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_LARGE = 1 << 20
# Of the user, for these or for all settings of glibc's allocator.
_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def set_up_process() -> None:
    """Lets TensorFlow print errors alone, glibc return large blocks; the environment wins."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Has glibc return each block of 1 MiB or more to the system as soon as it is freed.

    glibc raises this limit up to 32 MiB while a program runs. The values between a model's
    operations, whose sizes differ from batch to batch, then leave gaps that nothing fits into: 40
    MiB a thread after some thousand sentences.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGE)  # what glibc would set with it
