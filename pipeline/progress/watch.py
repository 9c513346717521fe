"""Runs `watch`: shows any job, on any runner, from the files in its output."""

import datetime
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson
from rich.console import Console, Group
from rich.live import Live

from bert_embed.pipeline.arguments import WatchOptions
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.outputs.report_text import summary_lines
from bert_embed.pipeline.progress.counts import Counts, Progress, clock
from bert_embed.pipeline.progress.display import one_line
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.run_record import JobRecord, RunRecord, read_record
from bert_embed.storage.errors import InputError, StorageError
from bert_embed.storage.files import absolute
from bert_embed.storage.plurals import counted
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.record import ClusterRecord, read_cluster_record
from bert_embed.transforms.crash_markers import Marker, read_markers
from bert_embed.transforms.output_folder import OutputFolder

State = Literal["running", "done", "failed", "interrupted", "dead", "stalled"]
ENDED: tuple[State, ...] = ("done", "failed", "interrupted", "dead")
_MOST_STRAGGLERS = 5
_SLOW, _SLOW_SECONDS = 5, 60.0  # times the median, and least time, from which a block is slow
_SILENT, _SILENT_SECONDS = 10, 900.0  # the same for a run of which nothing is heard
_QUIET_SECONDS = 5.0  # a run that worked a moment ago is not asked for its lock
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

    def __str__(self) -> str:
        since = clock(self.seconds)
        died = f"its process died, it was begun {since} ago"
        what = died if self.crashed else f"slow, nothing finished for {since}"
        return f"block {self.block}: {what} ({self.host}: {hide_secrets(self.place)})"


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Attributes:
        output: Its folder.
        state: What it does, or how it ended.
        error: Why it failed.
        started, ended: The present or last attempt, UTC, as in the record.
        progress: How far it is.
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
    progress: Progress
    blocks_in_work: int
    hosts: int
    stage_seconds: dict[str, float]
    stragglers: list[Straggler]

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, what `progress` has on the top level."""
        row = asdict(self)
        return row | row.pop("progress")

    def lines(self) -> Iterator[str]:
        """The same for people."""
        progress = self.progress
        yield _head(self.output, self.state, self.error, self.started)
        yield str(progress)
        hosts = f" on {self.hosts:,} hosts" if self.hosts > 1 else ""
        yield (
            f"blocks: {progress.blocks_done:,} of {progress.blocks:,} done, "
            f"{self.blocks_in_work:,} in work{hosts} · tokens/s: "
            f"{progress.tokens_per_second:,.0f} overall, "
            f"{progress.tokens_per_second_lately:,.0f} lately"
        )
        if progress.rejected or progress.skipped:
            reasons = [f"{count:,} {reason}" for reason, count in progress.rejected.items()]
            rejected = [f"rejected: {', '.join(reasons)}"] if reasons else []
            skipped = [f"skipped: {progress.skipped:,}"] if progress.skipped else []
            yield " · ".join(rejected + skipped)
        yield from map(str, self.stragglers[:_MOST_STRAGGLERS])
        if len(self.stragglers) > _MOST_STRAGGLERS:
            others = len(self.stragglers) - _MOST_STRAGGLERS
            yield f"and {counted(others, 'further block')} like these"


@dataclass(frozen=True)
class ClusterSnapshot:
    """A job of `cluster` or `dedup` at one moment; its files are those of vectors, as it read them.

    Attributes:
        output, state, error, started, ended: As in `Snapshot`.
        sampled, clustered: Files of vectors of which a sample, and all vectors, were read.
        searched: Ranges of clusters in which duplicates were looked for.
    """

    output: str
    state: State
    error: str | None
    started: str
    ended: str | None
    sampled: int
    clustered: int
    searched: int

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The same for people."""
        yield _head(self.output, self.state, self.error, self.started)
        if self.state not in ENDED:
            yield (
                f"sampled {self.sampled:,}, clustered {counted(self.clustered, 'file')}; "
                f"{counted(self.searched, 'range')} of clusters searched"
            )


