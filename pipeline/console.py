"""Writes what people read, in this place only, with control characters made visible.

Other people's ids, names and texts could move the cursor, or forge a line of ours.
"""

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from bert_embed.pipeline.secrets import SecretFilter

# C0, DEL and C1; what separates lines; what turns the direction of writing; halves of surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """A text on one line, its control characters as in a Python string."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def say(*lines: str) -> None:
    """Prints results, each on a line of its own."""
    _write(sys.stdout, lines)


def warn(*lines: str) -> None:
    """Prints to stderr what is not a result: the plan, notes and errors."""
    _write(sys.stderr, lines)


@contextmanager
def rewrite() -> Iterator[Callable[[str], None]]:
    """Gives a function that writes a line to stderr in place of the one it wrote before."""
    length = 0

    def show(line: str) -> None:
        nonlocal length
        shown = visible(line)
        sys.stderr.write(f"\r{shown.ljust(length)}")
        sys.stderr.flush()
        length = len(shown)

    try:
        yield show
    finally:
        if length:
            _write(sys.stderr, ("",))


def _write(stream: TextIO, lines: tuple[str, ...]) -> None:
    text = "".join(f"{visible(line)}\n" for line in lines)
    encoding = stream.encoding or "utf-8"  # of a terminal that may not have every letter
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


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


def quiet_logs() -> None:
    """Shows warnings only, and none of Beam's notes on itself."""
    shown = logging.StreamHandler()
    shown.setFormatter(VisibleFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    for handler in logging.getLogger().handlers:
        # Errors of a step come back as the job's error; Beam also logs them, with a traceback.
        handler.addFilter(lambda entry: "apache_beam" not in entry.pathname)
        handler.addFilter(SecretFilter())
