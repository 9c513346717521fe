"""Writes arrays of vectors: a faiss index, flat or an inverted file, or npy files; ids beside."""

import importlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from bert_embed.base.environment import requires
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import (
    JOURNAL,
    alone_in,
    earlier_export,
    rows_of_files,
    write_files,
    write_journal,
    write_parquet,
)
from bert_embed.pipeline.export.source import ExportSource
from bert_embed.results.files import Rows
from bert_embed.results.names import stored_type
from bert_embed.storage.files import (
    copy_file,
    join,
    names_in,
    open_raw,
    remove,
    size_of,
    sweep_temporary,
    sync_folder,
    write_whole,
)

_FAISS_FILES = "knn.index", "ids.parquet"
_NEXT = ".next-"  # begins the names of those that will take their places
_FLAT_ROWS = 100_000  # up to which `auto` compares a query with all vectors: some milliseconds
_PROBES = 32  # lists that a search looks into, unless its reader sets another number
_PER_LIST = 40  # vectors of the sample for each centroid; faiss asks for 39 to 256
_SAMPLE_MEGABYTES = 512
_SEED = 20
_KEPT_ROWS = 1 << 16  # of an earlier index that are copied at a time
_METRICS = {
    "cosine": "METRIC_INNER_PRODUCT",
    "dot": "METRIC_INNER_PRODUCT",
    "euclidean": "METRIC_L2",
    "manhattan": "METRIC_L1",
}


