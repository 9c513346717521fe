"""Defines Snapshot, everything that `watch` knows of a run at one moment, and its lines."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from bert_embed.pipeline.progress.state import State, Straggler, WatchedRun
from bert_embed.pipeline.progress.view import View, clock, line_of, view_of
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.plurals import counted

_MOST_STRAGGLERS = 5
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
