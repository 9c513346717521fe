"""Sums the reports of a run while it works; no report is read twice."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from bert_embed.run_record import Goal
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.records.report import SUMMED, BlockReport, parse_report

_MOST_LATEST = 10_000  # blocks whose latest part is remembered
_LATELY = 60.0  # seconds that "lately" covers, if enough blocks ended in them
_FEWEST = 8  # blocks from which a speed is read
_MOST_EVENTS = 2048  # that are held; of more, neighbours are joined
_SETTLE = 20.0  # seconds in which a displayed end of the run follows a new estimate
_BIN = 1.1  # factor from one bin of durations to the next


class _Ended(NamedTuple):
    """Blocks that ended: when the last one did, their tokens and their share of the work."""

    when: float
    tokens: int
    work: float


class Speed:
    """How fast an attempt works, from the times at which its parts were finished.

    Parts come in lumps, often several at once. So speeds are taken from one end of a part to
    another, never to this moment: they do not fall between two parts.
    """

    def __init__(self) -> None:
        self._ended: deque[_Ended] = deque()
        self._began = math.inf
        self._parts = self._tokens = 0
        self._work = 0.0
        self._shown: tuple[float, float] | None = None  # when, and the end that was displayed

    def add(self, when: float, seconds: float, tokens: int, work: float) -> None:
        """Adds a part.

        Args:
            when: Its end.
            seconds: What it took.
            tokens: Of its documents.
            work: Its share of the run's work, in any unit.
        """
        self._began = min(self._began, when - seconds)
        self._parts += 1
        self._tokens += tokens
        self._work += work
        self._ended.append(_Ended(when, tokens, work))
        if len(self._ended) > _MOST_EVENTS:
            self._halve()

    def _halve(self) -> None:
        events = sorted(self._ended)
        self._ended = deque(
            _Ended(two.when, one.tokens + two.tokens, one.work + two.work)
            for one, two in zip(events[::2], events[1::2], strict=False)
        )
        if len(events) % 2:
            self._ended.append(events[-1])

    def overall(self) -> float:
        """Tokens a second since the first part of this attempt began; 0.0 before one ended."""
        return self._tokens / self._elapsed() if self._parts else 0.0

    def lately(self) -> float:
        """Tokens a second of the last minute with parts; overall before there are enough."""
        found = self._recent()
        return self.overall() if found is None else found[0]

    def _elapsed(self) -> float:
        last = max(each.when for each in self._ended)
        return max(last - self._began, 0.001)

    def _recent(self) -> tuple[float, float] | None:
        """Tokens and work a second of the last parts; None if they are too few to tell."""
        events = sorted(self._ended)
        if len(events) <= _FEWEST:
            return None
        last = events[-1].when
        first = max((n for n, each in enumerate(events) if each.when <= last - _LATELY), default=0)
        first = min(first, len(events) - 1 - _FEWEST)
        seconds = last - events[first].when
        if seconds <= 0:
            return None
        after = events[first + 1 :]
        tokens, work = sum(each.tokens for each in after), sum(each.work for each in after)
        return tokens / seconds, work / seconds

    def seconds_left(self, left: float, now: float) -> float | None:
        """Seconds until so much work is done, as displayed; None before a part ended.

        A new estimate is taken over little by little, so that what people see counts down.
        """
        if not self._work:
            return None
        elapsed = self._elapsed()
        overall = self._work / elapsed
        found = self._recent()
        rate = overall if found is None or not found[1] else math.sqrt(overall * found[1])
        # Between two parts work goes on; if none ends for long, no more is counted down.
        last = max(each.when for each in self._ended)
        gap = elapsed / self._parts
        end = max(last, now - 2 * gap) + left / rate
        if self._shown is not None:
            then, shown = self._shown
            settle = min(_SETTLE, elapsed / 4)  # the first parts say little
            end = shown + (end - shown) * (1 - math.exp(-(now - then) / settle))
        self._shown = now, end
        return max(end - now, 0.0)


class Durations:
    """The median of any number of durations, within a tenth, in little memory."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._count = 0

    def add(self, seconds: float) -> None:
        """Adds one."""
        self._bins[round(math.log(max(seconds, 0.001), _BIN))] += 1
        self._count += 1

    def median(self) -> float | None:
        """The median in seconds; None if there are none."""
        passed = 0
        for place in sorted(self._bins):
            passed += self._bins[place]
            if 2 * passed >= self._count:
                return float(_BIN**place)
        return None


class _Parts:
    """A set of parts: a bit each, as a set of numbers would be the largest thing in memory."""

    def __init__(self) -> None:
        self._bits: dict[int, bytearray] = {}  # by number of the part; a bit for each block

    def __contains__(self, part: tuple[int, int]) -> bool:
        bits = self._bits.get(part[1], b"")
        place, bit = divmod(part[0], 8)
        return place < len(bits) and bool(bits[place] >> bit & 1)

    def add(self, block: int, part: int) -> None:
        bits = self._bits.setdefault(part, bytearray())
        place, bit = divmod(block, 8)
        bits.extend(bytes(max(0, place + 1 - len(bits))))
        bits[place] |= 1 << bit


class Tally:
    """What the reports of a run add up to so far.

    Attributes:
        goal: What the run has to do.
        began: When this attempt began, in seconds since 1970.
        counts: Sums of the reports' numbers, by their names.
        rejected: Sums by reason.
        seconds: Sums by stage, over all workers and attempts.
        covered: Bytes and rows that the parts cover.
        blocks: Readers that reported their last part.
        speed: Of this attempt.
        durations: Of the parts of all attempts.
        latest: When a part of a block was finished last; of the last blocks only.
        last_end: When the last part of all was finished; 0.0 before.
    """

    def __init__(self, output: str, run: str, goal: Goal, began: float) -> None:
        """Sums from nothing.

        Args:
            output: Folder of the run.
            run: Its fingerprint; other reports do not count.
            goal: What it has to do.
            began: When this attempt began, in seconds since 1970.
        """
        self._folder, self._run = OutputFolder(output), run
        self.goal, self.began = goal, began
        self._known = _Parts()
        self.counts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.covered = self.blocks = 0
        self.speed, self.durations = Speed(), Durations()
        self.latest: dict[int, float] = {}
        self.last_end = 0.0

    def look(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Adds the reports that appeared since the last look, until `stopped`.

        A damaged report is looked at again: its part is computed again.

        Raises:
            OSError: A store does not answer.
        """
        new = self._folder.new_reports(lambda block, part: (block, part) in self._known)
        for block, part, written, data in new:
            report = parse_report(data, self._run)
            if report is not None and (report.block, report.part) == (block, part):
                self._known.add(block, part)
                self._add(report, written)
            if stopped():
                break

    def _add(self, report: BlockReport, written: float) -> None:
        covered, seconds = sum(report.covered.values()), sum(report.seconds.values())
        self.counts.update({name: getattr(report, name) for name in SUMMED})
        self.rejected.update(report.rejected)
        self.seconds.update(report.seconds)
        self.covered += covered
        self.blocks += report.last
        self.durations.add(seconds)
        self.last_end = max(self.last_end, written)
        self.latest.pop(report.block, None)
        self.latest[report.block] = written
        if len(self.latest) > _MOST_LATEST:
            self.latest.pop(next(iter(self.latest)))
        if written >= self.began:
            work = report.records if self.goal.covers is None else covered
            self.speed.add(written, seconds, report.tokens, work)

    def elapsed(self, now: float | None = None) -> float:
        """Seconds since this attempt began."""
        return max((time.time() if now is None else now) - self.began, 0.0)
