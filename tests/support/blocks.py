"""Blocks of documents and of vectors, plans of blocks, and TFRecord files, made by hand."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.models.heads.kinds import KINDS
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.results.names import restored, stored
from bert_embed.results.tf_example import masked_crc
from bert_embed.text.layout import KeptWindows
from bert_embed.transforms.blocks import (
    DocumentBlock,
    EmbeddingBlock,
    TokenVectors,
    WordVectors,
)
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import Part, plan_blocks
from bert_embed.transforms.plan import planned_work
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from bert_embed.transforms.steps import read_unfinished
from tests.support.command import data_files, record
from tests.support.outputs import SETTINGS, finished_run

WIDTH = 12
IDS = ["a:0", "ü 2", "c"]
TOKENS = [["[CLS]", "one", "##s", "[SEP]"], ["[CLS]", "[SEP]"], ["[CLS]", '"', "[SEP]"]]
SCORES = np.array([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]], np.float32)
WORDS = [["ones", "töne", "gone"], [], ["gone too"]]


def numbers(rows: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)


def token_vectors(width: int = WIDTH) -> TokenVectors:
    flat = [token for document in TOKENS for token in document]
    special = np.array([token.startswith("[") for token in flat])
    return TokenVectors(
        splits=np.array([0, 4, 6, 9]),
        tokens=pa.array(flat),
        segments=np.arange(len(flat), dtype=np.int32) % 2,
        starts=np.where(special, -1, 3).astype(np.int32),
        stops=np.where(special, -1, 5).astype(np.int32),
        vectors=numbers(len(flat), width),
    )


def word_vectors() -> WordVectors:
    """Four words of three documents; the third and the fourth have no vector."""
    vectors = numbers(4)
    vectors[2:] = np.nan
    return WordVectors(
        splits=np.array([0, 3, 3, 4]),
        texts=pa.array([word for document in WORDS for word in document]),
        starts=np.array([0, 5, 10, 0], np.int32),
        stops=np.array([4, 9, 14, 8], np.int32),
        truncated=np.array([False, True, True, False]),
        missing=np.array([False, False, True, True]),
        vectors=vectors,
    )


def kept_windows() -> KeptWindows:
    return KeptWindows(
        splits=np.array([0, 2, 3, 4]),
        starts=np.array([0, 40, 0, 0], np.int32),
        stops=np.array([60, 99, 7, 8], np.int32),
        num_tokens=np.array([16, 9, 4, 5], np.int32),
        name="window",
    )


def embedding_block(**kinds: Any) -> EmbeddingBlock:
    heads = {kind: kinds.pop(kind) for kind in HEADS if kind in kinds}
    return EmbeddingBlock(
        heads={kind: vectors for kind, vectors in heads.items() if vectors is not None},
        part=Part(3, 1, records=3),
        ids=pa.array(IDS),
        num_tokens=np.array([25, 4, 5], np.int32),
        truncated=np.array([True, False, False]),
        full_lengths=np.array([40, 4, 5], np.int32),
        text_hash=np.array([1, -(2**63), 2**63 - 1]),
        **kinds,
    )


def every_kind() -> EmbeddingBlock:
    return embedding_block(vectors=numbers(3), tokens=token_vectors(), words=word_vectors())


def sparse_vectors() -> SparseVectors:
    """Of three documents, the second of which has no entry."""
    return SparseVectors(
        splits=np.array([0, 3, 3, 4]),
        indices=np.array([2, 7, 30521, 7], np.int32),
        values=np.array([0.1, 1.5, 0.30000001, 2], np.float32),
    )


def multi_vectors() -> MultiVectors:
    """Of three documents, the second of which has no token."""
    return MultiVectors(np.array([0, 2, 2, 5]), numbers(5))


def with_heads(**more: Any) -> EmbeddingBlock:
    """Three documents with what the heads of a model make."""
    kinds = {"sparse": sparse_vectors(), "multi": multi_vectors(), "scores": SCORES}
    return embedding_block(**kinds | more)


HEADS = {
    "sparse": {"entries": 30522, "top_k": None, "similarity": "dot"},
    "multi": {"dim": WIDTH, "similarity": "maxsim"},
    "scores": {"labels": ["bad", "good"], "activation": "softmax"},
}


def _kinds(block: EmbeddingBlock) -> dict[str, Any]:
    heads = [kind for kind in block.kinds if KINDS[kind].vectors != "dense"]
    dense = [kind for kind in block.kinds if KINDS[kind].vectors == "dense"]
    if not heads:
        return {"granularity": dense}
    vectors = ["dense"] * bool(dense) + heads
    made = {kind: HEADS[kind] for kind in heads}
    return {"granularity": dense or ["sentence"], "vectors": vectors, "heads": made}


def described(block: EmbeddingBlock, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    shapes = {"output_dtype": dtype, "shape": [WIDTH], "token_shape": [WIDTH]}
    return SETTINGS | shapes | _kinds(block) | more


def write(
    folder: Path, block: EmbeddingBlock, metadata: dict[str, Any], output_format: str = "parquet"
) -> dict[str, bytes]:
    """Writes a block and a run's record; returns the files by the first word of their names."""
    how = {"output_format": output_format, "settings": metadata, "kept": False}
    finished_run(folder, [1], **how, changed=lambda _: block)
    return {kind: data_files(folder, kind)[0].read_bytes() for kind in record(folder)["written"]}


