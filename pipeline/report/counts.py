"""Reads the block records of a run's parts: counts by file, rejected records, speed, slow parts."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from bert_embed.base.threads import in_parallel
from bert_embed.pipeline.report.sample import Run, spread
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import open_raw
from bert_embed.transforms.ledger import BlockRecord, read_block_record
from bert_embed.transforms.output_folder import REJECTED, OutputFolder, parse_name

_MOST_RECORDS = 1000
_MOST_GROUPS = 40  # of files that the page lists
_MOST_REJECTED_FILES = 32
_HEAD = 256 << 10  # bytes of a file of rejected records that are read
_PLACES = 5  # of each reason
_EXCERPT = 300  # letters of a rejected record
_SLOWEST = 8
_MOST_BINS = 60
_MOST_NAMED = 3  # files of a group


@dataclass(frozen=True)
class PartRecords:
    """Block records of a run's parts."""

    # Those that were read, in order, each with the time at which it was written
    read: list[tuple[float, BlockRecord]]
    parts: int  # how many there are


def read_block_records(folder: OutputFolder, run: str) -> PartRecords:
    """Reads the block records of a run, or evenly spread ones if there are very many."""
    times = folder.recorded_times()
    parts = sorted(times)
    chosen = [parts[at] for at in spread(len(parts), _MOST_RECORDS)]

    def read(part: tuple[int, int]) -> BlockRecord | None:
        return read_block_record(folder, *part, run)

    block_records = zip(chosen, in_parallel(read, chosen), strict=True)
    return PartRecords(
        [
            (times[part], block_record)
            for part, block_record in block_records
            if block_record is not None
        ],
        len(parts),
    )


def counts_by_file(
    block_records: PartRecords, paths: Sequence[str] | None
) -> list[dict[str, Any]] | None:
    """Counts of each file, or of the files that share a block; None where they are too many."""
    if len(block_records.read) < block_records.parts:
        return None
    blocks: dict[int, set[int]] = {}
    for _, block_record in block_records.read:
        blocks.setdefault(block_record.block, set()).update(block_record.covered)
    groups: dict[tuple[int, ...], Counter[str]] = {}
    for _, block_record in block_records.read:
        group = groups.setdefault(tuple(sorted(blocks[block_record.block])), Counter())
        group["rejected"] += sum(block_record.rejected.values())
        for name in ("records", "embedded", "skipped", "truncated", "tokens"):
            group[name] += getattr(block_record, name)
    if len(groups) > _MOST_GROUPS:
        return None
    return [{"files": _named(files, paths), **group} for files, group in sorted(groups.items())]


