"""Finished runs of several kinds of vectors without a model."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.heads.vectors import MultiVectors, SparseVectors
from bert_embed.ragged import splits_of
from bert_embed.transforms.write.writer import write_vectors
from tests.support.finished_runs import block_of, in_chunks
from tests.support.records import whole_record

ENTRIES, DIM = 300, 8


def sparse_rows(seed: int, rows: int, most: int = 40) -> SparseVectors:
    """Sparse vectors of up to `most` entries; the first one is empty."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most, rows)
    lengths[:1] = 0
    indices = [np.sort(random.choice(ENTRIES, length, replace=False)) for length in lengths]
    values = random.random(lengths.sum(), np.float32) + np.float32(0.01)
    return SparseVectors(
        splits_of(lengths), np.concatenate([*indices, []]).astype(np.int32), values
    )


def multi_rows(seed: int, rows: int, most: int = 6) -> MultiVectors:
    """Multi-vectors of up to `most` tokens of unit length; the first one is empty."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most, rows)
    lengths[:1] = 0
    tokens = random.normal(size=(lengths.sum(), DIM))
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    return MultiVectors(splits_of(lengths), tokens.astype(np.float32))


def run_of_kinds(
    folder: Path,
    kinds: Sequence[str],
    rows: Sequence[int] = (30, 0, 12),
    width: int = 12,
    output_format: str = "parquet",
    chunks: bool = False,
    **settings: Any,
) -> Path:
    """Writes a run with a block for each number of rows; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "output_dtype": "float32",
        "shape": [width],
        "token_shape": [width],
        "granularity": ["sentence"],
        "vectors": list(kinds),
        "heads": {
            "sparse": {"entries": ENTRIES, "similarity": "dot"},
            "multi": {"dim": DIM, "similarity": "maxsim"},
        },
        "layers": [-1],
        "layer_combine": "last",
        "pooling": "mean",
        "normalize": True,
        "prompt": "",
        "precision": "float32",
        "model": "0123456789abcdef",
    } | settings
    written: dict[str, dict[str, int]] = {}
    first = 0
    for number, count in enumerate(rows):
        block = block_of(number, first, count, width, kept=True)
        block = in_chunks(block, width) if chunks else block
        vectors = len(block.vectors)
        block = replace(
            block,
            vectors=block.vectors if "dense" in kinds else None,
            sparse=sparse_rows(number, vectors) if "sparse" in kinds else None,
            multi=multi_rows(number, vectors) if "multi" in kinds else None,
        )
        report = write_vectors(str(folder), "run", output_format, settings).write(block)
        for name, file in report.files.items():
            sums = written.setdefault(name.split("/")[0], {"files": 0, "bytes": 0, "rows": 0})
            sums["files"] += 1
            sums["bytes"] += file.bytes
            sums["rows"] += file.rows
        first += count
    record = whole_record(settings, first, written=written)
    types = {field.name: str(field.type) for field in block.extra.schema}
    record["input"]["extra_columns"] = types
    (folder / "run.json").write_text(json.dumps(record))
    return folder
