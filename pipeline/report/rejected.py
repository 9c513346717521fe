"""Reads the rejected records of a run, each reason with its first places."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from bert_embed.base.threads import in_parallel
from bert_embed.pipeline.report.sample import spread
from bert_embed.storage.files import is_remote, open_raw
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.output_folder import REJECTED, OutputFolder

_MOST_RECORDS = 1000
_MOST_REJECTED_FILES = 32
_HEAD = 256 << 10  # bytes of a file of rejected records that are read
_PLACES = 5  # of each reason
_EXCERPT = 300  # letters of a rejected record
_MOST_COUNTED = 128 << 20  # bytes of a file in which lines are counted
_LOOKED_AT = 1 << 12
_MARK = b"\xef\xbb\xbf"


def rejected_records(
    folder: OutputFolder, run: str, reasons: Mapping[str, int], texts: bool
) -> list[dict[str, Any]]:
    """Each reason, its count and first places, `source` and `id`; records only if `texts`."""
    entries: dict[str, dict[str, Any]] = {
        reason: {"reason": reason, "count": count, "places": []}
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])
    }
    parts = sorted(folder.recorded_parts()) if reasons else []
    some = [parts[at] for at in spread(len(parts), _MOST_RECORDS)]
    opened = 0
    for written in in_parallel(lambda part: read_block_record(folder, *part, run), some):
        lacking = {name for name, entry in entries.items() if len(entry["places"]) < _PLACES}
        if opened == _MOST_REJECTED_FILES or not lacking:
            break
        if written is None or not lacking & written.rejected.keys():
            continue
        opened += 1
        names = [name for name in written.files if name.startswith(f"{REJECTED}/")]
        for row in (row for name in names for row in _head_rows(folder.path_of(name))):
            entry = entries.get(row.get("reason", ""))
            if entry is None or len(entry["places"]) >= _PLACES:
                continue
            source = _in_lines(row["source"])
            place = {"source": source, "id": row["id"], "detail": row.get("detail")}
            record = row["record"] if texts else None
            if isinstance(record, str):
                place["text"] = " ".join(record[:_EXCERPT].split())
            entry["places"].append(place)
    return list(entries.values())


def _in_lines(source: str) -> str:
    """A place with the number of its line, as an editor counts, where it is in a local text file.

    >>> _in_lines("gs://a/b.csv:7")
    'gs://a/b.csv:7'
    """
    path, _, offset = source.rpartition(":")
    if is_remote(path) or not offset.isdigit() or int(offset) > _MOST_COUNTED:
        return source
    try:
        with open_raw(path) as file:
            is_text = b"\0" not in file.read(_LOOKED_AT)
            file.seek(0)
            before = file.read(int(offset))
    except OSError:  # gone, perhaps
        return source
    # Offsets in compressed files are in their text, and those of Parquet are rows.
    at_line = before.endswith(b"\n") or before in (b"", _MARK)
    if not (is_text and at_line and len(before) == int(offset)):
        return source
    return f"{path}, line {before.count(10) + 1:,}"


def _head_rows(path: str) -> Iterator[dict[str, Any]]:
    """The whole lines at the beginning of a file of rejected records."""
    try:
        with open_raw(path) as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        return
    for line in head[: head.rfind(b"\n") + 1].splitlines():
        yield orjson.loads(line)
