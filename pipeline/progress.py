"""Progress: watches the reports of a run as they appear, and shows how far it is."""

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from transforms.files import is_remote, join

_logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_LOG_SECONDS = 30.0
_COUNTED = ("embedded", "tokens", "computed_tokens", "padded_tokens")


@dataclass
class _Seen:
    """Sums over the reports read so far."""

    names: set[str] = field(default_factory=set)
    documents: int = 0
    tokens: int = 0
    rejected: int = 0
    computed: int = 0
    padded: int = 0
    covered: int = 0


class Progress:
    """Shows the progress of a local run while it is open; a remote one shows its own.

    Counts finished parts from outside, because a local runner returns only at the end.

    Args:
        output: The run's folder.
        total: Bytes the run covers; compressed files count only at the end.
    """

    def __init__(self, output: str, total: int) -> None:
        self._folder = "" if is_remote(output) else join(output, "blocks")
        self._total = max(total, 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen = _Seen()
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        if self._folder:
            self._look()
            self._start = (time.monotonic(), self._seen.tokens)
            self._covered_before = self._seen.covered
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        if not self._terminal:
            while not self._stop.wait(_LOG_SECONDS):
                self._look()
                _logger.warning("%s", self.line())
            return
        console = Console(stderr=True)
        with Live(Text(""), console=console, transient=True, refresh_per_second=4) as live:
            while not self._stop.wait(_LOOK_SECONDS):
                self._look()
                live.update(Text(self.line(), no_wrap=True, overflow="ellipsis"))

    def _look(self) -> None:
        """Reads the reports that appeared since the last look."""
        if not os.path.isdir(self._folder):
            return
        for entry in list(os.scandir(self._folder)):
            if entry.name in self._seen.names or not entry.name[0].isdigit():
                continue
            with open(entry.path, "rb") as file:
                self._add(entry.name, file.read())

    def _add(self, name: str, data: bytes) -> None:
        """Adds a report, unless it is damaged: that one is written anew."""
        try:
            report = orjson.loads(data)
            counts = {each: int(report[each]) for each in _COUNTED}
            rejected, covered = (sum(report[each].values()) for each in ("rejected", "covered"))
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        self._seen.names.add(name)
        self._seen.documents += counts["embedded"]
        self._seen.tokens += counts["tokens"]
        self._seen.rejected += rejected
        self._seen.computed += counts["computed_tokens"]
        self._seen.padded += counts["padded_tokens"]
        self._seen.covered += covered

    def line(self) -> str:
        """The progress as one line."""
        seen = self._seen
        begun, tokens = self._start
        elapsed = max(time.monotonic() - begun, 0.001)
        padding = 100 * (1 - seen.computed / seen.padded) if seen.padded else 0.0
        share = min(seen.covered / self._total, 1.0)
        now = seen.covered - self._covered_before
        left = (self._total - seen.covered) * elapsed / now if now > 0 else None
        ahead = "" if left is None or share == 0 else f" · {_clock(left)} left"
        return (
            f"{100 * share:3.0f}% · {seen.documents:,} documents · "
            f"{(seen.tokens - tokens) / elapsed:,.0f} tokens/s · padding {padding:.1f}% · "
            f"{seen.rejected:,} rejected{ahead}"
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
