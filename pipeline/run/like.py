"""Says what a run like another one will cost, by the record of that one."""

from collections.abc import Iterator

from bert_embed.base.errors import counted
from bert_embed.pipeline.options.embed import DEFAULTS, FLAGS, OF_RESULT
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.results.run_record import RunRecord


def like_lines(run: EmbedRun) -> Iterator[str]:
    """The lines of a plan about the output that `--like` names; none without it."""
    place = run.options.like
    if place is None:
        return
    record = record_of_run(place)
    yield _cost(place, record, run)
    if run.source.unchecked is None and run.source.digest != record.input.listing:
        yield (
            f"note: the input is not that of {place}, which were "
            f"{counted(record.input.files, 'file')} of {counted(record.input.bytes, 'byte')}"
        )
    if others := _others(record, run):
        yield f"other than {place}: {', '.join(others)}"


def _cost(place: str, record: RunRecord, run: EmbedRun) -> str:
    """Documents, tokens and hours, in proportion where other records are read."""
    numbers, counts = record.numbers, record.numbers.counts
    # What it skipped is embedded now.
    share = (counts.embedded + counts.skipped) / max(counts.embedded, 1)
    same = run.source.digest == record.input.listing and run.options.limit == record.input.limit
    if not same and run.source.unchecked is None:
        share *= run.source.documents / max(record.plan.records, 1)
    tokens = share * numbers.tokens
    speed = numbers.tokens_per_second
    hours = "hours unknown, its record has no speed"
    if speed:
        spent = tokens / speed / 3600
        shown = f"{spent:,.2f}" if spent >= 0.1 else f"{spent:.2g}"
        hours = f"{shown} hours at the {speed:,.0f} tokens a second of {record.model.name} there"
    return (
        f"by {place}: about {counted(round(share * counts.embedded), 'document')}, "
        f"{counted(round(tokens), 'token')}, {hours}; `estimate` measures this model here"
    )


def _others(record: RunRecord, run: EmbedRun) -> list[str]:
    """The options that differ from those of the other run, with what it had."""
    found = []
    for name in FLAGS:
        if name not in (*OF_RESULT, "input", "query", "model"):
            continue
        before, now = record.options.get(name, DEFAULTS[name]), run.options.recorded().get(name)
        now = DEFAULTS[name] if now is None else now
        if _plain(before) != _plain(now):
            had = ",".join(before) if isinstance(before, list) and before else before
            found.append(f"--{name} (there {had if had not in (None, ()) else 'the default'})")
    return found


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
