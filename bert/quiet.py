"""Quiet: keeps the notes that TensorFlow and LiteRT print at their start off the terminal."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

_lock = threading.RLock()


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Holds back what the process writes to stderr while TensorFlow is first loaded.

    Its C++ side prints notes about the machine before any setting of its own could stop it. If
    the block raises, they are shown all the same; once TensorFlow is loaded nothing is held back.
    """
    with _lock:
        if "tensorflow" in sys.modules:
            yield
            return
        with held_stderr():
            yield


@contextlib.contextmanager
def held_stderr() -> Iterator[None]:
    """Holds back what the process writes to stderr, and shows it only if the block raises."""
    with _lock, tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
