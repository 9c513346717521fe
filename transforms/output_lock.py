"""Locks that commands of one machine hold while they write to an output."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from bert_embed.storage.local import is_at

_MOMENT = 0.1  # seconds


@contextmanager
def lock_held(path: str, alone: bool) -> Iterator[bool]:
    """Holds a lock, `alone` or with others; gives whether it could, or there are no locks."""
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    while True:
        file = _opened(path)
        if file is None:
            yield True
            return
        taken = _locked(file, how)
        if not taken:  # perhaps only `is_locked` of another process, for a moment
            time.sleep(_MOMENT)
            taken = _locked(file, how)
        if not taken or is_at(path, file):
            break
        file.close()  # the last holder removed it after it was opened here
    with file:
        try:
            yield taken
        finally:
            if taken and _locked(file, fcntl.LOCK_EX):  # nobody else holds it
                with suppress(FileNotFoundError):
                    os.remove(path)


def is_locked(path: str) -> bool | None:
    """Whether a process holds the lock; None where there are no locks."""
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return False


def _opened(path: str) -> BinaryIO | None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "ab")
    except OSError:  # what writes there later says why it cannot
        return None


def _locked(file: BinaryIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        return True
    return True
