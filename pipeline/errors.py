"""Defines exit codes, UsageError, and how errors of the library become messages with flags."""

import re
import traceback
from enum import IntEnum
from typing import Any

from bert_embed.base.errors import InputError, SettingError, StorageError, error_text


class ExitCode(IntEnum):
    """What a command returns; 66, 69 and 75 belong to the daily schedule."""

    DONE = 0
    FAILED = 1  # the job, a store, job server or full disk, or `verify` found problems
    USAGE = 2  # the command line or configuration is wrong
    TOO_MANY_REJECTED = 3  # all is written, but more was rejected than allowed
    NO_INPUT = 66  # the day has no input yet
    EARLIER_UNFINISHED = 69  # an earlier day is not finished
    BUSY = 75  # another run holds the lock
    INTERRUPTED = 130


class UsageError(InputError):
    """The command line or configuration is wrong; the message says what to do."""


class NoAnswer(StorageError):
    """A job server or JobManager does not answer: the same command may succeed later."""


class RunFailed(RuntimeError):
    """A run that `bert_embed.embed` started failed, or rejected too much.

    Attributes:
        record: What `run.json` says of it, None if it says nothing.
    """

    __module__ = "bert_embed"  # where users import it, as a traceback names it

    def __init__(self, message: str, record: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record


_OF_A_FILE = re.compile(r"[\w.]*StorageError: ")
_EXHAUSTED = re.compile(
    "can't start new thread|failed to map segment|cannot allocate memory|MemoryError|"
    "BlockingIOError: .*temporarily",
    re.IGNORECASE,
)


def exhausted(error: BaseException | str) -> str | None:
    """Says what to do where the system gave no more memory or threads; None for another error.

    That of a file names the file, which says more.
    """
    said = error if isinstance(error, str) else traceback.format_exception_only(error)[-1].strip()
    if _OF_A_FILE.match(said) or not _EXHAUSTED.search(said):
        return None
    return (
        f"the system gave no more memory or threads ({said}): raise the limits of the process "
        "(ulimit -v, ulimit -u, or its container's), or end other programs"
    )


def flag_message(error: BaseException) -> str:
    """Returns an error's message, with dashes before the settings that it names.

    >>> flag_message(SettingError("chunk_context", "requires chunk", "chunk"))
    '--chunk_context requires --chunk'
    """
    message, names = error_text(error), getattr(error, "settings", ())
    leading = ""
    if isinstance(error, SettingError):
        leading, names = f"--{error.setting}", names[1:]
        message = message.removeprefix(error.setting)
    if names:
        # Not within a value, a path or another word.
        named = rf"(?<![\w'\"/.-])({'|'.join(map(re.escape, names))})(?![\w'\"/.-])"
        message = re.sub(named, r"--\1", message)
    return leading + message
