"""Keeps the notes that TensorFlow and LiteRT print at their start off the terminal."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

_NOTES = (
    rb"absl::InitializeLog\(\)|cudart_stub\.cc|cuda_platform\.cc.*\(303\)"  # no NVIDIA driver here
    rb"|computation_placer\.cc|cpu_feature_guard\.cc|rebuild TensorFlow with"
    rb"|oneDNN custom operations are on"  # on processors with AVX-512
    rb"|Created TensorFlow Lite XNNPACK delegate"
)
# A separate process, so that the last output is shown even if this process is killed.
_FILTER = f"""
import os, re, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
notes = re.compile({_NOTES!r})
while data := os.read(0, 65536):
    os.write(2, b"".join(l for l in data.splitlines(True) if not notes.search(l)))
"""
_PATIENCE = 1.0  # seconds to wait for the filter; a child process may hold the pipe open for longer

_lock = threading.RLock()


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Leaves known notes out of stderr while TensorFlow is first imported.

    Its C++ code prints notes about the machine before any setting could stop it.
    """
    with _lock:
        if "tensorflow" in sys.modules:
            yield
            return
        with without_notes():
            yield


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
    """Leaves known notes out of stderr of this process; all other output is shown at once."""
    with _lock:
        if sys.stderr is None:  # closed by whoever started the process
            yield
            return
        command = [sys.executable, "-I", "-S", "-c", _FILTER]
        try:
            shown = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
        except OSError:  # no process can be started: the notes are shown
            yield
            return
        assert shown.stdin is not None
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(shown.stdin.fileno(), 2)
        shown.stdin.close()
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            with contextlib.suppress(subprocess.TimeoutExpired):
                shown.wait(_PATIENCE)
