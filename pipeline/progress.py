"""Shows how far the job is that this command started, from the block records in its output."""

import logging
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import InputError, counted
from bert_embed.base.progress import cell_line
from bert_embed.pipeline.console import is_terminal, visible
from bert_embed.results.run_record import Goal
from bert_embed.storage.files import is_remote
from bert_embed.transforms.ledger import SUMMED, BlockRecord, parse_block_record
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.steps import current_activity

_PART_BITS = 20  # of the number that stands for a block's part
_ALMOST = 0.99  # what an estimate is shown as at most, before the last block ended
_TELLING = 0.05  # share of the input from which the rest is estimated by what was read


@dataclass(frozen=True)
class Progress:
    """How far a run is at one moment, with what earlier attempts did."""

    phase: str | None  # what it does where no block ends, such as "planning"; else None
    share: float  # of the work that is done, 0.0 to 1.0
    estimated: bool  # whether `share` rests on the plan's estimate of the records, not on bytes
    documents: int
    documents_estimated: int  # how many there will be
    rejected: int
    tokens_per_second: float  # of this attempt, since its first part began
    seconds_left: float | None  # until the last block ends; None if nothing tells
    elapsed: float  # seconds since this attempt began

    def __str__(self) -> str:
        """The progress on one line."""
        share = f"{'about ' if self.estimated else ''}{int(100 * self.share)}%"
        if self.phase is not None:
            return f"{share} · {self.phase} · {clock(self.elapsed)}"
        left = self.seconds_left  # early: a terminal of 80 columns cuts the end off
        return (
            f"{share}{f' · {clock(left)} left' if left is not None and self.share < 1 else ''} · "
            f"{self.documents:,} of about {counted(self.documents_estimated, 'document')} · "
            f"{self.tokens_per_second:,.0f} tokens/s · {self.rejected:,} rejected"
        )


class RunCounts:
    """What the block records of a run add up to so far."""

    def __init__(self, output: str, run: str, goal: Goal, began: float) -> None:
        """Sums from nothing, for an attempt that began so many seconds after 1970."""
        self.output, self.run, self.goal, self.began = output, run, goal, began
        self._read: set[int] = set()
        self._sums: Counter[str] = Counter()
        self.blocks = 0  # of which the last part is finished
        # Of this attempt: when its first part began and its last one ended, tokens, work.
        self._first, self._last, self._tokens, self._work = math.inf, 0.0, 0, 0.0

    def look(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Adds block records since the last look, until `stopped`; damaged ones are reread."""
        new: list[tuple[float, BlockRecord]] = []
        for block, part, written, data in OutputFolder(self.output).new_block_records(
            lambda block, part: (block << _PART_BITS | part) in self._read
        ):
            record = parse_block_record(data, self.run)
            if record is not None and (record.block, record.part) == (block, part):
                new.append((written, record))
            if stopped():
                break
        for written, record in sorted(new, key=lambda ended: ended[0]):
            self._add(record, written)

    def _add(self, record: BlockRecord, written: float) -> None:
        self._read.add(record.block << _PART_BITS | record.part)
        covered, rejected = sum(record.covered.values()), sum(record.rejected.values())
        self._sums.update({name: getattr(record, name) for name in SUMMED})
        self._sums.update(covered=covered, rejected=rejected)
        self.blocks += record.last
        if written >= self.began:
            self._first = min(self._first, written - sum(record.seconds.values()))
            self._last = max(self._last, written)
            self._tokens += record.tokens
            self._work += record.records if self.goal.covers is None else covered

    def phase(self) -> str:
        """What the run does while no part ends, as far as its output and this process show."""
        over = self.blocks >= self.goal.blocks
        return "checking the output" if over else "waiting for the first part"

    def progress(self, activity: str | None) -> Progress:
        """How far the run is; `activity` is what it does while no block ends, if that is known."""
        goal, sums, by_records = self.goal, self._sums, self.goal.covers is None
        whole = max(goal.records if goal.covers is None else goal.covers, 1)
        over, records = self.blocks >= goal.blocks, sums["records"]
        most = _ALMOST if by_records else 1.0
        finished = (records if by_records else sums["covered"]) / whole
        share = 1.0 if over else min(finished, most)
        expected = records if over else max(goal.records, records)
        if not over and finished >= _TELLING:
            expected = round(records / min(finished, most))
        spent = max(self._last - self._first, 0.001)  # parts come in lumps: from one end to another
        left = whole * (1 - share) * spent / self._work if self._work else None
        return Progress(
            phase=activity if over or not records else None,
            share=share,
            estimated=by_records and not over,
            documents=sums["embedded"],
            documents_estimated=expected - sums["skipped"] - sums["rejected"],
            rejected=sums["rejected"],
            tokens_per_second=self._tokens / spent,
            seconds_left=0.0 if over else left,
            elapsed=max(time.time() - self.began, 0.0),
        )


def clock(seconds: float) -> str:
    """A duration as people write it.

    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


_logger = logging.getLogger(__name__)
_LIVE_SECONDS, _FIRST_SECONDS, _LOG_SECONDS = 0.5, 2.0, 30.0
_REMOTE_SECONDS = 10.0  # a store is listed at each look
_LOOKING = 50  # pauses last so many times longer than looks: 100,000 blocks are listed in a second


@contextmanager
def progress_of_run(counts: RunCounts, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Shows how far a run is until the context ends, from its block records.

    A runner returns only at the end. `tell` takes the lines; None shows them in place on a terminal
    and in a notebook, which keeps the last one, else logs them.
    """
    stop, is_whole = threading.Event(), False

    def last() -> str:
        with suppress(OSError, InputError):
            counts.look()
        progress = counts.progress(None)
        return (
            f"{int(100 * progress.share)}% · {counted(progress.documents, 'document')} · "
            f"{'' if is_whole else 'stopped · '}{clock(progress.elapsed)}"
        )

    def show() -> None:
        looked = 0.0
        with _display(counts.output, tell, last) as (put, pause, longest):
            while not stop.wait(max(pause, _LOOKING * looked)):
                started = time.monotonic()
                with suppress(OSError, InputError):  # the next look may find the store again
                    counts.look(stop.is_set)
                text = str(counts.progress(current_activity() or counts.phase()))
                looked = time.monotonic() - started
                put(text)
                pause = min(1.5 * pause, longest)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
        is_whole = True
    finally:
        stop.set()
        thread.join()


@contextmanager
def _display(
    output: str, tell: Callable[[str], None] | None, last: Callable[[], str]
) -> Iterator[tuple[Callable[[str], object], float, float]]:
    """What takes the lines, and the first and the longest pause between them."""
    least = _REMOTE_SECONDS if is_remote(output) else _LIVE_SECONDS
    if tell is not None:
        yield tell, _FIRST_SECONDS, _LOG_SECONDS
    elif in_notebook():
        show, is_empty = cell_line(), True

        def put(line: str) -> None:
            nonlocal is_empty
            is_empty = False
            show(visible(line))

        yield put, least, least
        if not is_empty:
            put(last())
    elif not is_terminal(sys.stderr):
        yield (lambda line: _logger.warning("%s", line)), _LOG_SECONDS, _LOG_SECONDS
    else:
        with Live(Text(""), console=Console(stderr=True), transient=True) as live:
            cut = partial(Text, no_wrap=True, overflow="ellipsis")  # where it is too long
            yield (lambda line: live.update(cut(visible(line)))), least, least
