"""The rows of an output in Parquet, as the examples `load_*.py` put them elsewhere.

Each has its `key`, the document's id or `DOCUMENT#NUMBER` of a window or chunk, then its columns.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

FOLDERS = ("embeddings", "windows", "chunks")
OF_RUN = {"num_tokens", "num_tokens_full", "truncated", "text_hash"}  # columns that are left out
BODY = 16 << 20  # bytes of JSON that a server is sent at a time


def vectors(output: str) -> ds.Scanner:
    """The rows of a complete output of one float32 vector a document, window or chunk."""
    place = Path(output, "run.json")
    run = json.loads(place.read_text("utf-8")) if place.exists() else {}
    settings = run.get("vectors") or {}
    [width, *stack] = settings.get("shape") or [0]
    if run.get("status") != "done" or settings["output_dtype"] != "float32" or not width or stack:
        raise SystemExit(f"{output} is no complete output of float32 vectors, as {place} says")
    kind = next((name for name in FOLDERS if name in run["written"]), None)
    if kind is None and run["written"].keys() - {"deleted"}:
        raise SystemExit(f"{output} holds no vectors of documents, windows or chunks")
    if kind is None:  # nothing is new
        columns = {"id": pa.string(), "embedding": pa.list_(pa.float32(), width)}
        return rows(ds.dataset(pa.schema(columns).empty_table()))
    files = sorted(Path(output, kind).glob("*.parquet"))
    if len(files) != run["written"][kind]["files"]:
        raise SystemExit(f"{output}/{kind} has not the files in Parquet that its run wrote")
    found = ds.dataset(files)
    keys = rows(found, ["id"]).to_table()["key"]
    if twice := len(keys) - pc.count_distinct(keys).as_py():
        raise SystemExit(f"{output} has {twice} rows whose key another one has: ids are equal")
    return rows(found)


def deleted(output: str) -> list[str]:
    """The keys of the rows that an output deletes from those that it continues."""
    files = sorted(Path(output, "deleted").glob("*.parquet"))
    keys = rows(ds.dataset(files)).to_table()["key"].to_pylist() if files else []
    if None in keys:
        raise SystemExit(f"{output} does not say which chunks it deletes: load all outputs anew")
    return keys


def rows(files: ds.Dataset, columns: list[str] | None = None) -> ds.Scanner:
    """The rows of files, with some columns or all that are not about the run."""
    names = files.schema.names
    key = ds.field("id").cast("string")
    for piece in {"window", "chunk"}.intersection(names):
        key = pc.binary_join_element_wise(key, ds.field(piece).cast("string"), "#")
    wanted = columns or [name for name in names if name not in OF_RUN]
    return files.scanner({"key": key, **{name: ds.field(name) for name in wanted}}, batch_size=1024)


def as_json(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Each row as a JSON object, in a line."""
    for batch in batches:
        yield from (json_of(row) + b"\n" for row in batch.to_pylist())


def json_of(row: dict[str, Any]) -> bytes:
    """A row as a JSON object: times and the like as text, NaN and infinity as null."""
    return orjson.dumps(row, default=str)


def bodies(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cuts lines into bodies of some 16 MiB: of larger ones servers refuse the whole."""
    body: list[bytes] = []
    size = 0
    for line in lines:
        if body and size + len(line) > BODY:
            yield body
            body, size = [], 0
        body.append(line)
        size += len(line)
    if body:
        yield body
