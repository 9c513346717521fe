"""Processes that are forked from one which has imported what commands import.

A command that starts as a process of its own imports Beam and Arrow for two to three seconds of
processor time, and most tests of processes are not about that. `python()` is for these: the words
to put where `sys.executable` would stand. Streams, environment, folder, signals and exit code are
those of a process that was started so. Where all went well it ends once its threads have, exit
handlers ran and its streams are flushed: to take a thousand modules down takes longer than most
commands. Modules are there already, and the process is another than the one that waits: tests of
imports, of memory and of a process' children start Python itself.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
_LAUNCH = Path(__file__).with_name("launch.py")
_ADDRESS = "TESTS_FORK_SERVER"
_started: list[subprocess.Popen[bytes]] = []  # whose stdin is open as long as this process lives
_HELD = Path(__file__).with_name("held_site") / "sitecustomize.py"
# What a run on local files has imported when it ends, and the commands that read its output.
_IMPORTED = (
    "ai_edge_litert.interpreter",
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    "apache_beam.typehints.opcodes",
    "bert_embed.backends.litert.engine",
    "bert_embed.pipeline.cli",
    "bert_embed.pipeline.commands.estimate",
    "bert_embed.pipeline.commands.outputs",
    "bert_embed.pipeline.commands.search",
    "bert_embed.pipeline.job",
    "bert_embed.pipeline.texts",
    "tokenizers",
)


@functools.cache
def begin() -> str:
    """Starts a server, which ends with this process; returns its address.

    Processes that this one then starts, as those of xdist, have it as well.
    """
    address = str(Path(tempfile.mkdtemp(prefix="forks-", dir="/tmp"), "socket"))
    command = [sys.executable, "-m", "tests.support.forks", address]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    _started.append(process)
    os.environ[_ADDRESS] = address
    return address


def python() -> list[str]:
    """The words that start what follows, `-m MODULE` or `-c CODE`, as `sys.executable` would."""
    return [sys.executable, "-IS", str(_LAUNCH), os.environ.get(_ADDRESS) or begin()]


def write_python(folder: Path) -> str:
    """Writes a program that does as `python()`, for what asks for the path of one; returns it."""
    path = folder / "python"
    unbuffered = '[ "$1" != -u ] || { shift; export PYTHONUNBUFFERED=1; }'
    alone = f'[ "$1" != -IS ] || exec {sys.executable} "$@"'  # which imports nothing of ours
    path.write_text(f'#!/bin/sh\n{alone}\n{unbuffered}\nexec {shlex.join(python())} "$@"\n')
    path.chmod(0o755)
    return str(path)


class Command(subprocess.Popen[str]):
    """A command that `python()` started; once it is killed and waited for, it is gone."""

    def send_signal(self, sig: int) -> None:
        """Sends the signal to the command."""
        super().send_signal(signal.SIGUSR1 if sig == signal.SIGKILL else sig)


def _listen(address: str) -> socket.socket:
    """Takes requests, which wait for their answers until all is imported."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    os.write(1, b"ready\n")
    return listener


def _serve(listener: socket.socket) -> list[str]:
    """Forks a process for each request, tells how it ends; returns the words in that process."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)  # ends with the process that started this one
    running: dict[int, tuple[socket.socket, int, int]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                shutil.rmtree(Path(listener.getsockname()).parent)
                os._exit(0)
            if key.fileobj is not listener:
                connection, pid, watch = running[key.fd]
                if key.fd != watch:  # the launcher is gone: killed, since the command is not done
                    os.kill(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                for each in (connection.fileno(), watch):
                    selector.unregister(each)
                    del running[each]
                with suppress(OSError):
                    connection.sendall(b"%d\n" % code)
                connection.close()
                os.close(watch)
                break  # a later event may be of what was just closed
            connection, _ = listener.accept()
            _, files, _, _ = socket.recv_fds(connection, 1, 3)
            request = json.loads(connection.makefile().readline())
            pid = os.fork()
            if not pid:
                for opened in [listener, connection, *(one for one, _, _ in running.values())]:
                    opened.close()
                selector.close()
                return _become(files, *request)
            for file in files:
                os.close(file)
            connection.sendall(b"%d\n" % pid)
            watch = os.pidfd_open(pid)
            for each in (connection.fileno(), watch):
                running[each] = (connection, pid, watch)
                selector.register(each, selectors.EVENT_READ)


def _become(
    files: list[int], words: list[str], environment: dict[str, str], folder: str, streams: list[int]
) -> list[str]:
    """Makes this process look as if it had been started so; returns the words."""
    for number in range(3):
        if number in streams:
            os.dup2(files[streams.index(number)], number)
        else:
            os.close(number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin = sys.__stdin__ = _stream(0, streams)
    sys.stdout = sys.__stdout__ = _stream(1, streams)
    sys.stderr = sys.__stderr__ = _stream(2, streams)
    return words


def _stream(number: int, streams: list[int]) -> TextIO | None:
    """One of the three streams, as Python opens it; None if it is closed."""
    if number not in streams:
        return None
    plain = number > 0 and bool(os.environ.get("PYTHONUNBUFFERED"))
    file: Any = io.FileIO(number, "w" if number else "r", closefd=False)
    file.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    if not plain:
        file = io.BufferedWriter(file) if number else io.BufferedReader(file)
    stream: Any = io.TextIOWrapper(
        file,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        newline="\n" if number else None,
        line_buffering=number == 2 or os.isatty(number),
        write_through=plain,
    )
    stream.mode = "w" if number else "r"
    return stream


def _run(words: list[str]) -> None:
    kind, what, *rest = words
    sys.argv = [kind, *rest]
    if "BERT_EMBED_HELD" in os.environ:
        runpy.run_path(str(_HELD))
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(module))
        _codes.append(0)
    except SystemExit as error:
        if isinstance(error.code, int | None):
            _codes.append(error.code or 0)
        raise


_codes: list[int] = []


def _end() -> None:
    """Ends this process, unless the interpreter has something to say: an error, a lost answer."""
    with suppress(OSError, ValueError):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        for code in _codes:
            os._exit(code & 0xFF)


if __name__ == "__main__":
    atexit.register(_end)  # the first that is registered runs last
    listening = _listen(sys.argv[1])
    gc.disable()
    for name in _IMPORTED:
        importlib.import_module(name)
    importlib.import_module("tests.support.beam").remember()
    gc.freeze()
    gc.enable()
    _run(_serve(listening))
