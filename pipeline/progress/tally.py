"""Sums the reports of a run while it works; no report is read twice."""

import time
from collections import Counter
from collections.abc import Callable

from bert_embed.pipeline.progress.speed import Durations, Speed
from bert_embed.run_record import Goal
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.records.report import SUMMED, BlockReport, parse_report

_MOST_LATEST = 10_000  # blocks whose latest part is remembered


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
