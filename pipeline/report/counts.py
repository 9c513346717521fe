"""Reads the reports of a run's parts: counts by file, rejected records, speed, slow parts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from bert_embed.pipeline.report.sample import spread
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import open_raw
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import REJECTED, OutputFolder, parse_name
from bert_embed.transforms.records.report import BlockReport, read_report

_MOST_REPORTS = 1000
_MOST_GROUPS = 40  # of files that the page lists
_MOST_REJECTED_FILES = 32
_HEAD = 256 << 10  # bytes of a file of rejected records that are read
_PLACES = 5  # of each reason
_EXCERPT = 300  # letters of a rejected record
_SLOWEST = 8
_MOST_BINS = 60
_MOST_NAMED = 3  # files of a group


@dataclass(frozen=True)
class Reports:
    """Reports of a run's parts."""

    # Those that were read, in order, each with the time at which it was written
    read: list[tuple[float, BlockReport]]
    parts: int  # how many there are


def read_reports(folder: OutputFolder, run: str) -> Reports:
    """Reads the reports of a run, or evenly spread ones if there are very many."""
    times = folder.report_times()
    parts = sorted(times)
    chosen = [parts[at] for at in spread(len(parts), _MOST_REPORTS)]

    def read(part: tuple[int, int]) -> BlockReport | None:
        return read_report(folder, *part, run)

    reports = zip(chosen, in_parallel(read, chosen), strict=True)
    return Reports(
        [(times[part], report) for part, report in reports if report is not None], len(parts)
    )


def counts_by_file(reports: Reports, paths: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Counts of each file, or of the files that share a block; None where they are too many."""
    if len(reports.read) < reports.parts:
        return None
    blocks: dict[int, set[int]] = {}
    for _, report in reports.read:
        blocks.setdefault(report.block, set()).update(report.covered)
    groups: dict[tuple[int, ...], Counter[str]] = {}
    for _, report in reports.read:
        group = groups.setdefault(tuple(sorted(blocks[report.block])), Counter())
        group["rejected"] += sum(report.rejected.values())
        for name in ("records", "embedded", "skipped", "truncated", "tokens"):
            group[name] += getattr(report, name)
    if len(groups) > _MOST_GROUPS:
        return None
    return [{"files": _named(files, paths), **group} for files, group in sorted(groups.items())]


def _named(files: tuple[int, ...], paths: Sequence[str] | None) -> str:
    if not files:  # read from their start
        return paths[0] if paths is not None and len(paths) == 1 else "files that are read through"
    if paths is None or files[-1] >= len(paths):
        first, last = files[0] + 1, files[-1] + 1
        return f"file {first}" if first == last else f"files {first} to {last}"
    shown = [paths[file] for file in files[:_MOST_NAMED]]
    more = len(files) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more, the last {paths[files[-1]]}" if more else "")


def rejected_records(
    folder: OutputFolder, reports: Reports, reasons: Mapping[str, int], texts: bool
) -> list[dict[str, Any]]:
    """Each reason with its count and the first places; with the records only if `texts`.

    A place has its `source` as `rejected/` has it, and the `id`.
    """
    entries: dict[str, dict[str, Any]] = {
        reason: {"reason": reason, "count": count, "stage": None, "places": []}
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    }
    for name in _telling_files(reports, reasons):
        for row in _head_rows(folder.path_of(name)):
            entry = entries.get(row.get("reason", ""))
            if entry is None or len(entry["places"]) >= _PLACES:
                continue
            entry["stage"] = row["stage"]
            place = {"source": row["source"], "id": row["id"]}
            record = row["record"] if texts else None
            if isinstance(record, str):
                place["text"] = " ".join(record[:_EXCERPT].split())
            entry["places"].append(place)
    return list(entries.values())


def _telling_files(reports: Reports, reasons: Mapping[str, int]) -> Iterator[str]:
    """Files of rejected records in which each reason occurs, as few as may do."""
    wanted = Counter({reason: min(count, _PLACES) for reason, count in reasons.items()})
    opened = 0
    for _, report in reports.read:
        if opened < _MOST_REJECTED_FILES and any(wanted[reason] > 0 for reason in report.rejected):
            wanted.subtract(report.rejected)
            opened += 1
            for name in report.files:
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


def timings(record: RunRecord, reports: Reports) -> dict[str, Any]:
    """When and how fast the run was: totals, by stage, over time, and the slowest parts."""
    slowest = sorted(reports.read, key=lambda report: -sum(report[1].seconds.values()))[:_SLOWEST]
    return {
        "started": record.started,
        "ended": record.ended,
        "elapsed_seconds": record.numbers.elapsed_seconds,
        "documents_per_second": record.numbers.documents_per_second,
        "tokens_per_second": record.numbers.tokens_per_second,
        "stage_seconds": record.numbers.stage_seconds,
        "over_time": _over_time(record, reports),
        "slowest": [
            {
                "block": report.block,
                "part": report.part,
                "files": _named(tuple(sorted(report.covered)), record.input.paths),
                "documents": report.embedded,
                "tokens": report.tokens,
                "seconds": {stage: round(spent, 3) for stage, spent in report.seconds.items()},
            }
            for _, report in slowest
        ],
        "parts_read": len(reports.read),
        "parts": reports.parts,
    }


def _over_time(record: RunRecord, reports: Reports) -> dict[str, Any] | None:
    """Documents and tokens a second, by the times at which the reports were written."""
    ends = [time for time, _ in reports.read]
    if len(ends) < 3:
        return None
    # The record knows whole seconds; what an earlier attempt wrote lies before its start.
    begin = min(datetime.fromisoformat(record.started).timestamp(), min(ends))
    span = max(max(ends) - begin, 0.001)
    bins = min(_MOST_BINS, max(3, len(ends) // 2))
    width = span / bins
    documents, tokens = [0.0] * bins, [0.0] * bins
    share = reports.parts / len(ends)  # of reports that each one read stands for
    for time, report in reports.read:
        at = min(int((time - begin) / width), bins - 1)
        documents[at] += report.embedded * share / width
        tokens[at] += report.tokens * share / width
    return {
        "seconds": round(width, 3),
        "documents": [round(count, 1) for count in documents],
        "tokens": [round(count, 1) for count in tokens],
    }
