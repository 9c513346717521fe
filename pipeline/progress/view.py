"""Defines View, how far a run is at one moment, and its line for people."""

import time
from dataclasses import dataclass

from bert_embed.pipeline.progress.tally import Tally
from bert_embed.storage.plurals import counted

_ALMOST = 0.99  # what an estimate is shown as at most, before the last block ended
_TELLING = 0.05  # share of the input from which the rest is estimated by what was read


@dataclass(frozen=True)
class View:
    """How far a run is.

    Attributes:
        phase: What it does where no block ends, such as "planning"; None while blocks end.
        share: Of the work that is done, 0.0 to 1.0.
        estimated: Whether `share` rests on the plan's estimate of the records, not on bytes read.
        records, documents, skipped, tokens: So far; those of earlier attempts too.
        documents_estimated: How many there will be.
        rejected: So far, by reason.
        padding: Share of padding in what the model computed.
        tokens_per_second, tokens_per_second_lately: Of this attempt, and of its last minute.
        seconds_left: Until the last block ends; None if nothing tells.
        elapsed: Seconds since this attempt began.
        blocks_done, blocks: How many blocks are finished, and of how many.
    """

    phase: str | None
    share: float
    estimated: bool
    records: int
    documents: int
    documents_estimated: int
    skipped: int
    rejected: dict[str, int]
    tokens: int
    padding: float
    tokens_per_second: float
    tokens_per_second_lately: float
    seconds_left: float | None
    elapsed: float
    blocks_done: int
    blocks: int


def view_of(tally: Tally, activity: str | None, now: float | None = None) -> View:
    """How far a run is, by its reports.

    Args:
        tally: The reports.
        activity: What the run does while no block ends, if that is known.
        now: This moment, None for the clock's.
    """
    now = time.time() if now is None else now
    goal, counts = tally.goal, tally.counts
    whole = goal.records if goal.covers is None else goal.covers
    done = counts["records"] if goal.covers is None else tally.covered
    over = tally.blocks >= goal.readers
    share = 1.0 if over else min(done / max(whole, 1), _ALMOST if goal.covers is None else 1.0)
    left = max(whole * (1 - share), 0.0)
    records = counts["records"]
    if over or share < _TELLING:
        expected = records if over else max(goal.records, records)
    else:
        expected = round(records / share)
    padded = counts["padded_tokens"]
    rejected = dict(sorted(tally.rejected.items()))
    return View(
        phase=activity if over or not counts["records"] else None,
        share=share,
        estimated=goal.covers is None and not over,
        records=records,
        documents=counts["embedded"],
        documents_estimated=expected - counts["skipped"] - sum(rejected.values()),
        skipped=counts["skipped"],
        rejected=rejected,
        tokens=counts["tokens"],
        padding=1 - counts["computed_tokens"] / padded if padded else 0.0,
        tokens_per_second=tally.speed.overall(),
        tokens_per_second_lately=tally.speed.lately(),
        seconds_left=0.0 if over else tally.speed.seconds_left(left, now),
        elapsed=tally.elapsed(now),
        blocks_done=tally.blocks,
        blocks=goal.readers,
    )


def line_of(view: View) -> str:
    """The progress on one line."""
    share = f"{'about ' if view.estimated else ''}{int(100 * view.share)}%"
    if view.phase is not None:
        return f"{share} · {view.phase} · {clock(view.elapsed)}"
    rejected, left = sum(view.rejected.values()), view.seconds_left
    ahead = f" · {clock(left)} left" if left is not None and view.share < 1 else ""
    return (
        f"{share} · {view.documents:,} of about {counted(view.documents_estimated, 'document')} · "
        f"{view.tokens_per_second_lately:,.0f} tokens/s · padding {100 * view.padding:.1f}% · "
        f"{rejected:,} rejected{ahead}"
    )


def clock(seconds: float) -> str:
    """A duration as people write it.

    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
