"""Builds `knn.index`, a faiss index, with its facts and the ids of its rows.

Few vectors get a flat index. More get an inverted file: its centroids are trained on a sample, and
lists that outgrow memory are merged on disk, into `knn.ivfdata`.
"""

import ctypes
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.encode import numbers, numbers_width, unit_length, write_parquet
from bert_embed.pipeline.export.extras import required
from bert_embed.pipeline.export.journal import (
    JOURNAL,
    Progress,
    claim,
    entries,
    prepare_folders,
    write_progress,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.storage.files import join, write_bytes, write_whole

FLAT_ROWS = 100_000  # up to which `auto` compares a query with all vectors: some milliseconds
_PROBES = 32  # lists that a search looks into, unless its reader sets another number
_PER_LIST = 40  # vectors of the sample for each centroid; faiss asks for 39 to 256
_SAMPLE_MEGABYTES = 512
_INDEX, _LISTS, _IDS, _INFOS = "knn.index", "knn.ivfdata", "ids.parquet", "index_infos.json"
_WORK = "_unfinished"


class FaissExport:
    """Fills an index in one pass, after one that samples the vectors to train it on.

    Attributes:
        faiss: The library.
        lists: How many lists an inverted file has; 0 for a flat index.
        memory: MiB that its vectors take before they are written as a part.
    """

    def __init__(self, source: Source) -> None:
        self.faiss = required("faiss", source.options)
        self.memory = source.options.memory
        self._source, self._dest = source, source.options.dest
        self._binary = source.dtype == "ubinary"
        self.lists = _number_of_lists(source)
        self._work = join(self._dest, _WORK)

    def run(self) -> bool:
        """Writes all files, the index last; returns whether its lists are in a file beside it."""
        shutil.rmtree(self._work, ignore_errors=True)  # of an export that was killed
        os.makedirs(self._work)
        filler = _Filler(self, self._trained())
        ids = join(self._dest, _IDS)
        tables = filler.fill()
        write_whole(ids, lambda out: write_parquet(out, tables, self._source.schema))
        index = filler.finished()
        infos = self._infos(index)
        path = join(self._work, _INDEX)
        self.write(index, path)
        if filler.parts:
            os.replace(join(self._work, _LISTS), join(self._dest, _LISTS))
        infos["size in bytes"] = os.path.getsize(path)
        write_bytes(join(self._dest, _INFOS), orjson.dumps(infos, option=orjson.OPT_INDENT_2))
        os.replace(path, join(self._dest, _INDEX))
        shutil.rmtree(self._work)
        return bool(filler.parts)

    def vectors(self, batch: Rows) -> np.ndarray:
        """What the index holds: float32 of unit length, or the packed bits."""
        if self._binary:
            return numbers(batch, self._source.dtype)
        return np.ascontiguousarray(unit_length(batch.vectors))

    def batches(self) -> Iterator[Rows]:
        """All rows."""
        return (batch for batch, _ in self._source.batches())

    def bits_or_numbers(self) -> int:
        """Width of the index; packed bits have whole bytes."""
        return 8 * self.bytes_of_row() if self._binary else self._source.width

    def bytes_of_row(self) -> int:
        """Bytes of a vector in the index."""
        stored = numbers_width(self._source.dtype, self._source.width)
        return stored if self._binary else 4 * stored

    def write(self, index: Any, path: str) -> None:
        """Writes an index."""
        write = self.faiss.write_index_binary if self._binary else self.faiss.write_index
        write(index, path)

    def read(self, path: str, flags: int = 0) -> Any:
        """Reads an index."""
        read = self.faiss.read_index_binary if self._binary else self.faiss.read_index
        return read(path, flags)

    def work_path(self, name: str) -> str:
        """Path of an unfinished file."""
        return join(self._work, name)

    def _trained(self) -> Any:
        """An empty index; its centroids are the same every time on the same kind of machine."""
        faiss, width = self.faiss, self.bits_or_numbers()
        if self._binary:
            if self.lists == 0:
                return faiss.IndexBinaryFlat(width)
            index = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(width), width, self.lists)
        else:
            factory = f"IVF{self.lists},Flat" if self.lists else "Flat"
            index = faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
        if self.lists:
            sample = self._source.sampled(self.lists * _PER_LIST)
            index.train(np.concatenate([self.vectors(batch) for batch in sample]))
            index.nprobe = min(_PROBES, self.lists)
        return index

    def _infos(self, index: Any) -> dict[str, Any]:
        kind = f"IVF{self.lists},Flat" if self.lists else "Flat"
        metric = "inner product of vectors of length 1, which is their cosine"
        return {
            "index_key": f"B{kind}" if self._binary else kind,
            "index_param": f"nprobe={index.nprobe}" if self.lists else "",
            "index_path": _INDEX,
            "nb vectors": index.ntotal,
            "vectors dimension": self.bits_or_numbers(),
            "metric": "Hamming distance" if self._binary else metric,
            "ids": _IDS,
        }