def as_stored(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """What is left of vectors by their output type, NaN where there is none."""
    left = np.full_like(vectors, np.nan)
    there = ~np.isnan(vectors[:, 0])
    kept = stored(vectors[there], dtype)
    left[there] = restored(kept.values, kept.scale, dtype, vectors.shape[1])
    return left


def read_blocks(specs, output, part_docs, block_bytes):
    """The documents of BlockSpecs, and what an attempt before finished of them."""

    def read(spec, done):
        return document_blocks(spec, Columns(), part_docs, block_bytes, done)

    return read_unfinished(specs, OutputFolder(str(output)), "run", read, DocumentBlock)


def read_input(place, columns=None, block_bytes=1 << 20, limit=None, part_docs=1000):
    """The blocks of an input in their order, which cover as much of each file as is planned."""
    files = list_input([str(place)]).first(limit)
    specs, found = list(plan_blocks(files, block_bytes)), []
    for spec in specs:
        found += document_blocks(spec, columns or Columns(), part_docs, block_bytes, {})
    covered = [sum(each.part.covered.get(n, 0) for each in found) for n in range(len(files))]
    for stop, read in zip(planned_work(files, specs).stops, covered, strict=True):
        assert stop is None or stop == read
    if any(spec.spread for spec in specs):  # each of which gives its own parts
        found.sort(key=lambda each: (each.part.block, each.part.number))
    return found


def ids_of(found: Iterable[DocumentBlock]) -> list[str]:
    return [each for block in found for each in block.ids.to_pylist()]


def texts_of(found: Iterable[DocumentBlock]) -> list[str]:
    return [text for block in found for text in block.texts]


def rejected_of(found: Iterable[DocumentBlock]) -> list[tuple[str | None, str]]:
    return [(each.id, each.reason) for block in found for each in block.part.rejected]


def framed(records: Iterable[bytes]) -> bytes:
    parts = []
    for data in records:
        length = struct.pack("<Q", len(data))
        parts += [length, struct.pack("<I", masked_crc(length))]
        parts += [data, struct.pack("<I", masked_crc(data))]
    return b"".join(parts)


def example(**values: bytes | list[Any]) -> bytes:
    """A tf.train.Example whose features are bytes, or lists of bytes, floats or whole numbers."""
    import tensorflow as tf

    made = tf.train.Example()
    for name, value in values.items():
        listed = [value] if isinstance(value, bytes) else value
        feature = made.features.feature[name]
        of_kind = {bytes: feature.bytes_list, float: feature.float_list}
        held = of_kind.get(type(listed[0]) if listed else int, feature.int64_list)
        held.value.extend(listed)
        held.SetInParent()  # of no values, too
    return made.SerializeToString(deterministic=True)
