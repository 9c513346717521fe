"""Writes arrays of vectors: a faiss index, flat or an inverted file, or npy files; ids beside."""

import importlib
import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from bert_embed.base.environment import requires
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import rows_of_files, write_files, write_parquet
from bert_embed.pipeline.export.source import ExportSource
from bert_embed.results.files import Rows
from bert_embed.results.names import stored_type
from bert_embed.storage.files import write_whole

_FAISS_FILES = "knn.index", "ids.parquet"
_FLAT_ROWS = 100_000  # up to which `auto` compares a query with all vectors: some milliseconds
_PROBES = 32  # lists that a search looks into, unless its reader sets another number
_PER_LIST = 40  # vectors of the sample for each centroid; faiss asks for 39 to 256
_SAMPLE_MEGABYTES = 512
_SEED = 20
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
        path, ids = paths
        index = self._trained()

        def tables() -> Iterator[pa.Table]:
            for batch in batches:
                index.add(self._vectors(batch))
                yield batch.columns

        write_whole(ids, lambda out: write_parquet(out, tables(), self._source.schema))
        write = self._faiss.write_index_binary if self._binary else self._faiss.write_index
        write_whole(path, lambda out: write(index, self._faiss.PyCallbackIOWriter(out.write)))

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
    index = _Index(source)
    _check_memory(source)
    return source.said(
        write_files(source, max(source.rows, 1), lambda *_: _FAISS_FILES, index.write)
    )


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