def _head(output: str, state: State, error: str | None, started: str) -> str:
    return f"{output}: {_MEANING[state]}{f': {error}' if error else ''} (started {started})"


class WatchedRun:
    """A run of `embed` or `tokenize`; UsageError if there is none."""

    def __init__(self, output: str) -> None:
        self._output, self._folder = output, OutputFolder(output)
        self._record = self._read_record()
        self._counts = self._new_counts()
        self._markers: dict[str, Marker] = {}

    def _read_record(self) -> RunRecord:
        record = read_record(self._output)
        if record is None:
            raise UsageError(f"{self._output} is not the output of a run: it holds no run.json")
        return record

    def _new_counts(self) -> Counts:
        began = _seconds(self._record, self._folder.record)
        return Counts(self._output, self._record.run, self._record.plan, began)

    def look(self) -> None:
        """Reads what is new; UsageError if the run is gone, StorageError without an answer."""
        before = self._record
        self._record = self._read_record()
        if (self._record.run, self._record.started) != (before.run, before.started):
            self._counts = self._new_counts()  # another attempt, which may have removed records
        self._counts.look()
        self._markers = read_markers(self._output, self._record.run, self._markers)

    def snapshot(self) -> Snapshot:
        """What the files, as `look` found them, say at this moment."""
        now = time.time()
        state = self._state(now)
        works = state in ("running", "stalled")
        working = [mark for mark in self._markers.values() if not mark.has_crashed and works]
        progress = self._counts.progress(self._phase() if works else None, now)
        return Snapshot(
            output=hide_secrets(self._output),
            state=state,
            error=self._record.error if state == "failed" else None,
            started=self._record.started,
            ended=self._record.ended,
            progress=progress if works else replace(progress, seconds_left=None),
            blocks_in_work=len({mark.block for mark in working}),
            hosts=len({mark.host for mark in working}),
            stage_seconds={name: round(spent, 3) for name, spent in self._counts.seconds.items()},
            stragglers=[] if state == "done" else self._stragglers(now),
        )

    def summary(self) -> list[str]:
        """What came out of a complete run."""
        return summary_lines(self._output, self._record)

    def _state(self, now: float) -> State:
        if (ended := _ended(self._record)) is not None:
            return ended
        begun = (mark.since for mark in self._markers.values() if not mark.has_crashed)
        silent = now - max(self._counts.began, self._counts.last_end, *begun)
        # Locks of other machines may not be visible here: where one works, nothing is certain.
        elsewhere = any(not mark.is_here for mark in self._markers.values())
        is_local = self._record.job is None and not elsewhere
        if silent > _QUIET_SECONDS and is_local and self._folder.is_held() is False:
            self._record = self._read_record()  # it may have ended meanwhile
            return _ended(self._record) or "dead"
        patience = max(_SILENT * (self._counts.median_seconds() or 0.0), _SILENT_SECONDS)
        return "stalled" if silent > patience else "running"

    def _phase(self) -> str:
        if self._counts.blocks >= self._counts.goal.readers:
            return "checking the output"
        return "computing the first blocks" if self._markers else "planning and loading the model"

    def _stragglers(self, now: float) -> list[Straggler]:
        """The blocks that take much longer than the median, or whose process crashed; worst first.

        Nothing is known before parts have ended.
        """
        median = self._counts.median_seconds()
        if median is None:
            return []
        stragglers = []
        for mark in self._markers.values():
            seconds = now - max(mark.since, self._counts.latest.get(mark.block, 0.0))
            crashed = mark.has_crashed
            if crashed or seconds > max(_SLOW * median, _SLOW_SECONDS):
                stragglers.append(Straggler(mark.block, seconds, mark.host, mark.place, crashed))
        return sorted(stragglers, key=lambda block: -block.seconds)