def counts_by_output(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Counts of each of several runs, in the place of its files; the first of many together."""
    names = ("records", "embedded", "rejected", "skipped", "truncated")
    rows: list[dict[str, Any]] = [
        {"files": run.place, "tokens": run.record.numbers.tokens}
        | {name: getattr(run.record.numbers.counts, name) for name in names}
        for run in runs
    ]
    first = rows[: 1 - _MOST_GROUPS]
    if len(first) < 2:
        return rows
    sums = {name: sum(row[name] for row in first) for name in ("tokens", *names)}
    return [{"files": f"{len(first):,} outputs before these", **sums}, *rows[len(first) :]]


def _named(files: tuple[int, ...], paths: Sequence[str] | None) -> str:
    if not files:  # read from their start
        return paths[0] if paths is not None and len(paths) == 1 else "files that are read through"
    if paths is None or files[-1] >= len(paths):
        first, last = files[0] + 1, files[-1] + 1
        return f"file {first}" if first == last else f"files {first} to {last}"
    shown = [paths[file] for file in files[:_MOST_NAMED]]
    rest = len(files) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more, the last {paths[files[-1]]}" if rest else "")


def rejected_records(
    folder: OutputFolder, block_records: PartRecords, reasons: Mapping[str, int], texts: bool
) -> list[dict[str, Any]]:
    """Each reason, its count and first places, `source` and `id`; records only if `texts`."""
    entries: dict[str, dict[str, Any]] = {
        reason: {"reason": reason, "count": count, "stage": None, "places": []}
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    }
    for name in _telling_files(block_records, reasons):
        for row in _head_rows(folder.path_of(name)):
            entry = entries.get(row.get("reason", ""))
            if entry is None or len(entry["places"]) >= _PLACES:
                continue
            entry["stage"] = row["stage"]
            place = {"source": row["source"], "id": row["id"], "detail": row.get("detail")}
            record = row["record"] if texts else None
            if isinstance(record, str):
                place["text"] = " ".join(record[:_EXCERPT].split())
            entry["places"].append(place)
    return list(entries.values())


def joined_rejected(several: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What `rejected_records` gives of several runs, each reason once."""
    entries: dict[str, dict[str, Any]] = {}
    for entry in itertools.chain.from_iterable(several):
        total = entries.setdefault(entry["reason"], entry | {"count": 0, "places": []})
        total["count"] += entry["count"]
        total["places"] = [*total["places"], *entry["places"]][:_PLACES]
    return sorted(entries.values(), key=lambda entry: -entry["count"])


def _telling_files(block_records: PartRecords, reasons: Mapping[str, int]) -> Iterator[str]:
    """Files of rejected records in which each reason occurs, as few as may do."""
    wanted = Counter({reason: min(count, _PLACES) for reason, count in reasons.items()})
    opened = 0
    for _, block_record in block_records.read:
        if opened < _MOST_REJECTED_FILES and any(
            wanted[reason] > 0 for reason in block_record.rejected
        ):
            wanted.subtract(block_record.rejected)
            opened += 1
            for name in block_record.files:
                parsed = parse_name(name)
                if parsed is not None and parsed.kind == REJECTED:
                    yield name


def _head_rows(path: str) -> Iterator[dict[str, Any]]:
    """The whole lines at the beginning of a file of rejected records."""
    try:
        with open_raw(path) as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        return
    for line in head[: head.rfind(b"\n") + 1].splitlines():
        yield orjson.loads(line)


def timings(record: RunRecord, block_records: PartRecords) -> dict[str, Any]:
    """When and how fast the run was: totals, by stage, over time, and the slowest parts."""
    slowest = sorted(
        block_records.read, key=lambda block_record: -sum(block_record[1].seconds.values())
    )[:_SLOWEST]
    return {
        "started": record.started,
        "ended": record.ended,
        "elapsed_seconds": record.numbers.elapsed_seconds,
        "documents_per_second": record.numbers.documents_per_second,
        "tokens_per_second": record.numbers.tokens_per_second,
        "stage_seconds": record.numbers.stage_seconds,
        "over_time": _over_time(record, block_records),
        "slowest": [
            {
                "block": block_record.block,
                "part": block_record.part,
                "files": _named(tuple(sorted(block_record.covered)), record.input.paths),
                "documents": block_record.embedded,
                "tokens": block_record.tokens,
                "seconds": {
                    stage: round(spent, 3) for stage, spent in block_record.seconds.items()
                },
            }
            for _, block_record in slowest
        ],
        "parts_read": len(block_records.read),
        "parts": block_records.parts,
    }


def _over_time(record: RunRecord, block_records: PartRecords) -> dict[str, Any] | None:
    """Documents and tokens a second, by the times at which the block records were written."""
    ends = [time for time, _ in block_records.read]
    if len(ends) < 3:
        return None
    # The record knows whole seconds; what an earlier attempt wrote lies before its start.
    begin = min(datetime.fromisoformat(record.started).timestamp(), min(ends))
    span = max(max(ends) - begin, 0.001)
    bins = min(_MOST_BINS, max(3, len(ends) // 2))
    width = span / bins
    documents, tokens = [0.0] * bins, [0.0] * bins
    share = block_records.parts / len(ends)  # of records that each one read stands for
    for time, block_record in block_records.read:
        at = min(int((time - begin) / width), bins - 1)
        documents[at] += block_record.embedded * share / width
        tokens[at] += block_record.tokens * share / width
    return {
        "seconds": round(width, 3),
        "documents": [round(count, 1) for count in documents],
        "tokens": [round(count, 1) for count in tokens],
    }
