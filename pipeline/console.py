"""Writes what people read, in this place only: control characters made visible, secrets removed.

Other people's ids, names and texts could move the cursor, or forge a line of ours. Of what people
gave, such as paths, prompts and SQL, only secrets are removed.
"""

import errno
import json
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

HIDDEN = "***"
_SECRET = re.compile(
    r"(?i)password|passwd|passphrase|secret|private[_-]?key|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|signature|credentials?$|(?:^|[_-])(?:token|pwd|sig|key)$"
)
# Names of keys and paths of credentials are not secrets.
_NO_SECRET = re.compile(
    r"(?i)kms[_-]?key|(?:key|credentials?)[_-]?(?:name|ring|file|path)|secret[_-]?name"
)
_USER = re.compile(r"://[^\s/?#@'\"]++@")  # https://user:password@host
_PARAMETER = re.compile(r"(?<=[?&])([\w-]++)=[^\s&;,'\"}\]]++")  # ?X-Goog-Signature=…


def hide_secrets(text: str) -> str:
    """A text with the secrets in its addresses replaced by `***`, in linear time."""
    return _PARAMETER.sub(
        lambda pair: f"{pair[1]}={HIDDEN}" if is_secret_name(pair[1]) else pair[0],
        _USER.sub(f"://{HIDDEN}@", text),
    )


def is_secret_name(name: str) -> bool:
    """Whether a flag, or a key of JSON, of this name holds a secret.

    >>> [is_secret_name(n) for n in ("--s3_session_token", "--dataflow_kms_key", "--batch_tokens")]
    [True, False, False]
    """
    return _SECRET.search(name.lstrip("-")) is not None and _NO_SECRET.search(name) is None


def hide_in_flags(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets replaced: `--name=value` and `--name value` alike.

    Of JSON, such as --environment_config, no `env` is shown.

    >>> hide_in_flags(["--s3_secret_access_key", "abc", "--region=us", '--x={"env": {"A": "b"}}'])
    ['--s3_secret_access_key', '***', '--region=us', '--x={"env": {"A": "***"}}']
    """
    shown: list[str] = []
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            shown.append(f"{name}={_hide_in_word(name, value)}" if equals else argument)
            name = "" if equals else name
        else:
            shown.append(_hide_in_word(name, argument))
            name = ""
    return shown


def _hide_in_word(name: str, value: str) -> str:
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(hide_in(json.loads(value), name), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return str(hide_in(value, name))


def hide_in(value: Any, name: str = "") -> Any:
    """JSON-able values with their secrets replaced."""
    if isinstance(value, Mapping):
        if name.lower() in ("env", "environment"):
            return dict.fromkeys(value, HIDDEN)
        return {key: hide_in(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_in(inner, name) for inner in value]
    if value is None or isinstance(value, (bool, float)):
        return value
    if is_secret_name(name):
        return HIDDEN
    return hide_secrets(value) if isinstance(value, str) else value


class SecretFilter(logging.Filter):
    """Removes the secrets in addresses from log lines, whoever wrote them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every line, without its secrets."""
        line = record.getMessage()
        if (hidden := hide_secrets(line)) != line:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = hide_secrets(logging.Formatter().formatException(record.exc_info))
        return True


# C0, DEL and C1; what separates lines; what turns the direction of writing; halves of surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NO_ASCII = re.compile("[^ -~]")


def visible(text: str) -> str:
    """A text on one line, its control characters as in a Python string."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class AnswerLost(Exception):
    """What a command was asked for cannot be written; its cause is why."""


def say(*lines: str) -> None:
    """Prints what came out, each on a line of its own; the work is done, whoever reads it."""
    _write(sys.stdout, lines)


def answer(*lines: str) -> None:
    """Prints what the command is for, such as the hits of a search; AnswerLost if it cannot."""
    if (error := _write(sys.stdout, lines)) is not None:
        why = getattr(error, "strerror", None) or error
        raise AnswerLost(f"stdout cannot be written: {why}") from error


def answer_json(*lines: str) -> None:
    """Prints lines of JSON as `answer`, with `\\u0085` for what would else be made visible.

    That is as in a Python string, which no reader of JSON takes.
    """

    def escaped(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass").hex()
        return re.sub("....", r"\\u\g<0>", units)

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    changed = _CONTROL if encoding.lower().startswith("utf") else _NO_ASCII
    answer(*(changed.sub(escaped, line) for line in lines))


def warn(*lines: str) -> None:
    """Prints to stderr what is not a result: the plan, notes and errors."""
    _write(sys.stderr, lines)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream leads to a terminal that can write a line anew; none does that is closed."""
    if os.environ.get("TERM", "").lower() in ("", "dumb", "unknown"):
        return False
    with suppress(OSError, ValueError):
        return stream is not None and stream.isatty()
    return False


def open_streams() -> None:
    """Opens /dev/null for each standard stream that this process was started without.

    Else the next file that is opened gets its number, and libraries print into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed; what is opened takes the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:  # sys.stdout stays None: nobody gets what is printed there
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def settle_streams() -> None:
    """Lets the interpreter flush its streams at the end, which else ends with exit code 120."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _write(stream: TextIO | None, lines: tuple[str, ...]) -> Exception | None:
    """Writes lines, and returns why it cannot: no message may end what it is about."""
    text = "".join(f"{visible(line)}\n" for line in lines)
    if stream is None:
        return OSError(errno.EBADF, os.strerror(errno.EBADF))
    encoding = getattr(stream, "encoding", None) or "utf-8"  # a terminal may lack letters
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError) as error:  # ValueError: the stream is closed
        return error
    return None


class VisibleFormatter(logging.Formatter):
    """Formats log entries with the control characters of messages and tracebacks shown."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry: a line, and a traceback below it if there is one."""
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = "\n".join(map(visible, record.exc_text.split("\n")))
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line."""
        return visible(super().formatMessage(record))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Leaves the caller's hook of threads, which a failed job replaces, and root logger alone.

    Beam's notes on itself, the first while it is imported, would give a root logger a handler.
    """
    hook, root = threading.excepthook, logging.getLogger()
    silent = [] if root.handlers else [logging.NullHandler()]
    root.handlers += silent
    try:
        yield
    finally:
        threading.excepthook = hook
        root.handlers = [handler for handler in root.handlers if handler not in silent]


def quiet_logs() -> None:
    """Shows warnings only, and none of Beam's notes on itself."""
    shown = logging.StreamHandler()
    shown.setFormatter(VisibleFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    for handler in logging.getLogger().handlers:
        # Errors of a step come back as the job's error; Beam also logs them, with a traceback.
        handler.addFilter(lambda entry: "apache_beam" not in entry.pathname)
        handler.addFilter(SecretFilter())


def program() -> str:
    """How this program was called."""
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("bert-embed") else "bert-embed"


def installed_program() -> str:
    """What starts this program again: its name where the shell finds it, else its path."""
    beside = Path(sys.executable).with_name("bert-embed")
    on_path = shutil.which("bert-embed")
    if not beside.exists() or (on_path and os.path.samefile(on_path, beside)):
        return "bert-embed"
    return str(beside)
