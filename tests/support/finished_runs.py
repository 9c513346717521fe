"""Finished runs of any size without a model: the files of blocks, their reports, and run.json."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.results.kinds import KINDS
from bert_embed.results.names import PIECES
from bert_embed.transforms.blocks import EmbeddingBlock, KeptWindows
from bert_embed.transforms.parts import Part
from bert_embed.transforms.write import write_vectors
from tests.support.records import whole_record

TAGS = ("river", "bank", "stars")


def vectors_of(first: int, rows: int, width: int) -> np.ndarray:
    """float32 `[rows, width]` of unit length around a few centres; the same for the same rows."""
    centres = np.random.default_rng(7).normal(size=(16, width))
    noise = np.random.default_rng(first + 1).normal(size=(rows, width))
    found = centres[np.arange(first, first + rows) % 16] + 0.7 * noise
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def extra_of(rows: np.ndarray) -> pa.Table:
    """Extra columns of every type that a target treats on its own."""
    return pa.table(
        {
            "lang": pa.array([TAGS[row % 3] if row % 5 else None for row in rows.tolist()]),
            "year": pa.array(rows, pa.int64()),
            "price": pa.array(rows / 4, pa.float64()),
            "new": pa.array(rows % 2 == 0),
            "tags": pa.array([[TAGS[row % 3], "all"] for row in rows.tolist()]),
            "day": pa.array(
                rows.astype("datetime64[D]").astype("datetime64[us]"), pa.timestamp("us", "UTC")
            ),
        }
    )


def block_of(number: int, first: int, rows: int, width: int, kept: bool) -> EmbeddingBlock:
    """A block of documents; `kept` with texts and extra columns."""
    numbers = np.arange(first, first + rows)
    return EmbeddingBlock(
        part=Part(number, 0, records=rows),
        ids=pa.array([f"d/{row}" for row in numbers.tolist()]),
        num_tokens=np.full(rows, 5, np.int32),
        truncated=np.zeros(rows, bool),
        full_lengths=np.full(rows, 5, np.int32),
        text_hash=numbers,
        vectors=vectors_of(first, rows, width),
        texts=pa.array([f"Text\t{row}\nwith ümlaut" for row in numbers.tolist()]) if kept else None,
        extra=extra_of(numbers) if kept else None,
    )


def in_chunks(block: EmbeddingBlock, width: int) -> EmbeddingBlock:
    """The block with two chunks a document."""
    rows = len(block.ids)
    windows = KeptWindows(
        document=np.repeat(np.arange(rows, dtype=np.int32), 2),
        window=np.tile(np.array([0, 1], np.int32), rows),
        starts=np.tile(np.array([0, 4], np.int32), rows),
        stops=np.tile(np.array([4, 9], np.int32), rows),
        num_tokens=np.full(2 * rows, 4, np.int32),
        name="chunk",
    )
    return replace(block, vectors=vectors_of(block.part.number, 2 * rows, width), windows=windows)


def finished_run(
    folder: Path,
    rows: Sequence[int],
    width: int = 12,
    dtype: str = "float32",
    output_format: str = "parquet",
    kept: bool = True,
    chunks: bool = False,
    extra: bool = True,
    first_block: int = 0,
    settings: Mapping[str, Any] | None = None,
    changed: Callable[[EmbeddingBlock], EmbeddingBlock] | None = None,
    **record: Any,
) -> Path:
    """Writes a run with a block for each number of rows; returns its folder.

    Args:
        folder: Where to write it.
        rows: Documents of each block.
        width: Numbers of a vector.
        dtype: Output type.
        output_format: As `--output_format`.
        kept: Whether texts and extra columns are there.
        extra: Whether extra columns are there with the texts, which TFRecord files cannot hold.
        chunks: Whether each document has two chunks.
        first_block: Number of the first block.
        settings: Further settings of the vectors, or others in their place.
        changed: What is written in the place of a block.
        **record: Further keys of run.json, or others in their place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "output_dtype": dtype,
        "shape": [width],
        "token_shape": [width],
        "granularity": ["sentence"],
        "layers": [-1],
        "layer_combine": "last",
        "pooling": "mean",
        "normalize": True,
        "prompt": "",
        "precision": "float32",
        "model": "0123456789abcdef",
        **(settings or {}),
    }
    written: dict[str, dict[str, int]] = {}
    first = 0
    for number, count in enumerate(rows, first_block):
        block = block_of(number, first, count, width, kept)
        block = in_chunks(block, width) if chunks else block
        block = block if extra else replace(block, extra=None)
        block = block if changed is None else changed(block)
        report = write_vectors(str(folder), "run", output_format, described).write(block)
        for name, file in report.files.items():
            sums = written.setdefault(name.split("/")[0], {"files": 0, "bytes": 0, "rows": 0})
            sums["files"] += 1
            sums["bytes"] += file.bytes
            sums["rows"] += file.rows
        first += count
    assert set(written) <= {*(kind.folder for kind in KINDS.values()), *PIECES.values()}
    types = {field.name: str(field.type) for field in extra_of(np.arange(1)).schema}
    found = whole_record(described, first, written=written)
    found["input"]["extra_columns"] = types if kept and extra else None
    (folder / "run.json").write_text(json.dumps(found | record))
    return folder
