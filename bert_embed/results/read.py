"""Reads ids and vectors of texts, tokens or words from outputs of runs."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.arguments import one_of, switch, whole_number
from bert_embed.base.environment import requires
from bert_embed.base.errors import SettingError
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.models.heads.vectors import SparseVectors, joined
from bert_embed.results.files import (
    BATCH_ROWS,
    DocumentUnits,
    Rows,
    own_memory,
    read_units,
    row_batches,
)
from bert_embed.results.outputs import (
    Folders,
    NewestRows,
    Output,
    checked_files,
    files_of,
    has_block_records,
    open_outputs,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_READ_ROWS = 1 << 14  # at a time, of an output that is read whole


def read(
    folder: Folders, partial: bool = False, kind: str = "dense"
) -> tuple[list[str | int], NDArray[np.float32]]:
    """Reads the vectors of whole texts that runs wrote, in the input's order.

    Of documents in several outputs that continue each other (`skip_existing`) only the newest
    version is read, and none of a document that the newest marks as deleted.

    Args:
        folder: Output folder of a run, local, gs:// or s3://; a folder of outputs, a glob, or
            several of all these, whose vectors must be of the same model and settings.
        partial: Whether to read the finished parts of an incomplete run.
        kind: Which vectors, of those that are one array a document.

    Returns:
        The ids, strings or integers as in the input, and float32 `[documents, dim]`, or
        `[documents, layers, dim]` for a stack, decoded from the type they were stored as. Where
        windows were kept, each row is a window, and its document's id is repeated.

    Raises:
        InputError: A folder has no such vectors, its run is not complete, or its files are not
            those that the run wrote; or the vectors of several cannot be used together.
    """
    arrays = [name for name, one in ROW_KINDS.items() if one.is_array]
    if kind not in arrays and isinstance(kind, str) and kind in ROW_KINDS:
        reader = ROW_KINDS[kind].read_with
        raise SettingError("kind", f"{kind} is no array a document: read it with {reader}")
    made = ROW_KINDS[one_of("kind", kind, arrays)]
    settings, batches = read_rows(folder, made.name, partial, _READ_ROWS)
    shape = made.shape(settings)
    width = math.prod(shape)
    ids: list[str | int] = []
    vectors = np.empty((0, width), np.float32)  # grows in place: memory never holds them twice
    for batch in batches:
        ids += batch.columns["id"].to_pylist()
        vectors.resize((len(ids), width), refcheck=False)
        vectors[len(ids) - len(batch) :] = batch.vectors
    return ids, vectors.reshape(-1, *shape)


def read_batches(
    folder: Folders, rows: int = 4096, partial: bool = False
) -> Iterator[tuple[list[str | int], NDArray[np.float32]]]:
    """Reads what `read` does, but piece by piece, for outputs larger than memory.

    Args:
        folder: As of `read`.
        rows: Maximum number of rows of a piece.
        partial: Whether to read the finished parts of an incomplete run.

    Yields:
        Ids and vectors of some rows, each as `read` returns them.

    Raises:
        SettingError: `rows` is under 1.
        InputError: As `read`.
    """
    rows = whole_number("rows", rows, least=1)
    settings, batches = read_rows(folder, "sentence", partial, rows)
    shape = (-1, *settings["shape"])
    return (
        (batch.columns["id"].to_pylist(), own_memory(batch.vectors).reshape(shape))
        for batch in batches
        if len(batch)
    )


def read_sparse(folder: Folders, partial: bool = False) -> "tuple[list[str | int], csr_array]":
    """Reads the sparse vectors that a run wrote, in the input's order; it requires SciPy.

    Arguments and errors are those of `read`.

    Returns:
        The ids, as `read`, and the weights, a SciPy array in CSR format, float32 `[documents,
        entries of the vocabulary]`, as `to_scipy` makes it. Where windows or chunks have their own,
        each row is one.
    """
    with requires("read_sparse", "scipy"):
        import_module("scipy.sparse")  # before the files are read
    ids, batches, settings = _read_whole(folder, "sparse", partial)
    none = SparseVectors(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    entries = settings["heads"]["sparse"]["entries"]
    return ids, replace(joined([none, *batches]), width=entries).to_scipy()


def read_multi(
    folder: Folders, partial: bool = False
) -> Iterator[tuple[str | int, NDArray[np.float32]]]:
    """Reads the multi-vectors that a run wrote, in the input's order, some documents at a time.

    Arguments and errors are those of `read`.

    Yields:
        A document's id, and float32 `[tokens, dim]`, a vector for each token that was kept,
        decoded from the type they were stored as.
    """
    _, batches = read_rows(folder, "multi", partial)
    return (
        of_document
        for batch in batches
        for rows in (replace(batch.vectors, vectors=own_memory(batch.vectors.vectors)).rows(),)
        for of_document in zip(batch.columns["id"].to_pylist(), rows, strict=True)
    )


def read_scores(
    folder: Folders, partial: bool = False
) -> tuple[list[str | int], list[str], NDArray[np.float32]]:
    """Reads the scores that a run wrote, in the input's order.

    Arguments and errors are those of `read`.

    Returns:
        The ids, as `read`; the model's labels; and float32 `[documents, labels]`.
    """
    ids, blocks, settings = _read_whole(folder, "scores", partial)
    labels = list(settings["heads"]["scores"]["labels"])
    return ids, labels, np.concatenate([np.empty((0, len(labels)), np.float32), *blocks])


def _read_whole(
    folder: Folders, kind: str, partial: bool
) -> tuple[list[str | int], list[Any], dict[str, Any]]:
    """All ids of a kind, its vectors, batch by batch, and what the run says of them."""
    settings, batches = read_rows(folder, kind, partial)
    ids: list[str | int] = []
    vectors = []
    for batch in batches:
        ids += batch.columns["id"].to_pylist()
        vectors.append(batch.vectors)
    return ids, vectors, settings


def read_rows(
    folder: Folders, kind: str, partial: bool = False, rows: int = BATCH_ROWS
) -> tuple[dict[str, Any], Iterator[Rows]]:
    """What a run says of its vectors, and the rows of one kind, of each document the newest."""
    outputs, files, newest = _listed(folder, kind, partial)

    def batches() -> Iterator[Rows]:
        for number, output in enumerate(outputs):
            check_pages = not has_block_records(output.folder)
            for path in files[number]:
                how: Any = {"kind": kind, "rows": rows, "check_pages": check_pages}
                for batch in row_batches(path, output.settings, **how):
                    yield newest.of(number, batch)

    return outputs[0].settings, batches()


def _listed(
    folder: Folders, kind: str, partial: bool
) -> tuple[list[Output], list[Iterator[Path]], NewestRows]:
    """The outputs, and the files of each, which are listed and compared with its record now.

    With what chooses the newest rows; warns where nothing says which of two are newer.
    """
    partial, outputs = switch("partial", partial), open_outputs(folder, kind)
    listed = [files_of(one.folder, one.record, kind, partial, one.finished) for one in outputs]
    newest = NewestRows(outputs, kind)
    for overlap in newest.overlaps():
        warnings.warn(overlap, stacklevel=4)
    pairs = zip(outputs, listed, strict=True)
    return outputs, [checked_files(one.folder, one.record, files) for one, files in pairs], newest


def read_tokens(folder: Folders, partial: bool = False) -> Iterator[DocumentUnits]:
    """Reads the vectors of every document's tokens, in the input's order, one file at a time.

    Arguments and errors are those of `read`.

    Yields:
        A document's id, its tokens, their places in the text, and their vectors.
    """
    return _read_units(folder, "token", partial)


def read_words(folder: Folders, partial: bool = False) -> Iterator[DocumentUnits]:
    """Reads the vectors of every document's words; otherwise as `read_tokens`."""
    return _read_units(folder, "word", partial)


def _read_units(folder: Folders, granularity: str, partial: bool) -> Iterator[DocumentUnits]:
    outputs, files, newest = _listed(folder, granularity, partial)

    def documents() -> Iterator[DocumentUnits]:
        for number, output in enumerate(outputs):
            for path in files[number]:
                of_file = read_units(path, granularity, output.settings)
                is_newest = newest.are_newest(number, [document.id for document in of_file])
                yield from compress(of_file, is_newest.tolist())

    return documents()
