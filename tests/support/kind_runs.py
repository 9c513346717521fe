"""Finished runs of several kinds of vectors without a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.transforms.blocks import EmbeddingBlock
from tests.support.finished_runs import finished_run

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


ROWS = {"sparse": sparse_rows, "multi": multi_rows}


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
    heads = {
        "sparse": {"entries": ENTRIES, "similarity": "dot"},
        "multi": {"dim": DIM, "similarity": "maxsim"},
    }

    def of_kinds(block: EmbeddingBlock) -> EmbeddingBlock:
        number, vectors = block.part.block, len(block.vectors)
        return replace(
            block,
            vectors=block.vectors if "dense" in kinds else None,
            heads={kind: ROWS[kind](number, vectors) for kind in heads if kind in kinds},
        )

    return finished_run(
        folder,
        rows,
        width,
        output_format=output_format,
        chunks=chunks,
        settings={"vectors": list(kinds), "heads": heads, **settings},
        changed=of_kinds,
    )
