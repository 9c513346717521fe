"""Gathers what a report shows of a finished run, as values of JSON."""

import datetime
import math
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from bert_embed.base.arrays import unit
from bert_embed.base.json import to_json
from bert_embed.base.threads import in_parallel
from bert_embed.pipeline.console import hide_in, hide_in_flags
from bert_embed.pipeline.options.command_line import as_words
from bert_embed.pipeline.report.sample import (
    Run,
    Sample,
    lacks_tsne,
    main_directions,
    projections,
    spread,
    take_sample,
)
from bert_embed.pipeline.report.vectors import clusters, describe, health, usable_rows
from bert_embed.pipeline.run.summary import advice
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import is_remote, open_raw
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.output_folder import REJECTED, OutputFolder

Texts = Callable[[Sample], Sequence[str | None] | None]
_MOST_CATEGORIES = 10  # as many as there are colours that can be told apart
_LETTERS = 60  # of a value
_1970 = datetime.date(1970, 1, 1).toordinal()
_NEIGHBOURS, _ASKED = 3, 10
_LONGEST_COMMAND = 10_000  # letters
_MOST_COLUMNS = 8
_SETTINGS = (
    *("granularity", "shape", "token_shape", "precision", "output_dtype", "normalize", "pooling"),
    *("layers", "max_seq_length", "long_text", "chunk", "prompt", "vectors", "top_k"),
    "chunk_context",
)


def report_content(
    run: Run, projection: str | None = None, texts_of: Texts | None = None
) -> dict[str, Any]:
    """The content of a report, equal for equal runs but for `ended`.

    `projection` is one of `PROJECTIONS`; with None it is t-SNE where that is installed, and quick.
    `texts_of` finds the texts of a sample; with None no texts are shown.
    """
    record = run.record
    result = to_json(record.numbers)
    rejected = record.numbers.rejected
    content: dict[str, Any] = {
        "run": _run(record, run.folder.path),
        "counts": result["counts"],
        "written": result["written"],
        "changes": result.get("changes"),
        "skipped_files": record.input.skipped_files,
        "rejected": rejected_records(run.folder, record.run, rejected, texts_of is not None),
        "unfit": record.numbers.unfit,
        "cut_contexts": record.numbers.cut_contexts,
        "lengths": result["lengths"],
        "tokens": {name: result[name] for name in ("tokens", "full_tokens", "cut_share")},
        "unknown": result["unknown"],
        "foreign_texts": record.numbers.foreign_texts,
        "refused": record.error,
        "ended": record.ended,
        "advice": advice(record),
        "full_lengths": None,
        "vectors": None,
        "documents": None,
    }
    sample = take_sample(run)
    if sample is not None and len(sample):
        texts = None if texts_of is None else texts_of(sample)
        content |= _of_vectors(sample, texts, record, projection)
    return content


def _run(record: RunRecord, place: str) -> dict[str, Any]:
    settings = record.settings
    return {
        "name": os.path.basename(place.rstrip("/")),
        "output": place,
        "kind": record.kind,
        "fingerprint": record.run,
        "model": to_json(record.model),
        "settings": {name: settings[name] for name in _SETTINGS if name in settings},
        "engine": record.engine,
        "format": record.files.format,
        "tables": list(record.table.tables.values()) if record.table else [],
        "versions": record.versions,
        "command": _command(record.kind, record.options),
    }


def _command(kind: str, options: Mapping[str, Any]) -> str:
    """The command of a run, without its secrets."""
    words = ["bert-embed", "embed" if kind == "vectors" else "tokenize"]
    for name, value in hide_in(options).items():
        if name not in ("beam_args", "overwrite") and (name, value) != ("output_format", kind):
            words += as_words(name, value)
    line = shlex.join(hide_in_flags([*words, *options.get("beam_args", ())]))
    return line if len(line) <= _LONGEST_COMMAND else line[:_LONGEST_COMMAND] + " …"


def _of_vectors(
    sample: Sample, texts: Sequence[str | None] | None, record: RunRecord, projection: str | None
) -> dict[str, Any]:
    usable = usable_rows(sample.vectors)
    content: dict[str, Any] = {
        "vectors": health(sample.vectors, sample.repeated),
        "full_lengths": _full_lengths(sample),
        "sampled": {"rows": len(sample), "total": sample.total},
        "documents": _documents(sample, texts, usable),
        "neighbours": _neighbours(sample, usable),
    }
    directions = main_directions(sample.vectors[usable])
    if directions is not None:
        of = clusters(directions)
        usable_texts = None if texts is None else [texts[at] for at in usable.tolist()]
        content["clusters"] = describe(directions, of, usable_texts)
        maps = projections(directions, projection)
        content["map"] = {
            "cluster": of.tolist(),
            "projections": maps,
            "lacks_tsne": lacks_tsne(),
        }
    return content


