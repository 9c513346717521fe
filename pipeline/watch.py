"""Runs `watch`: shows any job, on any runner, from the files in its output."""

import datetime
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson
from rich.console import Console, Group
from rich.live import Live

from bert_embed.base.errors import InputError, StorageError, counted
from bert_embed.pipeline.console import answer_json, hide_secrets, is_terminal, say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import WatchOptions
from bert_embed.pipeline.progress import Counts, Progress, clock, one_line
from bert_embed.pipeline.run.summary import summary_lines
from bert_embed.results.run_record import JobRecord, RunRecord, read_record
from bert_embed.storage.files import absolute
from bert_embed.transforms.activity import Marker, read_markers
from bert_embed.transforms.clusters.job import ClusterFolder, ClusterRecord, read_cluster_record
from bert_embed.transforms.output_folder import OutputFolder

State = Literal["running", "done", "refused", "failed", "interrupted", "dead", "stalled"]
ENDED: tuple[State, ...] = ("done", "refused", "failed", "interrupted", "dead")
_MOST_STRAGGLERS = 5
_SLOW, _SLOW_SECONDS = 5, 60.0  # times the median, and least time, from which a block is slow
_SILENT, _SILENT_SECONDS = 10, 900.0  # the same for a run of which nothing is heard
_QUIET_SECONDS = 5.0  # a run that worked a moment ago is not asked for its lock
_MEANING: dict[State, str] = {
    "running": "running",
    "done": "done",
    "refused": "complete, but more records were rejected than --max_rejected allows; nothing was "
    "loaded",
    "failed": "failed",
    "interrupted": "interrupted; the same command continues it",
    "dead": "dead: its command ended without a word (it was killed, or the machine restarted); "
    "the same command continues it",
    "stalled": "stalled: no block was begun or finished for long; look whether the job still runs",
}


@dataclass(frozen=True)
class Straggler:
    """A block that takes much longer than others."""

    block: int
    seconds: float  # since it began, or since its last part was finished
    host: str  # where it is computed
    place: str  # what it reads
    crashed: bool  # whether the process that worked on it is known to have ended

    def __str__(self) -> str:
        since = clock(self.seconds)
        died = f"its process died, it was begun {since} ago"
        what = died if self.crashed else f"slow, nothing finished for {since}"
        return f"block {self.block}: {what} ({self.host}: {hide_secrets(self.place)})"


@dataclass(frozen=True)
class Snapshot:
    """A job at one moment."""

    output: str  # its folder
    state: State  # what it does, or how it ended
    error: str | None  # why it failed
    started: str  # the present or last attempt, UTC, as in the record
    ended: str | None
    numbers: dict[str, Any]  # how far it is, for JSON
    progress: list[str]  # the same for people, line by line

    @classmethod
    def of(
        cls, output: str, record: JobRecord, state: State, numbers: dict[str, Any], *lines: str
    ) -> "Snapshot":
        """A job in a state, which may be newer than its record."""
        error = record.error if state == "failed" else None
        place = hide_secrets(output)
        return cls(place, state, error, record.started, record.ended, numbers, list(lines))

    def to_json(self) -> str:
        """One line of JSON, with the numbers on the top level."""
        row = vars(self) | self.numbers
        del row["numbers"], row["progress"]
        return orjson.dumps(row).decode()

    def lines(self) -> list[str]:
        """The same for people."""
        error = f": {self.error}" if self.error else ""
        head = f"{self.output}: {_MEANING[self.state]}{error} (started {self.started})"
        return [head, *self.progress]


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
        phase = self._counts.phase(bool(self._markers), "planning and loading the model")
        progress = self._counts.progress(phase if works else None)
        if not works:
            progress = replace(progress, seconds_left=None)
        working = [mark for mark in self._markers.values() if not mark.has_crashed and works]
        in_work = {
            "blocks_in_work": len({mark.block for mark in working}),
            "hosts": len({mark.host for mark in working}),
        }
        stragglers = [] if state in ("done", "refused") else self._stragglers(now)
        spent = {name: round(seconds, 3) for name, seconds in self._counts.seconds.items()}
        numbers = asdict(progress) | in_work | {"stage_seconds": spent, "stragglers": stragglers}
        lines = [str(progress), *_lines_of(progress, **in_work)]
        lines += map(str, stragglers[:_MOST_STRAGGLERS])
        if len(stragglers) > _MOST_STRAGGLERS:
            others = len(stragglers) - _MOST_STRAGGLERS
            lines.append(f"and {counted(others, 'further block')} like these")
        return Snapshot.of(self._output, self._record, state, numbers, *lines)

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

    def _stragglers(self, now: float) -> list[Straggler]:
        """The blocks much slower than the median, or whose process crashed; worst first."""
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
    """A job of `cluster` or `dedup`, asked as a run is."""

    def __init__(self, output: str, record: ClusterRecord) -> None:
        self._output, self._record = output, record
        self._folder = ClusterFolder(output)

    def look(self) -> None:
        record = read_cluster_record(self._folder)
        if record is None:
            raise UsageError(f"{self._output} holds no run.json any more")
        self._record = record

    def snapshot(self) -> Snapshot:
        counts, state = self._folder.progress(), self._state()
        lines = [] if state in ENDED else [str(counts)]
        return Snapshot.of(self._output, self._record, state, counts._asdict(), *lines)

    def _state(self) -> State:
        if (ended := _ended(self._record)) is not None:
            return ended
        if self._record.job is None and OutputFolder(self._output).is_held() is False:
            self.look()  # it may have ended meanwhile
            return _ended(self._record) or "dead"
        return "running"

    def summary(self) -> list[str]:
        """Nothing: the command itself prints it."""
        return []