class WatchedClusters:
    """A job of `cluster` or `dedup`."""

    def __init__(self, output: str, record: ClusterRecord) -> None:
        self._output, self._record = output, record
        self._folder = ClusterFolder(output)

    def look(self) -> None:
        """As of a run."""
        record = read_cluster_record(self._folder)
        if record is None:
            raise UsageError(f"{self._output} holds no run.json any more")
        self._record = record

    def snapshot(self) -> ClusterSnapshot:
        """As of a run."""
        record, counts = self._record, self._folder.progress()
        is_dead = record.job is None and OutputFolder(self._output).is_held() is False
        state: State = _ended(record) or ("dead" if is_dead else "running")
        return ClusterSnapshot(
            output=hide_secrets(self._output),
            state=state,
            error=record.error if state == "failed" else None,
            started=record.started,
            ended=record.ended,
            sampled=counts.sampled,
            clustered=counts.assigned,
            searched=counts.searched,
        )

    def summary(self) -> list[str]:
        """Nothing: the command itself prints it."""
        return []


def _ended(record: JobRecord) -> Literal["done", "failed", "interrupted"] | None:
    """How a job ended, as its record says."""
    return record.status if record.status in ("done", "failed", "interrupted") else None


def _seconds(record: JobRecord, path: str) -> float:
    """When the present attempt began, seconds since 1970."""
    try:
        return datetime.datetime.fromisoformat(record.started).timestamp()
    except ValueError as error:
        raise UsageError(f"{path} is damaged: started is no time") from error


def watched(output: str) -> WatchedRun | WatchedClusters:
    """The job in a folder.

    Raises:
        InputError: There is none.
        StorageError: The store does not answer.
    """
    try:
        record = read_cluster_record(ClusterFolder(output))
    except InputError:  # a run's, which says by itself what is wrong
        record = None
    return WatchedRun(output) if record is None else WatchedClusters(output, record)


def run_watch(options: WatchOptions) -> int:
    """Runs `watch DIR` with its options.

    Returns:
        DONE when the job is, and after `--once` while it works; FAILED if it ended otherwise.

    Raises:
        InputError: There is no job.
        StorageError: A store does not answer.
    """
    job = watched(absolute(options.output))
    last = _show(_snapshots(job, options), options.json, live=not options.once)
    if last.state == "done" and not options.json:
        say(*job.summary())
    return ExitCode.FAILED if last.state in ENDED and last.state != "done" else ExitCode.DONE


def _show(
    snapshots: Iterator[Snapshot | ClusterSnapshot], as_json: bool, live: bool
) -> Snapshot | ClusterSnapshot:
    """Prints each snapshot, on a terminal in place of the one before; returns the last."""
    snapshot = next(snapshots)
    if as_json or not live or not sys.stdout.isatty():
        say(*_printed(snapshot, as_json))
        for snapshot in snapshots:
            say(*_printed(snapshot, as_json))
        return snapshot
    with Live(_lines(snapshot), console=Console(), transient=True) as display:
        for snapshot in snapshots:
            display.update(_lines(snapshot))
    say(*snapshot.lines())
    return snapshot


def _lines(snapshot: Snapshot | ClusterSnapshot) -> Group:
    return Group(*map(one_line, snapshot.lines()))


def _printed(snapshot: Snapshot | ClusterSnapshot, as_json: bool) -> list[str]:
    return [orjson.dumps(snapshot.to_dict()).decode()] if as_json else list(snapshot.lines())


def _snapshots(
    job: WatchedRun | WatchedClusters, options: WatchOptions
) -> Iterator[Snapshot | ClusterSnapshot]:
    """A snapshot each interval until the job has ended; one only with `--once`."""
    while True:
        try:
            job.look()
        except StorageError as error:
            if options.once:
                raise
            warn(f"note: {hide_secrets(str(error))}; asking again in {options.interval:g} s")
        snapshot = job.snapshot()
        yield snapshot
        if options.once or snapshot.state in ENDED:
            return
        time.sleep(options.interval)
