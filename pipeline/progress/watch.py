"""Runs `watch`: shows any run, on any runner, from the files in its output."""

import argparse
import datetime
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson
from rich.console import Console, Group
from rich.live import Live

from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.outputs.report_text import summary_lines
from bert_embed.pipeline.progress.metrics_file import MetricsFile, check_metrics_file
from bert_embed.pipeline.progress.shown import one_line
from bert_embed.pipeline.progress.tally import Tally
from bert_embed.pipeline.progress.view import View, clock, line_of, view_of
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.run_record import RunRecord, read_record
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import absolute
from bert_embed.storage.plurals import counted
from bert_embed.transforms.crash_markers import Marker, read_markers
from bert_embed.transforms.output_folder import OutputFolder

State = Literal["running", "done", "failed", "interrupted", "dead", "stalled"]
ENDED: tuple[State, ...] = ("done", "failed", "interrupted", "dead")
_MOST_STRAGGLERS = 5
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


_MEANING: dict[State, str] = {
    "running": "running",
    "done": "done",
    "failed": "failed",
    "interrupted": "interrupted; the same command continues it",
    "dead": "dead: its command ended without a word (it was killed, or the machine restarted); "
    "the same command continues it",
    "stalled": "stalled: no block was begun or finished for long; look whether the job still runs",
}


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Attributes:
        output: Its folder.
        state: What it does, or how it ended.
        error: Why it failed.
        started, ended: The present or last attempt, UTC, as in the record.
        view: How far it is.
        blocks_in_work: Blocks that a process works on.
        hosts: How many hosts these processes run on.
        stage_seconds: Seconds in each stage, over all workers and attempts.
        stragglers: Blocks that take too long, the worst first.
    """

    output: str
    state: State
    error: str | None
    started: str
    ended: str | None
    view: View
    blocks_in_work: int
    hosts: int
    stage_seconds: dict[str, float]
    stragglers: list[Straggler]

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, what `view` has on the top level."""
        row = asdict(self)
        return row | row.pop("view")

    def lines(self) -> Iterator[str]:
        """The same for people."""
        view = self.view
        why = "" if self.error is None else f": {self.error}"
        yield f"{self.output}: {_MEANING[self.state]}{why} (started {self.started})"
        yield line_of(view)
        hosts = f" on {self.hosts:,} hosts" if self.hosts > 1 else ""
        yield (
            f"blocks: {view.blocks_done:,} of {view.blocks:,} done, {self.blocks_in_work:,} in work"
            f"{hosts} · tokens/s: {view.tokens_per_second:,.0f} overall, "
            f"{view.tokens_per_second_lately:,.0f} lately"
        )
        if view.rejected or view.skipped:
            reasons = [f"{count:,} {reason}" for reason, count in view.rejected.items()]
            rejected = [f"rejected: {', '.join(reasons)}"] if reasons else []
            skipped = [f"skipped: {view.skipped:,}"] if view.skipped else []
            yield " · ".join(rejected + skipped)
        for each in self.stragglers[:_MOST_STRAGGLERS]:
            since = clock(each.seconds)
            what = (
                f"its process died, it was begun {since} ago"
                if each.crashed
                else f"slow, nothing finished for {since}"
            )
            yield f"block {each.block}: {what} ({each.host}: {hide_secrets(each.place)})"
        if len(self.stragglers) > _MOST_STRAGGLERS:
            more = len(self.stragglers) - _MOST_STRAGGLERS
            yield f"and {counted(more, 'further block')} like these"


def snapshot_of(run: WatchedRun) -> Snapshot:
    """What the files of a run, as `look` found them, say at this moment."""
    now = time.time()
    state = run.state(now)
    works = state in ("running", "stalled")
    working = run.working() if works else []
    error = run.record.error if state == "failed" else None
    view = view_of(run.tally, _phase(run) if works else None, now)
    return Snapshot(
        output=hide_secrets(run.output),
        state=state,
        error=error,
        started=run.record.started,
        ended=run.record.ended,
        view=view if works else replace(view, seconds_left=None),
        blocks_in_work=len({each.block for each in working}),
        hosts=len({each.host for each in working}),
        stage_seconds={name: round(spent, 3) for name, spent in run.tally.seconds.items()},
        stragglers=[] if state == "done" else run.stragglers(now),
    )


def _phase(run: WatchedRun) -> str:
    if run.tally.blocks >= run.tally.goal.readers:
        return "checking the output"
    return "computing the first blocks" if run.markers else "planning and loading the model"


def run_watch(given: argparse.Namespace) -> int:
    """Runs `watch DIR`.

    Args:
        given: As `parse_watch` gives it.

    Returns:
        DONE when the run is, and after `--once` while it works; FAILED if it ended otherwise.

    Raises:
        UsageError: There is no run, or the metrics file cannot be written.
        StorageError: A store does not answer.
    """
    if given.metrics_file is not None:
        check_metrics_file(given.metrics_file)
    run = WatchedRun(absolute(given.output))
    last = _show(_snapshots(run, given), given.json, live=not given.once)
    if last.state == "done" and not given.json:
        say(*summary_lines(run.output, run.record))
    return ExitCode.FAILED if last.state in ENDED and last.state != "done" else ExitCode.DONE


def _show(snapshots: Iterator[Snapshot], as_json: bool, live: bool) -> Snapshot:
    """Prints each snapshot, on a terminal in place of the one before; returns the last."""
    snapshot = next(snapshots)
    if as_json or not live or not sys.stdout.isatty():
        say(*_printed(snapshot, as_json))
        for snapshot in snapshots:
            say(*_printed(snapshot, as_json))
        return snapshot
    with Live(_lines(snapshot), console=Console(), transient=True) as shown:
        for snapshot in snapshots:
            shown.update(_lines(snapshot))
    say(*snapshot.lines())
    return snapshot


def _lines(snapshot: Snapshot) -> Group:
    return Group(*map(one_line, snapshot.lines()))


def _printed(snapshot: Snapshot, as_json: bool) -> list[str]:
    return [orjson.dumps(snapshot.to_dict()).decode()] if as_json else list(snapshot.lines())


def _snapshots(run: WatchedRun, given: argparse.Namespace) -> Iterator[Snapshot]:
    """A snapshot each interval until the run has ended; one only with `--once`."""
    metrics = None if given.metrics_file is None else MetricsFile(given.metrics_file, run.output)
    while True:
        try:
            run.look()
        except StorageError as error:
            if given.once:
                raise
            warn(f"note: {hide_secrets(str(error))}; asking again in {given.interval:g} s")
        snapshot = snapshot_of(run)
        if metrics is not None:
            ended = snapshot.ended if snapshot.state == "done" else None
            metrics.write(run.tally, snapshot.view, snapshot.state, ended)
        yield snapshot
        if given.once or snapshot.state in ENDED:
            return
        time.sleep(given.interval)
