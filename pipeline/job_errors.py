"""Errors of a job: what a runner raises in, the sentence that a person can use out."""

import re

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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[-1].partition(" [while running")[0]
    lost = _LOST_WORKER.search(line)
    if lost:
        return f"a worker process died ({lost[1]})"
    kind, colon, message = line.partition(": ")
    plain = kind.rsplit(".", 1)[-1] in _TOLD_PLAINLY
    return message if colon and plain else line
