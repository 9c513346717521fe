"""Has a server of tests/support/forks.py run a command with our streams, and ends as it ends.

Usage: python -IS launch.py SOCKET -m MODULE [WORD ...], or -c CODE [WORD ...]. Signals go to the
command; SIGUSR1 kills it. Where we are killed ourselves, the server kills it.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

_PASSED = {each: each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
_PASSED[signal.SIGUSR1] = signal.SIGKILL


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _main() -> int:
    streams = [number for number in range(3) if _is_open(number)]  # before the socket is one
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    socket.send_fds(server, [b"\n"], streams)
    request = [sys.argv[2:], dict(os.environ), os.getcwd(), streams]
    server.sendall(json.dumps(request).encode("ascii") + b"\n")
    answers = server.makefile()
    pid = int(answers.readline())

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, _PASSED[signal.Signals(number)])

    for each in _PASSED:
        signal.signal(each, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
    return int(answers.readline())


if __name__ == "__main__":
    code = _main()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
