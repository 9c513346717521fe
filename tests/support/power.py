"""The states in which a power cut may leave a folder, taken from the calls of a real run.

A journalling file system keeps changes of names in their order, as far as it has come. What was not
synced of a file's content is lost: the file is empty, holds NULs, or was never there. A folder that
was not synced may also lag behind all others.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

_CHANGES = ("replace", "rename", "link", "remove", "unlink", "mkdir", "rmdir")
Tree = dict[str, bytes | None]  # content of files by relative name; None of a folder


@dataclass(frozen=True)
class Moment:
    """A folder before a change of a name in it, as the processes of the machine see it."""

    tree: Tree
    unsynced: frozenset[str]  # files whose content the disk may not have
    listed: dict[str, Tree]  # the entries of each folder when it was last synced

    def cuts(self) -> Iterator[tuple[str, Tree]]:
        """What a power cut may leave, with what happened to it."""
        unsynced = {name: self.tree[name] or b"" for name in self.unsynced}
        yield "empty", self.tree | dict.fromkeys(unsynced, b"")
        yield "NULs", self.tree | {name: bytes(len(data)) for name, data in unsynced.items()}
        yield "absent", {name: data for name, data in self.tree.items() if name not in unsynced}
        for folder in (name for name, data in self.tree.items() if data is None):
            yield f"{folder or 'all'} behind", self._behind(folder)

    def _behind(self, folder: str) -> Tree:
        """The tree with a folder as it was synced last, which is empty if it never was."""
        before = self.listed.get(folder, {})
        gone = {name for name in self.tree if _above(name) == folder} - before.keys()
        tree = {
            name: data
            for name, data in self.tree.items()
            if not any(name == one or name.startswith(f"{one}/") for one in gone)
        }
        return tree | before


def _above(name: str) -> str | None:
    return os.path.dirname(name) if name else None


@contextmanager
def traced(folder: Path) -> Iterator[list[Moment]]:
    """Gives the moments of what this process changes below a folder meanwhile, and the end."""
    moments: list[Moment] = []
    synced: dict[int, tuple[int, int]] = {}  # size and time of the content of an inode
    listed: dict[int, Tree] = {}  # entries of an inode, by name in it
    lock = threading.RLock()

    def look() -> None:
        tree, unsynced, last = Tree({"": None}), set(), {}
        for path in (folder, *sorted(folder.rglob("*"))):
            name = "" if path == folder else str(path.relative_to(folder))
            with suppress(FileNotFoundError):
                status = path.stat()
                if path.is_dir():
                    tree[name] = None
                    last[name] = {
                        os.path.join(name, entry): data
                        for entry, data in listed.get(status.st_ino, {}).items()
                    }
                    continue
                tree[name] = path.read_bytes()
                if synced.get(status.st_ino) != (status.st_size, status.st_mtime_ns):
                    unsynced.add(name)
        moments.append(Moment(tree, frozenset(unsynced), last))

    def watched(call):
        def changed(*arguments, **options):
            with lock:
                paths = [str(each) for each in arguments if isinstance(each, str | os.PathLike)]
                if any(path.startswith(str(folder)) for path in paths):
                    look()
                return call(*arguments, **options)

        return changed

    def fsync(number, call=os.fsync):
        with lock:
            call(number)
            status, path = os.fstat(number), os.readlink(f"/proc/self/fd/{number}")
            synced[status.st_ino] = status.st_size, status.st_mtime_ns
            if os.path.isdir(path) and f"{path}/".startswith(f"{folder}/"):
                entries = Path(path).iterdir()
                listed[status.st_ino] = {
                    each.name: None if each.is_dir() else each.read_bytes() for each in entries
                }

    with mock.patch.multiple(
        os, fsync=fsync, **{name: watched(getattr(os, name)) for name in _CHANGES}
    ):
        yield moments
    look()


def restore(tree: Tree, folder: Path) -> Path:
    """Makes a folder of these files; returns its path."""
    for name, data in sorted(tree.items()):
        if data is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        elif (folder / name).parent.is_dir():
            (folder / name).write_bytes(data)
    return folder


def states(moments: list[Moment], every: int = 1) -> Iterator[tuple[str, Tree]]:
    """Different states that cuts at these moments may leave, each of them or fewer, with names."""
    seen = set()
    number = 0
    for moment, one in enumerate(moments):
        for what, tree in one.cuts():
            key = hash(frozenset(tree.items()))
            if key in seen:
                continue
            seen.add(key)
            number += 1
            if number % every == 0:
                yield f"{moment}, {what}", tree
