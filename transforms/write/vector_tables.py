"""Makes an Arrow table of each kind of vectors of an EmbeddingBlock."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.transforms.records.vectors import EmbeddingBlock, KeptWindows


def vector_table(block: EmbeddingBlock, kind: str, settings: Mapping[str, Any]) -> pa.Table:
    """A table with a row for each document: id, its vectors, num_tokens, ….

    `settings` are what a run says of its vectors. Columns behind them are num_tokens,
    num_tokens_full, truncated and text_hash. A window or chunk, nothing of which is cut, has a row
    of its own for kinds that are `by_row`, and its number, `start` and `stop` instead of
    `num_tokens_full`. Kept texts and extra columns come last.
    """
    vectors, windows = KINDS[kind].encoded(block.of(kind), settings), block.windows
    if windows is None or not KINDS[kind].by_row:
        return pa.table({"id": block.ids} | vectors | _facts(block) | more_columns(block))
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
    return pa.table({"id": ids} | vectors | facts | more_columns(block, windows))


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