class _Index:
    """An index that is filled in one pass, after one that samples the vectors to train it on."""

    def __init__(self, source: ExportSource) -> None:
        with requires("--to faiss", "faiss-cpu"):
            self._faiss: Any = importlib.import_module("faiss")
        self._source = source
        self._binary = source.dtype == "ubinary"

    def write(self, paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
        """Writes both files."""
        index = self._trained()

        def tables() -> Iterator[pa.Table]:
            for batch in batches:
                index.add(self._vectors(batch))
                yield batch.columns

        self._write(paths, index, tables(), self._source.schema)

    def _write(
        self, paths: Sequence[str], index: Any, tables: Iterable[pa.Table], schema: pa.Schema
    ) -> None:
        path, ids = paths
        write_whole(ids, lambda out: write_parquet(out, tables, schema))
        write = self._faiss.write_index_binary if self._binary else self._faiss.write_index
        write_whole(path, lambda out: write(index, self._faiss.PyCallbackIOWriter(out.write)))

    def extend(self, dest: str, place: str) -> tuple[int, int]:
        """Writes both files anew beside those of earlier outputs.

        Returns how many rows they have, and how many were removed.

        `place` begins their paths. Documents that the source has, or deletes, are removed before
        its rows are added.
        """
        path, ids_path = (join(dest, name) for name in _FAISS_FILES)
        with open_raw(ids_path) as file:
            table = pq.read_table(file)
        new, held = ({one.name: one.type for one in s} for s in (self._source.schema, table.schema))
        if self._source.rows and new != held:
            raise UsageError(
                f"{dest} has the columns {', '.join(held)}, but {self._source.place} has "
                f"{', '.join(new)}, or their types differ: export into another DEST"
            )
        with open_raw(path) as file:
            reader = self._faiss.PyCallbackIOReader(file.read)
            read = self._faiss.read_index_binary if self._binary else self._faiss.read_index
            old = read(reader)
        clone = self._faiss.clone_binary_index if self._binary else self._faiss.clone_index
        index = clone(old)
        index.reset()  # what it was trained to stays
        added = [batch.columns for batch in self._source.batches()]
        changed = (*added, *self._source.deleted())
        ids = {str(name) for rows in changed for name in rows["id"].to_pylist()}
        stays = np.array([str(name) not in ids for name in table["id"].to_pylist()], bool)
        for start in range(0, len(stays), _KEPT_ROWS):
            rows = stays[start : start + _KEPT_ROWS]
            index.add(old.reconstruct_n(start, len(rows))[rows])
        for batch in self._source.batches():
            index.add(self._vectors(batch))
        tables = [
            table.filter(pa.array(stays)),
            *(rows.select(table.column_names) for rows in added),
        ]
        self._write([place + name for name in _FAISS_FILES], index, tables, table.schema)
        return int(index.ntotal), int((~stays).sum())

    def _trained(self) -> Any:
        """An empty index; its centroids are the same every time on the same kind of machine."""
        lists = _number_of_lists(self._source)
        kind = f"IVF{lists},Flat" if lists else "Flat"
        if self._binary:
            width = 8 * self._source.numbers_width
            index = self._faiss.index_binary_factory(width, f"B{kind}")
        else:
            metric = getattr(self._faiss, _METRICS[self._source.similarity])
            index = self._faiss.index_factory(self._source.width, kind, metric)
        if lists:
            index.train(self._sample(lists * _PER_LIST / self._source.rows))
            index.nprobe = min(_PROBES, lists)
        return index

    def _sample(self, share: float) -> np.ndarray:
        chances = np.random.default_rng(_SEED)
        batches = self._source.batches()
        return np.concatenate(
            [self._vectors(batch)[chances.random(len(batch)) < share] for batch in batches]
        )

    def _vectors(self, batch: Rows) -> np.ndarray:
        """What the index holds: float32, of unit length for cosines, or the packed bits."""
        if self._binary:
            return self._source.numbers(batch)
        vectors = np.array(batch.vectors, np.float32, order="C")
        if self._source.similarity == "cosine":
            self._faiss.normalize_L2(vectors)
        return vectors


def _check_memory(source: ExportSource) -> None:
    number_bytes = 1 if source.dtype == "ubinary" else 4
    size = source.rows * number_bytes * source.numbers_width
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise UsageError(
            f"--to faiss fills the index in memory: it takes {size >> 30:,} GiB, this machine has "
            f"{memory >> 30:,}; export with --to npy, which autofaiss indexes on disk"
        )


def _number_of_lists(source: ExportSource) -> int:
    """How many lists an inverted file has; 0 for a flat index."""
    asked = source.options.index
    if source.similarity == "manhattan" and source.dtype != "ubinary":  # has no inverted file
        if asked not in ("auto", "flat"):
            raise UsageError(
                f"--index {asked} knows no manhattan distance, by which the model of "
                f"{source.place} compares vectors: choose flat"
            )
        return 0
    if asked == "flat" or (asked == "auto" and source.rows <= _FLAT_ROWS):
        return 0
    most = (_SAMPLE_MEGABYTES << 20) // (4 * source.width * _PER_LIST)
    return max(1, min(4 * math.isqrt(source.rows), most, source.rows // _PER_LIST))


def faiss(source: ExportSource) -> str:
    """Exports to a faiss index; returns what to say."""
    index, dest = _Index(source), source.options.dest
    _check_memory(source)
    with alone_in(dest):
        return _export(source, index)


def _export(source: ExportSource, index: _Index) -> str:
    present, dest = earlier_export(source), source.options.dest
    if present is not None:  # the journal may name an increment that was killed before its end
        _take_places(dest, present["run"])
        # Others that were killed left what no journal will name.
        remove([join(dest, name) for name in names_in(dest) if name.startswith(_NEXT)])
        sweep_temporary(dest)
    if present is None or present == source.identity:
        if source.rows == 0:
            raise UsageError(
                f"{source.place} holds no vectors to export, and {dest} no index that it "
                "continues: export it with the outputs that it continues"
            )
        return source.said(
            write_files(source, max(source.rows, 1), lambda *_: _FAISS_FILES, index.write)
        )
    if source.is_in(present):
        return source.said(False)
    if missing := [name for name in _FAISS_FILES if size_of(join(dest, name)) is None]:
        raise UsageError(f"{dest} lacks {missing[0]}: repeat the export of the earlier outputs")
    new = source.only_new(present)
    runs = " ".join([present["run"], new.identity["run"]])
    rows, removed = _Index(new).extend(dest, _next(dest, runs))
    write_journal(source, join(dest, JOURNAL), {**source.identity, "rows": rows, "run": runs})
    _take_places(dest, runs)
    return f"{replace(new, rows=rows).said(True)}: {new.rows:,} added, {removed:,} removed"


def _next(dest: str, runs: str) -> str:
    """Begins the path of a file that is whole, until it takes the place of another.

    Others of a killed export stay apart: only the journal's `runs` may take their places.
    """
    return join(dest, f"{_NEXT}{xxh3_64_hexdigest(runs.encode())}-")


def _take_places(dest: str, runs: str) -> None:
    """Ends an increment: its files take their places, of which a kill may have left some."""
    for name in _FAISS_FILES:
        path = _next(dest, runs) + name
        if size_of(path) is not None:
            copy_file(path, join(dest, name))
            sync_folder(dest)
            remove([path])


_MEGABYTES = 128  # of a file of vectors


def npy(source: ExportSource) -> str:
    """Exports as clip-retrieval and autofaiss read it; returns what to say."""
    rows = rows_of_files(source.width, _MEGABYTES)
    return source.said(write_files(source, rows, _npy_names, partial(_write_npy, source)))


def _npy_names(number: int, count: int) -> tuple[str, ...]:
    """The two files; numbers have as many digits as keeps names in their order."""
    digits = max(4, len(str(count - 1)))
    return f"emb_{number:0{digits}d}.npy", f"metadata_{number:0{digits}d}.parquet"


def _write_npy(
    source: ExportSource, paths: Sequence[str], rows: int, batches: Iterator[Rows]
) -> None:
    vectors, columns = paths
    header = {
        "descr": np.lib.format.dtype_to_descr(stored_type(source.dtype)),
        "fortran_order": False,
        "shape": (rows, source.numbers_width),
    }

    def tables(file: BinaryIO) -> Iterator[pa.Table]:
        for batch in batches:
            file.write(source.numbers(batch).tobytes())
            yield batch.columns

    def write_both(file: BinaryIO) -> None:
        np.lib.format.write_array_header_1_0(file, header)
        write_whole(columns, lambda out: write_parquet(out, tables(file), source.schema))

    write_whole(vectors, write_both)
