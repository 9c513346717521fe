"""Counts the processor cores that this process may use: affinity, and quotas of containers."""

import math
import os
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
