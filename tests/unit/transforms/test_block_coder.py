"""Blocks between the stages of a pipeline."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import registry

from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.blocks import DocumentBlock, EmbeddingBlock, TokenBlock
from bert_embed.transforms.infer import BlockModelHandler, EmbedBlocks
from bert_embed.transforms.parts import BlockSpec, Part
from bert_embed.transforms.steps import BlockCoder
from bert_embed.transforms.tokenize import TokenizeBlocks
from tests.support.blocks import read_blocks


def test_a_block_comes_back_as_it_was():
    ids = pa.array(["/in/a.txt:0", "/in/a.txt:7"])
    block = DocumentBlock(Part(3, 0, records=2), ids, ["one", "two"], ids)
    assert BlockCoder().decode(BlockCoder().encode(block)) == block


def test_the_size_of_a_block_is_about_that_of_its_bytes():
    vectors = np.random.default_rng(0).standard_normal((1000, 64), np.float32)
    numbers = np.arange(1000)
    ids = pa.array([f"/in/a.txt:{number}" for number in numbers])
    block = EmbeddingBlock(Part(0, 0), ids, numbers, numbers > 5, numbers, vectors)
    size = len(BlockCoder().encode(block))
    assert 0.9 * size < BlockCoder().estimate_size(block) < 1.1 * size
    texts = DocumentBlock(Part(0, 0, records=1000), ids, ["x" * 80] * 1000, ids)
    assert 100_000 < BlockCoder().estimate_size(texts) < 200_000  # with their length


def test_blocks_of_a_pipeline_have_this_coder(tiny_bundle, tmp_path):
    specs = beam.Pipeline() | beam.Create([]).with_output_types(BlockSpec)
    documents, _ = read_blocks(specs, tmp_path, 10, 1000)
    handler = BlockModelHandler(tiny_bundle, "", VectorSpec(), TextSpec(16), 64)
    tokens = documents | TokenizeBlocks(tiny_bundle, TextSpec(16))
    kinds = {documents: DocumentBlock, tokens: TokenBlock}
    for each, kind in (kinds | {tokens | EmbedBlocks(handler): EmbeddingBlock}).items():
        assert each.element_type is kind
        assert isinstance(registry.get_coder(kind), BlockCoder)
