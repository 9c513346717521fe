"""Shows the progress of a run from the reports that it writes."""

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from storage.files import is_remote
from transforms.output_folder import OutputFolder

_logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_FIRST_SECONDS = 2.0
_LOG_SECONDS = 30.0
_COUNTED = ("embedded", "tokens", "computed_tokens", "padded_tokens")
_SUMMED = ("rejected", "covered")


class Progress:
    """Shows the progress of a run with a local output; a cluster shows its own.

    Reads the reports of finished parts, because a local runner returns only at the end. Of the
    `total` bytes that the run covers, compressed files count only at the end.
    """

    def __init__(self, output: str, total: int, tell: Callable[[str], None] | None = None) -> None:
        """Counts what a run has to do.

        Args:
            output: Folder of the run.
            total: Bytes that it covers.
            tell: Takes a line now and then, often at the beginning; None shows one line on a
                terminal, and elsewhere logs it rarely.
        """
        self._folder = "" if is_remote(output) else OutputFolder(output).reports
        self._total = max(total, 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._names: set[str] = set()
        self._sums: Counter[str] = Counter()  # over the reports read so far
        self._tell = tell

    def __enter__(self) -> "Progress":
        if self._folder:
            self._look()
            self._start = time.monotonic(), self._sums["tokens"], self._sums["covered"]
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        if self._tell or not sys.stderr.isatty():
            tell, pause = self._tell or _log, _FIRST_SECONDS if self._tell else _LOG_SECONDS
            while not self._stop.wait(pause):
                self._look()
                tell(self.line())
                pause = min(1.5 * pause, _LOG_SECONDS)
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
            if entry.name in self._names or not entry.name[0].isdigit():
                continue
            with open(entry.path, "rb") as file:
                self._add(entry.name, file.read())

    def _add(self, name: str, data: bytes) -> None:
        """Adds a report, unless it is damaged: such a part is computed again."""
        try:
            report = orjson.loads(data)
            sums = {name: int(report[name]) for name in _COUNTED}
            sums |= {name: sum(report[name].values()) for name in _SUMMED}
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        self._names.add(name)
        self._sums.update(sums)

    def line(self) -> str:
        """The progress as one line."""
        sums = self._sums
        begun, tokens, covered = self._start
        elapsed = max(time.monotonic() - begun, 0.001)
        padded = sums["padded_tokens"]
        padding = 100 * (1 - sums["computed_tokens"] / padded) if padded else 0.0
        share = min(sums["covered"] / self._total, 1.0)
        now = sums["covered"] - covered
        left = (self._total - sums["covered"]) * elapsed / now if now > 0 else None
        ahead = "" if left is None or share == 0 else f" · {_clock(left)} left"
        return (
            f"{100 * share:3.0f}% · {sums['embedded']:,} documents · "
            f"{(sums['tokens'] - tokens) / elapsed:,.0f} tokens/s · padding {padding:.1f}% · "
            f"{sums['rejected']:,} rejected{ahead}"
        )


def _log(line: str) -> None:
    _logger.warning("%s", line)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
