"""Shows the progress of the run that this command started."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bert_embed.pipeline.console import rewrite, visible
from bert_embed.pipeline.progress.metrics_file import MetricsFile
from bert_embed.pipeline.progress.tally import Tally
from bert_embed.pipeline.progress.view import line_of, view_of
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.runners.job_errors import JobGoesOn, was_interrupted
from bert_embed.run_record import Goal, read_record
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote
from bert_embed.transforms.activity import current_activity

_logger = logging.getLogger(__name__)
_LIVE_SECONDS = 0.5
_FIRST_SECONDS = 2.0
_LOG_SECONDS = 30.0
_REMOTE_SECONDS = 10.0  # a store is listed at each look
_LOOKING = 50  # pauses last so many times longer than looks: 100,000 blocks are listed in a second


class Progress:
    """Shows how far a run is, from its reports: a runner returns only at the end.

    On a terminal and in a notebook one line is written again and again; elsewhere a line is logged
    now and then.
    """

    def __init__(
        self,
        output: str,
        run: str,
        goal: Goal,
        tell: Callable[[str], None] | None = None,
        metrics_file: str | None = None,
    ) -> None:
        """Shows nothing yet.

        Args:
            output: Folder of the run.
            run: Its fingerprint.
            goal: What it has to do.
            tell: Takes a line now and then, often at the beginning, instead of people.
            metrics_file: Where to keep the same as Prometheus metrics.
        """
        self._output = output
        self._tally = Tally(output, run, goal, time.time())
        self._metrics = None if metrics_file is None else MetricsFile(metrics_file, output)
        self._tell = tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @classmethod
    def of(cls, run: EmbedRun, tell: Callable[[str], None] | None = None) -> "Progress":
        """The progress of a run that is about to start."""
        return cls(run.output, run.fingerprint, run.goal, tell, run.options.metrics_file)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None or isinstance(error, JobGoesOn):
            self._note_end("running")
        else:
            self._note_end("interrupted" if was_interrupted(error) else "failed")

    def note_done(self) -> None:
        """Writes the metrics of a run that was complete before."""
        self._note_end("running")

    def _note_end(self, state: str) -> None:
        """Writes the metrics once more; a record that says `done` is right, whatever ended."""
        if self._metrics is None:
            return
        self._look()
        ended = None
        with suppress(OSError, ValueError):
            record = read_record(self._output)
            if record is not None and record.is_done:
                state, ended = "done", record.ended
        self._metrics.write(self._tally, view_of(self._tally, None), state, ended)

    def _watch(self) -> None:
        with self._shown() as (show, pauses):
            looked = 0.0
            for pause in pauses:
                if self._stop.wait(max(pause, _LOOKING * looked)):
                    return
                started = time.monotonic()
                self._look(self._stop.is_set)
                looked = time.monotonic() - started
                view = view_of(self._tally, current_activity() or "starting")
                show(line_of(view))
                if self._metrics is not None:
                    self._metrics.write(self._tally, view, "running")

    def _look(self, stopped: Callable[[], bool] = lambda: False) -> None:
        with suppress(OSError, InputError):  # the next look may find the store again
            self._tally.look(stopped)

    @contextmanager
    def _shown(self) -> Iterator[tuple[Callable[[str], object], Iterator[float]]]:
        """Shows lines as long as it lasts; gives what takes them, and the pauses between them."""
        least = _REMOTE_SECONDS if is_remote(self._output) else _LIVE_SECONDS
        if self._tell is not None:
            yield self._tell, _growing(_FIRST_SECONDS)
        elif in_notebook():
            with rewrite() as show:
                yield show, _always(least)
        elif not sys.stderr.isatty():
            yield (lambda line: _logger.warning("%s", line)), _always(_LOG_SECONDS)
        else:
            console = Console(stderr=True)
            with Live(Text(""), console=console, transient=True, refresh_per_second=4) as live:
                yield (lambda line: live.update(one_line(line))), _always(least)


def in_notebook() -> bool:
    """Whether stderr is the output of a notebook's cell."""
    return type(sys.stderr).__module__.startswith("ipykernel")


def one_line(line: str) -> Text:
    """A line for a terminal, cut where it is too long."""
    return Text(visible(line), no_wrap=True, overflow="ellipsis")


def _always(pause: float) -> Iterator[float]:
    while True:
        yield pause


def _growing(pause: float) -> Iterator[float]:
    while True:
        yield pause
        pause = min(1.5 * pause, _LOG_SECONDS)