class _Filler:
    """Adds vectors; what outgrows memory is written as a part, to be merged on disk at the end.

    Attributes:
        parts: Paths of the parts.
    """

    def __init__(self, export: FaissExport, empty: Any) -> None:
        self._export = export
        self._empty = export.work_path("empty")
        export.write(empty, self._empty)
        self._index = empty
        self._most = max(1, (export.memory << 20) // export.bytes_of_row())
        self.parts: list[str] = []

    def fill(self) -> Iterator[pa.Table]:
        """Adds all rows; yields their columns in the order of their numbers in the index."""
        first = 0
        for batch in self._export.batches():
            vectors = self._export.vectors(batch)
            if self._export.lists:
                rows = np.arange(first, first + len(batch), dtype=np.int64)
                self._index.add_with_ids(vectors, rows)
                if self._index.ntotal >= self._most:
                    self._spill()
            else:
                self._index.add(vectors)
            first += len(batch)
            yield batch.columns

    def _spill(self) -> None:
        path = self._export.work_path(f"{len(self.parts)}.index")
        self._export.write(self._index, path)
        self.parts.append(path)
        self._index = self._export.read(self._empty)

    def finished(self) -> Any:
        """The index with all rows; its lists are on disk if they were once too large."""
        if not self.parts:
            return self._index
        self._spill()
        faiss = self._export.faiss
        parts = [self._export.read(path, faiss.IO_FLAG_MMAP) for path in self.parts]
        pointers = faiss.InvertedListsPtrVector()
        for part in parts:
            pointers.push_back(part.invlists)
        index = self._export.read(self._empty)
        path = self._export.work_path(_LISTS)
        lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, path)
        with _without_notes():
            index.ntotal = lists.merge_from_multiple(pointers.data(), pointers.size())
        index.replace_invlists(lists, True)
        lists.this.disown()
        lists.filename = _LISTS  # beside the index, wherever the folder is
        return index


@contextmanager
def _without_notes() -> Iterator[None]:
    """Keeps off the terminal what faiss prints of each file that it makes larger."""
    flush = ctypes.CDLL(None).fflush  # of what C has printed and not written
    flush(None)
    stdout = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


def _number_of_lists(source: Source) -> int:
    """How many lists an inverted file has; 0 for a flat index."""
    asked = source.options.index
    if asked == "flat" or (asked == "auto" and source.rows <= FLAT_ROWS):
        return 0
    most = (_SAMPLE_MEGABYTES << 20) // (4 * source.width * _PER_LIST)
    return max(1, min(4 * math.isqrt(source.rows), most, source.rows // _PER_LIST))


def export_faiss(source: Source) -> bool:
    """Exports to a faiss index; False if it was there already.

    Raises:
        UsageError: faiss is not installed, a flat index was asked for that does not fit into
            memory, or the folder holds something else.
    """
    dest = source.options.dest
    export = FaissExport(source)
    if source.options.index == "flat" and source.rows * export.bytes_of_row() > 64 << 30:
        raise UsageError("--index flat keeps all vectors in memory; use --index ivf for so many")
    names = {_INDEX, _IDS, _INFOS}
    journal = join(dest, JOURNAL)
    progress = claim(
        dest,
        journal,
        source,
        lambda name: name in {*names, _LISTS} or name.startswith(f"{_WORK}/"),
    )
    apart = {_LISTS} if (progress.more or {}).get("lists") else set()
    if progress.done and names | apart <= entries(dest):
        return False
    prepare_folders(dest, names)
    write_progress(journal, source, Progress())
    lists = export.run()
    write_progress(journal, source, Progress(done=True, more={"lists": lists}))
    return True
