"""Errors of a job: what a runner raises in, the sentence that a person can use out."""

import re
from typing import Literal

# What a runner in Java says when the connection to a worker breaks.
_LOST_WORKER = re.compile(r"StatusRuntimeException: ((?:CANCELLED|UNAVAILABLE)\b.*)")
_TOLD_PLAINLY = (
    "ValueError",
    "RuntimeError",
    "AccountError",
    "StorageError",
    "PermissionError",
    "FileNotFoundError",
)
_ABOUT_A_BLOCK = re.compile(r"block \d+, ")  # so begins what the model's step says itself


class JobGoesOn(Exception):
    """The command ends and the job does not; the message says where it is to be found.

    Attributes:
        why: `asked` by --no_wait_until_finish, `interrupted`, or `running` already.
    """

    def __init__(self, why: Literal["asked", "interrupted", "running"], message: str) -> None:
        super().__init__(message)
        self.why = why


class JobFailed(RuntimeError):
    """The service did not take a job, or ended it undone; the message says why or where."""


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error; Beam wraps it like any other that a step raises."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def root_message(error: BaseException) -> str:
    """The sentence of the error that started it, out of a runner's wrapping.

    Beam's local runner puts the worker's whole traceback into the message of another error; its
    last line is the error itself, with the step's name behind it.
    """
    line = _last_line(error)
    lost = _LOST_WORKER.search(line)
    if lost:
        return f"a worker process died ({lost[1]})"
    kind, colon, message = line.partition(": ")
    return message if colon and kind.rsplit(".", 1)[-1] in _TOLD_PLAINLY else line


def explains_itself(error: BaseException) -> bool:
    """Whether the sentence is one of ours, so that a traceback adds nothing."""
    if isinstance(error, (ValueError, OSError, JobFailed)):
        return True
    kind = _last_line(error).partition(": ")[0].rsplit(".", 1)[-1]
    known = kind in _TOLD_PLAINLY and kind != "RuntimeError"
    return known or _ABOUT_A_BLOCK.match(root_message(error)) is not None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].partition(" [while running")[0] if lines else type(error).__name__