def _full_lengths(sample: Sample) -> dict[str, Any] | None:
    """How long the sampled documents are if nothing is cut; None for pieces of documents."""
    if sample.full_lengths is None:
        return None
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    lengths = np.quantile(sample.full_lengths, list(names.values()), method="higher")
    return dict(zip(names, lengths.tolist(), strict=True))


def _documents(
    sample: Sample, texts: Sequence[str | None] | None, usable: np.ndarray
) -> dict[str, Any]:
    rows = usable.tolist()
    places = None
    if sample.starts is not None and sample.stops is not None:
        places = [f"{sample.starts[at]}:{sample.stops[at]}" for at in rows]
    extra = {name: [values[at] for at in rows] for name, values in sample.extra.items()}
    return {
        "ids": _without_folder([str(sample.ids[at]) for at in rows]),
        "places": places,
        "texts": None if texts is None else [" ".join((texts[at] or "").split()) for at in rows],
        "columns": [_column(name, extra[name]) for name in list(extra)[:_MOST_COLUMNS]],
    }


def _without_folder(ids: list[str]) -> list[str]:
    """The ids without the folder that all of them begin with, as ids made of paths do.

    >>> _without_folder(["/data/a/1.txt:0", "/data/b.txt:7"]), _without_folder(["a/1", "a/2"])
    (['a/1.txt:0', 'b.txt:7'], ['a/1', 'a/2'])
    """
    if not ids or not (ids[0].startswith("/") or "://" in ids[0]):
        return ids
    folder = ids[0].rpartition("/")[0]
    while folder and not all(name.startswith(f"{folder}/") for name in ids):
        folder = folder.rpartition("/")[0]
    return [name.removeprefix(f"{folder}/") for name in ids] if folder else ids


def _neighbours(sample: Sample, usable: np.ndarray) -> list[dict[str, Any]]:
    """Ten documents and the nearest of others; `equal` counts equal vectors.

    One is drawn, the same every time, from each tenth of the rows: evenly spaced ones meet the
    period of a corpus that repeats itself.
    """
    vectors = sample.vectors[usable]
    scaled = unit(vectors)
    numbers: dict[Any, int] = {}
    ids = np.array([numbers.setdefault(sample.ids[at], at) for at in usable.tolist()])
    neighbours = []
    for row in _drawn(ids):
        scores = scaled @ scaled[row]
        scores[ids == ids[row]] = -np.inf
        equal = (vectors == vectors[row]).all(axis=1) & np.isfinite(scores)
        scores[equal] = -np.inf
        hits: list[int] = []
        for at in np.argsort(-scores, kind="stable").tolist():
            if len(hits) == _NEIGHBOURS or not np.isfinite(scores[at]):
                break
            if not any(np.array_equal(vectors[at], vectors[hit]) for hit in hits):
                hits.append(at)
        near = [[at, round(float(scores[at]), 4)] for at in hits]
        if near:
            neighbours.append({"row": row, "near": near, "equal": int(equal.sum())})
    return neighbours


def _drawn(ids: np.ndarray) -> list[int]:
    """Rows of up to ten different documents."""
    draw = np.random.default_rng(0)
    tenths = np.array_split(np.arange(len(ids)), _ASKED)
    rows = [int(draw.choice(tenth)) for tenth in tenths if len(tenth)]
    return sorted({int(ids[row]): row for row in rows}.values())


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A column as the page takes it.

    Its `kind` is `category` (few different values: their `labels`, and the number of a label a
    row), `number` (a number or null a row), `date` (days since 1970) or `text`.

    >>> _column("lang", ["en", "de", "en", None])["labels"], _column("year", [1, 2.5, 3])["values"]
    (['en', 'de', '(none)'], [1, 2.5, 3])
    """
    plain = [_shown(value) for value in values]
    counts = Counter(plain)
    numeric = all(value is None or isinstance(value, int | float) for value in values)
    numeric &= not any(isinstance(value, bool) for value in values)
    if len(counts) <= _MOST_CATEGORIES and not (numeric and len(counts) > 2):
        labels = sorted(counts, key=lambda label: -counts[label])
        number = {label: at for at, label in enumerate(labels)}
        return {
            "name": name,
            "kind": "category",
            "labels": labels,
            "values": [number[label] for label in plain],
        }
    if all(value is None or isinstance(value, datetime.date) for value in values):
        return {"name": name, "kind": "date", "values": [_days(value) for value in values]}
    if numeric:
        return {"name": name, "kind": "number", "values": [_number(value) for value in values]}
    return {"name": name, "kind": "text", "values": plain}


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))[:_LETTERS]
    return " ".join(str(value)[: 4 * _LETTERS].split())[:_LETTERS]


def _days(value: datetime.date | None) -> float | None:
    if value is None:
        return None
    days = float(value.toordinal() - _1970)
    if isinstance(value, datetime.datetime):
        days += (value.hour + value.minute / 60) / 24
    return round(days, 3)


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


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
