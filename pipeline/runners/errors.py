"""Turns the errors that runners raise into one sentence each."""

import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import grpc

from bert_embed.base.errors import InputError, step_message
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import exhausted, flag_message
from bert_embed.transforms.ledger import ReconcileError

# What a runner in Java says when the connection to a worker breaks.
_LOST_WORKER = re.compile(r"StatusRuntimeException: ((?:CANCELLED|UNAVAILABLE)\b.*)")
_SELF_EXPLANATORY = (
    "InputError",
    "SettingError",
    "UsageError",
    "RuntimeError",
    "StepError",
    "ReconcileError",
    "StorageError",
    "PermissionError",
    "FileNotFoundError",
)
_PYTHON = "Traceback (most recent call last)"
# Beam's words around what a portable runner says.
_JOB_ENDED = re.compile(r"Pipeline \S+ failed in state (\w+): ")
# The frames of a Java exception, and what a JobManager prints around its own exceptions.
_JAVA_FRAME = re.compile(r"at [\w.$/@<>]+\(.*\)|\.\.\. \d+ more|End of exception on server.*")
_JAVA_NAME = re.compile(r"(?:[a-z]\w*\.){2,}(?:\w+\$)*(\w+(?:Exception|Error)\b)")
_NO_JOB_MANAGER = re.compile(
    r"\b(?:Connect|ConnectTimeout|ConnectionClosed|NoRouteToHost|UnknownHost)Exception\b"
)
_STEP = " [while running"  # what Beam adds to a message of a step
_ABOUT_A_BLOCK = re.compile(r"block \d+, ")  # the beginning of the infer stage's own messages


class JobGoesOn(Exception):
    """The command ends and the job does not; the message says where to find the job.

    `why`: requested by --no_wait_until_finish, interrupted, running already, or maybe ended.
    """

    def __init__(
        self, why: Literal["requested", "interrupted", "running", "unknown"], message: str
    ) -> None:
        super().__init__(message)
        self.why = why


class JobFailed(RuntimeError):
    """The service did not accept a job, or the job failed; the message says why or where."""


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error; Beam wraps it like any other that a step raises."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def lost_connection(error: BaseException) -> Literal["job server", "JobManager"] | None:
    """The server that stopped answering, if an error says no more of a job; None if it failed."""
    if isinstance(error, grpc.RpcError):
        return "job server"
    ended = _JOB_ENDED.match(str(error))
    if ended and _PYTHON not in str(error) and _NO_JOB_MANAGER.search(root_message(error)):
        return "JobManager"
    return None


def root_message(error: BaseException) -> str:
    """The original error's message, without what Beam's runners, in Python or Java, add to it."""
    if isinstance(error, InputError):
        return flag_message(error).partition(_STEP)[0]
    if isinstance(error, grpc.RpcError):
        # All errors of a call have both, though the base class does not declare them.
        return f"{error.code().name}: {' '.join(error.details().split())}"
    ended, line = _JOB_ENDED.match(str(error)), _last_line(error)
    if ended and ended[1] == "CANCELLED":
        return "the job was cancelled"
    if lost := _LOST_WORKER.search(line):
        return f"a worker process died ({lost[1]})"
    if lacking := exhausted(line):
        return lacking
    line = _JAVA_NAME.sub(r"\1", line)
    kind, colon, message = line.partition(": ")
    if kind.endswith("SettingError"):  # begins with the name; a worker sends only the text
        return f"--{message}"
    return step_message(message if colon and kind.rsplit(".", 1)[-1] in _SELF_EXPLANATORY else line)


def _kind(error: BaseException) -> str:
    """The class of the original error, without its module."""
    return _last_line(error).partition(": ")[0].rsplit(".", 1)[-1]


def is_input_error(error: BaseException) -> bool:
    """Whether the original error was an InputError, wherever it was raised."""
    return isinstance(error, InputError) or _kind(error) == InputError.__name__


def explains_itself(error: BaseException) -> bool:
    """Whether the sentence is one of ours or of the runner, to which a traceback adds nothing."""
    of_us = isinstance(error, (InputError, OSError, JobFailed, ReconcileError, grpc.RpcError))
    of_runner = _JOB_ENDED.match(str(error)) and _PYTHON not in str(error)
    if of_us or of_runner or exhausted(_last_line(error)):
        return True
    kind = _kind(error)
    ours = kind in _SELF_EXPLANATORY and kind not in ("RuntimeError", "StepError")
    return ours or _ABOUT_A_BLOCK.match(root_message(error)) is not None


def traceback_lines(error: BaseException) -> list[str]:
    """The lines of an error's traceback, without secrets; none if it explains itself."""
    if explains_itself(error):
        return []
    return hide_secrets("".join(traceback.format_exception(error))).rstrip("\n").split("\n")


@contextmanager
def quiet_channels() -> Iterator[None]:
    """Suppresses tracebacks of threads that lost connection; after an interruption for good."""
    previous = threading.excepthook

    def print_others(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, grpc.RpcError):
            previous(failure)

    threading.excepthook = print_others
    yield
    threading.excepthook = previous


def _last_line(error: BaseException) -> str:
    text = _JOB_ENDED.sub("", str(error), count=1)
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if re.search(r"\w", line) and not _JAVA_FRAME.match(line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes and _PYTHON not in text:
        return causes[-1].removeprefix("Caused by: ")
    line = lines[-1].partition(_STEP)[0] if lines else ""
    if isinstance(error, MemoryError):  # with another program's words, such as NumPy's
        line = f"{type(error).__name__}: {line}"
    return line or type(error).__name__