def _lines_of(progress: Progress, blocks_in_work: int, hosts: int) -> Iterator[str]:
    """What `watch` says beside the line of `embed`."""
    on_hosts = f" on {hosts:,} hosts" if hosts > 1 else ""
    yield (
        f"blocks: {progress.blocks_done:,} of {progress.blocks:,} done, "
        f"{blocks_in_work:,} in work{on_hosts} · tokens/s of the last attempt: "
        f"{progress.tokens_per_second:,.0f} overall, "
        f"{progress.tokens_per_second_lately:,.0f} lately"
    )
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in progress.rejected.items())
    rejected = [f"rejected: {reasons}"] if reasons else []
    skipped = [f"skipped: {progress.skipped:,}"] if progress.skipped else []
    if rejected or skipped:
        yield " · ".join(rejected + skipped)


def _ended(record: JobRecord) -> Literal["done", "refused", "failed", "interrupted"] | None:
    """How a job ended, as its record says."""
    status = record.status
    return None if status == "planned" or status == "running" else status


def _seconds(record: JobRecord, path: str) -> float:
    """When the present attempt began, seconds since 1970."""
    try:
        return datetime.datetime.fromisoformat(record.started).timestamp()
    except ValueError as error:
        raise UsageError(f"{path} is damaged: started is no time") from error


def watched(output: str) -> WatchedRun | WatchedClusters:
    """The job in a folder; InputError if there is none."""
    try:
        record = read_cluster_record(ClusterFolder(output))
    except InputError:  # a run's, which says by itself what is wrong
        record = None
    return WatchedRun(output) if record is None else WatchedClusters(output, record)


def run_watch(options: WatchOptions) -> int:
    """Runs `watch DIR`: FAILED if the job ended and is not done, or why it is refused."""
    job = watched(absolute(options.output))
    in_place = is_terminal(sys.stdout) and not options.once and not options.json
    with Live(console=Console(), transient=True) if in_place else nullcontext() as display:
        for snapshot in _snapshots(job, options):
            if display is not None:
                display.update(Group(*map(one_line, snapshot.lines())))
            elif options.json:
                answer_json(snapshot.to_json())
            else:  # it can be the exit code that somebody waits for
                say(*snapshot.lines())
    if in_place:
        say(*snapshot.lines())
    if snapshot.state in ("done", "refused") and not options.json:
        say(*job.summary())
    if snapshot.state == "refused":
        return ExitCode.TOO_MANY_REJECTED
    failed = snapshot.state in ENDED and snapshot.state != "done"
    return ExitCode.FAILED if failed else ExitCode.DONE


def _snapshots(job: WatchedRun | WatchedClusters, options: WatchOptions) -> Iterator[Snapshot]:
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
