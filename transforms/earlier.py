"""EarlierOutput: what another run has written, and the keys of its documents, file by file."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import orjson
import pyarrow as pa

from bert.result_files import FILE_STEMS
from transforms.earlier_table import TABLE_PIECE, table_columns
from transforms.files import join, open_raw, sizes_in
from transforms.keys import EarlierKeys, id_hashes

_ROWS = 1 << 16  # read at a time
_KEY_COLUMNS = ["id", "text_hash"]


@dataclass(frozen=True)
class EarlierOutput:
    """An output whose documents need not be embedded again.

    Attributes:
        number: Its place among those that were named, from 0.
        place: Folder, or `project.dataset.table`.
        files: Which files tell its documents, as a pattern of names; None for a table.
        digest: Of its listing, when the command line saw it.
        documents: How many rows it has, about.
        complete: Whether its run has ended well.
        run: Fingerprint of its run, None where that is not known.
    """

    number: int
    place: str
    files: str | None
    digest: str
    documents: int
    complete: bool = True
    run: str | None = None


@dataclass(frozen=True)
class EarlierFile:
    """One file of an earlier output, or some rows of a table.

    Attributes:
        output: Number of the output.
        number: Number of the file in it.
        folder: The output's folder, or the table.
        path: The file; None for rows of a table.
        start: First row of a table's.
        stop: The row after the last, None for the table's end.
    """

    output: int
    number: int
    folder: str
    path: str | None
    start: int = 0
    stop: int | None = None


def key_files(folder: str) -> tuple[str | None, dict[str, int]]:
    """Which files of a run's folder tell its documents, and how large each of them is.

    Any kind of vectors has a row for each document; the smallest kind is taken. JSON lines of
    tokens alone do not tell the hash of the text.

    Returns:
        A pattern of names, None if there are no such files; and the files' sizes by name.
    """
    sizes = sizes_in(folder)
    for kind in ("sentence", "word", "span", "token"):
        for suffix in ("parquet", "jsonl"):
            pattern = rf"{FILE_STEMS[kind]}-\d{{7,}}-\d{{5,}}\.{suffix}"
            found = {name: size for name, size in sizes.items() if re.fullmatch(pattern, name)}
            if found and (kind, suffix) != ("token", "jsonl"):
                return pattern, dict(sorted(found.items()))
    return None, {}


def sizes_digest(sizes: dict[str, int]) -> str:
    """A hash of names and sizes; not of times, so that a copy of an output is the same output."""
    return hashlib.sha256(repr(sorted(sizes.items())).encode()).hexdigest()


def earlier_files(output: EarlierOutput) -> list[EarlierFile]:
    """The files of an output, listed again.

    Raises:
        ValueError: They are no longer those that the command line saw.
    """
    if output.files is None:
        starts = list(range(0, max(output.documents, 1), TABLE_PIECE))
        stops = [*starts[1:], None]  # the last takes what was streamed in and is not counted yet
        return [
            EarlierFile(output.number, number, output.place, None, start, stop)
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
        ]
    sizes = {
        name: size
        for name, size in sizes_in(output.place).items()
        if re.fullmatch(output.files, name)
    }
    if sizes_digest(sizes) != output.digest:
        raise ValueError(
            f"--skip_existing {output.place} changed while the job was being started; run it again"
        )
    return [
        EarlierFile(output.number, number, output.place, join(output.place, name))
        for number, name in enumerate(sorted(sizes))
    ]


def earlier_keys(file: EarlierFile) -> Iterator[EarlierKeys]:
    """The keys of a file, some rows at a time; windows of a document next to each other are one."""
    for ids, text_hash in id_columns(file):
        hashes = id_hashes(ids)
        again = (hashes[1:] == hashes[:-1]) & (text_hash[1:] == text_hash[:-1])
        first = np.append(True, ~again)[: len(hashes)]
        output = np.full(len(hashes), file.output, np.int32)
        number = np.full(len(hashes), file.number, np.int32)
        yield EarlierKeys(hashes, text_hash, output, number).take(first)


def ids_among(file: EarlierFile, wanted: np.ndarray) -> list[str]:
    """The ids in a file, each once and in its order, whose hashes, uint64 `[ids]`, are wanted."""
    found: dict[str, None] = {}
    for ids, _ in id_columns(file):
        rows = np.flatnonzero(np.isin(id_hashes(ids), wanted))
        found.update(dict.fromkeys(ids.take(pa.array(rows)).to_pylist()))
    return list(found)


def id_columns(file: EarlierFile) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    """Ids, Arrow strings, and int64 hashes of the texts, some rows at a time.

    Raises:
        ValueError: The file is damaged.
    """
    if file.path is None:
        yield from table_columns(file.folder, file.start, file.stop)
        return
    read = _parquet_columns if PurePosixPath(file.path).suffix == ".parquet" else _line_columns
    try:
        yield from read(file.path)
    except (pa.ArrowException, KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise ValueError(
            f"--skip_existing: {file.path} is damaged; remove it and its documents are embedded "
            "again"
        ) from error


def _parquet_columns(path: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    import pyarrow.parquet as pq

    with open_raw(path) as raw, pq.ParquetFile(raw) as file:
        for batch in file.iter_batches(_ROWS, columns=_KEY_COLUMNS):
            yield batch["id"].cast(pa.string()), batch["text_hash"].to_numpy()


def _line_columns(path: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    ids: list[str] = []
    hashes: list[int] = []
    with open_raw(path) as file:
        for line in file:
            row = orjson.loads(line)
            ids.append(row["id"])
            hashes.append(row["text_hash"])
            if len(ids) == _ROWS:
                yield pa.array(ids, pa.string()), np.array(hashes, np.int64)
                ids, hashes = [], []
    yield pa.array(ids, pa.string()), np.array(hashes, np.int64)
