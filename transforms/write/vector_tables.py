"""Makes an Arrow table of each kind of vectors of an EmbeddingBlock."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.formats.number_types import output_dtype, stored
from bert_embed.transforms.records.vectors import (
    EmbeddingBlock,
    KeptWindows,
    TokenVectors,
    UnitVectors,
)

Settings = Mapping[str, Any]  # what a run says of its vectors


def sentence_table(block: EmbeddingBlock, settings: Settings) -> pa.Table:
    """Columns: id, embedding, [scale], and what `_row_table` adds."""
    assert block.vectors is not None
    return _row_table(block, _embeddings(block.vectors, output_dtype(settings)))


def sparse_table(block: EmbeddingBlock, settings: Settings) -> pa.Table:
    """Columns: id, indices (list of int32, ascending), values (list of float32), and more."""
    vectors = block.sparse
    assert vectors is not None
    columns = {"indices": vectors.indices, "values": vectors.values}
    return _row_table(block, {name: _lists(vectors.splits, columns[name]) for name in columns})


def multi_table(block: EmbeddingBlock, settings: Settings) -> pa.Table:
    """Columns: id, embedding (list of vectors of a fixed size), [scale (list of float)], and more.

    A scale belongs to one vector, as each is stored for itself.
    """
    vectors = block.multi
    assert vectors is not None
    fields = _embeddings(vectors.vectors, output_dtype(settings))
    return _row_table(block, {name: _lists(vectors.splits, fields[name]) for name in fields})


def scores_table(block: EmbeddingBlock, settings: Settings) -> pa.Table:
    """Columns: id, a float32 column for each label, [label, the highest one], and more."""
    scores, head = block.scores, settings["heads"]["scores"]
    assert scores is not None
    fields = {name: pa.array(scores[:, n]) for n, name in enumerate(head["labels"])}
    if head["activation"] == "softmax":
        highest = pa.array(scores.argmax(axis=1).astype(np.int32))
        fields["label"] = pa.array(head["labels"], pa.string()).take(highest)
    return _row_table(block, fields)


def _row_table(block: EmbeddingBlock, fields: dict[str, pa.Array]) -> pa.Table:
    """A table with a row for each document: id, its vector's `fields`, num_tokens, ….

    These are num_tokens, num_tokens_full, truncated and text_hash. A window or chunk, nothing of
    which is cut, has its number, `start` and `stop` instead of `num_tokens_full`. Kept texts and
    extra columns come last, as in the other tables.
    """
    windows = block.windows
    if windows is None:
        return pa.table({"id": block.ids} | fields | _facts(block) | more_columns(block))
    rows = windows.document
    facts = {
        "num_tokens": pa.array(windows.num_tokens, pa.int32()),
        "truncated": pa.array(np.zeros(len(rows), bool)),
        "text_hash": pa.array(block.text_hash[rows], pa.int64()),
        windows.name: pa.array(windows.window, pa.int32()),
        "start": pa.array(windows.starts, pa.int32()),
        "stop": pa.array(windows.stops, pa.int32()),
    }
    ids = block.ids.take(pa.array(rows))
    return pa.table({"id": ids} | fields | facts | more_columns(block, windows))


def _lists(splits: np.ndarray, values: np.ndarray | pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(splits, pa.int32()), pa.array(values))


def token_table(block: EmbeddingBlock, settings: Settings) -> pa.Table:
    """Columns: id, tokens (list of token, segment, start, stop, embedding, [scale]), the facts."""
    tokens = block.tokens
    assert tokens is not None
    fields = {
        "token": tokens.tokens,
        "segment": pa.array(tokens.segments, pa.int32()),
        **_places(tokens),
        **_embeddings(tokens.vectors, output_dtype(settings)),
    }
    return _nested(block, "tokens", tokens.splits, fields)


def unit_table(block: EmbeddingBlock, settings: Settings, name: str) -> pa.Table:
    """Columns: id, words or spans (list of [word], start, stop, truncated, …), the facts."""
    units: UnitVectors = getattr(block, name)
    fields = {} if units.texts is None else {"word": units.texts}
    fields |= _places(units) | {"truncated": pa.array(units.truncated, pa.bool_())}
    fields |= _embeddings(units.vectors, output_dtype(settings), units.missing)
    return _nested(block, name, units.splits, fields)


def _nested(
    block: EmbeddingBlock, name: str, splits: np.ndarray, fields: dict[str, Any]
) -> pa.Table:
    structs = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    lists = pa.LargeListArray.from_arrays(pa.array(splits, pa.int64()), structs)
    return pa.table({"id": block.ids, name: lists} | _facts(block) | more_columns(block))


def more_columns(block: EmbeddingBlock, windows: KeptWindows | None = None) -> dict[str, pa.Array]:
    """The kept texts and the extra columns, by name: of documents, or of their windows."""
    columns: dict[str, pa.Array] = {}
    if block.texts is not None:
        columns["text"] = block.texts if windows is None else window_texts(block.texts, windows)
    if block.extra is not None:
        table = block.extra if windows is None else block.extra.take(pa.array(windows.document))
        columns |= dict(zip(table.column_names, table.columns, strict=True))
    return columns


def window_texts(texts: pa.StringArray, windows: KeptWindows) -> pa.StringArray:
    """The part of its document's text that each window holds."""
    whole = texts.to_pylist()
    places = (windows.document.tolist(), windows.starts.tolist(), windows.stops.tolist())
    parts = [
        whole[row] and whole[row][start:stop] for row, start, stop in zip(*places, strict=True)
    ]
    return pa.array(parts, pa.string())


def _facts(block: EmbeddingBlock) -> dict[str, pa.Array]:
    return {
        "num_tokens": pa.array(block.num_tokens, pa.int32()),
        "num_tokens_full": pa.array(block.num_tokens_full, pa.int32()),
        "truncated": pa.array(block.truncated, pa.bool_()),
        "text_hash": pa.array(block.text_hash, pa.int64()),
    }


def _places(units: TokenVectors | UnitVectors) -> dict[str, pa.Array]:
    return {
        "start": pa.array(units.starts, pa.int32()),
        "stop": pa.array(units.stops, pa.int32()),
    }


def _embeddings(
    vectors: np.ndarray, dtype: str, missing: np.ndarray | None = None
) -> dict[str, pa.Array]:
    """The vectors as lists, and scales; lists of fixed size cannot be null in Parquet."""
    coded = stored(vectors if missing is None else vectors[~missing], dtype)
    numbers, width = pa.array(coded.values.reshape(-1)), coded.values.shape[1]
    scale = coded.scale
    if missing is None:
        lists = pa.FixedSizeListArray.from_arrays(numbers, width)
    else:
        offsets = pa.array(np.append(0, np.cumsum(~missing) * width), pa.int64())
        lists = pa.LargeListArray.from_arrays(offsets, numbers, mask=pa.array(missing))
        if scale is not None:
            scale = np.zeros(len(missing), np.float32)
            scale[~missing] = coded.scale
    scales = {} if scale is None else {"scale": pa.array(scale, mask=missing)}
    return {"embedding": lists} | scales


TABLES: dict[str, Callable[[EmbeddingBlock, Settings], pa.Table]] = {
    "sentence": sentence_table,
    "token": token_table,
    "word": partial(unit_table, name="words"),
    "span": partial(unit_table, name="spans"),
    "sparse": sparse_table,
    "multi": multi_table,
    "scores": scores_table,
}
