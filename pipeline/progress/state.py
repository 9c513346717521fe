"""Tells what became of a run on any runner: its state, and the blocks that take too long."""

import datetime
from dataclasses import dataclass
from typing import Literal

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.progress.tally import Tally
from bert_embed.run_record import RunRecord, read_record
from bert_embed.transforms.crash_markers import Marker, read_markers
from bert_embed.transforms.output_folder import OutputFolder

State = Literal["running", "done", "failed", "interrupted", "dead", "stalled"]
ENDED: tuple[State, ...] = ("done", "failed", "interrupted", "dead")
_SLOW = 5  # times the median from which a block takes too long
_SLOW_SECONDS = 60.0  # and at least so long
_SILENT, _SILENT_SECONDS = 10, 900.0  # the same for a run of which nothing is heard
_QUIET_SECONDS = 5.0  # a run that worked a moment ago is not asked for its lock


@dataclass(frozen=True)
class Straggler:
    """A block that takes much longer than others.

    Attributes:
        block: Its number.
        seconds: Since it began, or since its last part was finished.
        host, place: Where it is computed, and what it reads.
        crashed: Whether the process that worked on it is known to have ended.
    """

    block: int
    seconds: float
    host: str
    place: str
    crashed: bool


class WatchedRun:
    """A run as its output shows it, kept up to date.

    Attributes:
        output: Its folder.
        record: What `run.json` says.
        tally: What the reports say.
        markers: What the crash markers say, by name.
    """

    def __init__(self, output: str) -> None:
        """Finds the run.

        Raises:
            UsageError: There is none.
        """
        self.output, self._folder = output, OutputFolder(output)
        self.record = self._read_record()
        self.tally = self._new_tally()
        self.markers: dict[str, Marker] = {}

    def _read_record(self) -> RunRecord:
        record = read_record(self.output)
        if record is None:
            raise UsageError(f"{self.output} is not the output of a run: it holds no run.json")
        return record

    def _new_tally(self) -> Tally:
        try:
            began = datetime.datetime.fromisoformat(self.record.started).timestamp()
        except ValueError as error:
            raise UsageError(f"{self._folder.record} is damaged: started is no time") from error
        return Tally(self.output, self.record.run, self.record.plan, began)

    def look(self) -> None:
        """Reads the record, and the reports and markers that are new.

        Raises:
            UsageError: The run was removed.
            StorageError: A store does not answer.
        """
        before = self.record
        self.record = self._read_record()
        if (self.record.run, self.record.started) != (before.run, before.started):
            self.tally = self._new_tally()  # another attempt, which may have removed reports
        self.tally.look()
        self.markers = read_markers(self.output, self.record.run, self.markers)

    def state(self, now: float) -> State:
        """What the run does, or how it ended."""
        status = self.record.status
        if status in ("done", "failed", "interrupted"):
            return status
        median = self.tally.durations.median() or 0.0
        silent = now - self._last_sign()
        if silent > _QUIET_SECONDS and self.record.job is None and self._has_lost_its_process():
            return "dead"
        return "stalled" if silent > max(_SILENT * median, _SILENT_SECONDS) else "running"

    def _last_sign(self) -> float:
        begun = (each.since for each in self.markers.values() if not each.has_crashed)
        return max(self.tally.began, self.tally.last_end, *begun)

    def _has_lost_its_process(self) -> bool:
        """Whether no command holds the folder, as one does until the run's record says its end.

        Locks of other machines may not be visible here: where one works, nothing is certain.
        """
        elsewhere = any(not each.is_here for each in self.markers.values())
        if elsewhere or self._folder.is_held() is not False:
            return False
        self.record = self._read_record()
        return self.record.status == "running"

    def working(self) -> list[Marker]:
        """The markers of blocks in work, the oldest first."""
        alive = [each for each in self.markers.values() if not each.has_crashed]
        return sorted(alive, key=lambda each: each.since)

    def stragglers(self, now: float) -> list[Straggler]:
        """The blocks that take much longer than the median, or whose process crashed; worst first.

        Nothing is known before parts have ended.
        """
        median = self.tally.durations.median()
        if median is None:
            return []
        found = []
        for marker in self.markers.values():
            last = max(marker.since, self.tally.latest.get(marker.block, 0.0))
            seconds, crashed = now - last, marker.has_crashed
            if crashed or seconds > max(_SLOW * median, _SLOW_SECONDS):
                found.append(Straggler(marker.block, seconds, marker.host, marker.place, crashed))
        return sorted(found, key=lambda each: -each.seconds)
