"""Errors that are no bugs: wrong inputs and settings, failing stores; words of messages."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

FULL_DISK = (errno.EDQUOT, errno.EFBIG, errno.ENOSPC)  # what the system says of one
# What the system says where the same call may succeed later: a disk or a share that does not
# answer at this moment, and limits of files and memory that other processes use up.
_PASSING = (
    *FULL_DISK,
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
    errno.ETIMEDOUT,
)
_OF_RUST = re.compile(r"\(os error (\d+)\)$")  # what its libraries leave of an error's number
_Value = TypeVar("_Value")


class StorageError(OSError):
    """A store does not answer, or answers with errors after all retries; or a disk is full.

    One sentence is its only argument: Beam adds the step's name to it, and would raise another
    kind of error if the first argument were a number.
    """


class InputError(ValueError):
    """A setting, file, model or table that was given is wrong; the message says what to do.

    Attributes:
        settings: Names of the settings that the message mentions, as they are spelled in Python.
    """

    __module__ = "bert_embed"  # where users import it, as a traceback names it

    def __init__(self, message: str, *settings: str) -> None:
        super().__init__(message, *settings)
        self.settings = settings

    def __str__(self) -> str:
        return str(self.args[0])


class SettingError(InputError):
    """A setting is wrong; the message begins with its name: "dim must be at least 1"."""

    __module__ = "bert_embed"

    def __init__(self, setting: str, problem: str, *others: str) -> None:
        super().__init__(f"{setting} {problem}", setting, *others)
        self.setting = setting

    def __reduce__(self) -> tuple:
        problem = str(self).removeprefix(f"{self.setting} ")
        return type(self), (self.setting, problem, *self.settings[1:])


class StepError(RuntimeError):
    """A step of a run fails; the message quotes no text."""


class TextError(RuntimeError):
    """A text has no vector, such as one that is not finite; the message says which and why."""


def is_passing(error: BaseException) -> bool:
    """Whether the same may succeed later: no setting is wrong, and nothing is known of a file.

    >>> is_passing(OSError(errno.EMFILE, "Too many open files")), is_passing(FileNotFoundError())
    (True, False)
    """
    if isinstance(error, StorageError | MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    number = _OF_RUST.search(str(error)) if error.errno is None else None
    return (int(number[1]) if number else error.errno) in _PASSING


def refusal(cause: BaseException, message: str, *settings: str) -> InputError | StorageError:
    """The error that says why a thing cannot be used: StorageError if its cause may pass.

    >>> refusal(OSError(errno.EMFILE, "Too many open files"), "a.txt cannot be read")
    StorageError('a.txt cannot be read')
    """
    return StorageError(message) if is_passing(cause) else InputError(message, *settings)


def raise_passing(error: OSError, path: str | os.PathLike[str], done: str = "read") -> None:
    """Raises StorageError, which names the file, of an error that may pass; returns of another."""
    if isinstance(error, StorageError):
        raise error
    if is_passing(error):
        named = os.fspath(path if error.filename is None else error.filename)
        why = error.strerror or error
        raise StorageError(f"{named} cannot be {done}: {why}, try again later") from error


@contextmanager
def naming(path: str | os.PathLike[str], done: str = "read") -> Iterator[None]:
    """Raises errors as `raise_passing` does, others as they are."""
    try:
        yield
    except OSError as error:
        raise_passing(error, path, done)
        raise


def required(value: _Value | None, what: str) -> _Value:
    """Returns a value that is there unless the program has a bug, which RuntimeError tells."""
    if value is None:
        raise RuntimeError(f"there is no {what}, a bug of this program")
    return value


def error_text(error: BaseException) -> str:
    """Returns what an error says, one of the system without its number.

    >>> error_text(PermissionError(13, "Permission denied", "a.txt"))
    'a.txt: Permission denied'
    """
    if isinstance(error, OSError) and error.strerror:
        named = isinstance(error.filename, str)
        return f"{error.filename}: {error.strerror}" if named else error.strerror
    return str(error)


def reason(error: Exception) -> str:
    """Returns the first line of what an error says."""
    text = error_text(getattr(error, "reason", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun; `many` is `one` with an "s" where it is not given."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def counted_of(number: int, total: int, noun: str, one: str, many: str) -> str:
    """Returns a number of a total with its noun and the verb: "1 of 2 parts is"."""
    return f"{number:,} of {counted(total, noun)} {one if number == 1 else many}"


def shown_bytes(number: float) -> str:
    """For messages: as kB, from 100,000 on as MB, from a billion on as GB.

    >>> shown_bytes(9_000), shown_bytes(250_000), shown_bytes(41.6e9)
    ('9.0 kB', '0.2 MB', '41.6 GB')
    """
    if number < 1e5:
        return f"{number / 1e3:,.1f} kB"
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"


# What messages of the steps of a job name, which come as text: at the beginning and in advice, and
# others wherever they are no part of a value or path.
_IN_STEPS = re.compile(
    r"(^|(?<=; ))(?=(?:output_table|overwrite|skip_existing|skip_blocks)\b)"
    r"|(?<![\w'\"/.-])(?=(?:max_rejected|max_deleted|write_disposition|skip_existing)\b)"
)


def step_message(message: str) -> str:
    """Returns the message of a step of a job with dashes before the settings that it names.

    So it reads in run.json and on a terminal; a call of Python shows it without them.
    """
    return _IN_STEPS.sub("--", message)
