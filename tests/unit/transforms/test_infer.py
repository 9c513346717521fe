"""Blocks through tokenizer and model: equal rows run once, a bad one takes nobody along."""

from functools import partial

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import registry
from apache_beam.testing.util import assert_that, equal_to

from bert_embed.backends.choose import load_engine
from bert_embed.base.arrays import text_hashes
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.model import Embedder
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.blocks import DocumentBlock, EmbeddingBlock, TokenBlock
from bert_embed.transforms.infer import BlockModelHandler, EmbedBlocks
from bert_embed.transforms.parts import BlockSpec, Part
from bert_embed.transforms.steps import BlockCoder, activity, current_activity
from bert_embed.transforms.tokenize import TokenizeBlocks, hashed_texts, token_block
from tests.support.blocks import read_blocks
from tests.support.engines import load_watched
from tests.support.rounding import assert_near


def documents(texts, **columns):
    places = pa.array([f"in.txt:{n}" for n in range(len(texts))], pa.string())
    return DocumentBlock(Part(0, 0, records=len(texts)), places, texts, places, **columns)


def embedded(bundle, texts, spec):
    """With a model that fails on every row that holds the token z, as one might."""
    (number,) = load_tokenizer(bundle).encode("z")[1:-1]

    def fail(ids):
        if (ids == number).any():
            raise ArithmeticError("a text would stand here")

    engine = partial(load_watched, fail)
    embedder = Embedder(bundle, VectorSpec(), threads=1, load_engine=engine)
    handler = BlockModelHandler(bundle.path, bundle.fingerprint, VectorSpec(), spec, 64, 1)
    rows = pa.table({"row": range(len(texts))})
    block = token_block(documents(texts, extra=rows), embedder.tokenizer, spec)
    return handler.run_inference(block, embedder)[0]


def test_documents_of_a_failed_row_are_rejected_alone(tiny_bundle):
    bundle = read_bundle(tiny_bundle)
    found = embedded(bundle, ["a", "z", "a", "b", "z"], TextSpec(8))
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2", "in.txt:3"]
    assert found.extra["row"].to_pylist() == [0, 2, 3]
    wanted = Encoder(bundle).encode(["a", "a", "b"])
    assert_near(found.vectors, wanted)
    assert [(each.id, each.stage, each.reason) for each in found.part.rejected] == [
        ("in.txt:1", "infer", "model error: ArithmeticError"),
        ("in.txt:4", "infer", "model error: ArithmeticError"),
    ]
    # As many failures as doubles do not mix rows up.
    assert_near(embedded(bundle, ["a", "a", "z", "b"], TextSpec(8)).vectors, wanted)


def test_one_failed_window_takes_its_document_along_and_no_other(tiny_bundle):
    """Every granularity at once: all columns lose the same document."""
    bundle = read_bundle(tiny_bundle)
    texts = ["a b c d", "a b z d", "money bank"]
    spec = TextSpec(4, ("sentence", "token", "word"), "windows", overlap=0)
    found = embedded(bundle, texts, spec)
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2"]
    assert [each.source for each in found.part.rejected] == ["in.txt:1"]
    assert found.windows.document.tolist() == [0, 0, 1]
    assert found.windows.window.tolist() == [0, 1, 0]
    assert found.windows.starts.tolist() == [0, 4, 0]
    assert found.windows.stops.tolist() == [3, 7, 10]
    assert found.windows.num_tokens.tolist() == [4, 4, 4]
    assert found.num_tokens.tolist() == [6, 4]
    encoder = Encoder(bundle)
    wanted = encoder.encode(["a b", "c d", "money bank"])
    assert_near(found.vectors, wanted)
    assert found.tokens.tokens.to_pylist() == [
        *("[CLS]", "a", "b", "c", "d", "[SEP]"),
        *("[CLS]", "money", "bank", "[SEP]"),
    ]
    assert found.tokens.splits.tolist() == [0, 6, 10]
    assert found.words.texts.to_pylist() == ["a", "b", "c", "d", "money", "bank"]
    second = encoder.units(["c d", "money bank"])
    assert_near(found.tokens.vectors[3:5], second[0].vectors[1:3])
    assert_near(found.words.vectors[2:4], second[0].vectors[1:3])


def test_transforms_run_alone_in_other_pipelines(tiny_bundle):
    bundle, places = read_bundle(tiny_bundle), pa.array(["a", "b", "c"])
    blocks = [
        DocumentBlock(Part(0, 0, records=3), places, ["one", "two three", "one"], places),
        DocumentBlock(Part(1, 0), places[:0], [], places[:0]),
    ]
    spec = VectorSpec(dim=4), TextSpec(16)
    handler = BlockModelHandler(tiny_bundle, bundle.fingerprint, *spec, 64, 1)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        tokens = pipeline | beam.Create(blocks) | TokenizeBlocks(tiny_bundle, TextSpec(16))
        found = tokens | EmbedBlocks(handler) | beam.Map(_facts)
        assert_that(found, equal_to([((3, 4), ["a", "b", "c"], 2), ((0, 4), [], 0)]))


def _facts(block):
    return block.vectors.shape, block.ids.to_pylist(), block.batches


def test_a_bundle_that_was_exchanged_is_refused(tiny_bundle):
    handler = BlockModelHandler(
        tiny_bundle, "another fingerprint", VectorSpec(), TextSpec(16), 64, 1
    )
    with pytest.raises(ValueError, match="holds another model than when the job started"):
        handler.load_model()


def test_the_activity_that_began_last_is_shown(tiny_bundle):
    seen = []

    def load(*settings):
        seen.append(current_activity())
        return load_engine(*settings)

    text_spec = TextSpec(max_seq_length=16)
    handler = BlockModelHandler(tiny_bundle, "", VectorSpec(), text_spec, load_engine=load)
    assert current_activity() is None
    with activity("planning"):
        handler.load_model()
        assert current_activity() == "planning"
    assert (seen, current_activity()) == (["loading the model"], None)


def test_the_size_of_a_block_is_about_that_of_its_bytes():
    vectors = np.random.default_rng(0).standard_normal((1000, 64), np.float32)
    numbers = np.arange(1000)
    ids = pa.array([f"/in/a.txt:{number}" for number in numbers])
    block = EmbeddingBlock(Part(0, 0), ids, numbers, numbers > 5, numbers, vectors)
    size = len(encoded := BlockCoder().encode(block))
    assert BlockCoder().decode(encoded).ids == ids
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


def reasons(block):
    return [(each.source, each.reason) for each in block.part.rejected]


def test_a_text_without_tokens_is_rejected_alone(tiny_bundle):
    block = documents(["a", "\u200b\x00", "a", "a b c d e f"])
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), TextSpec(5))
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2", "in.txt:3"]
    assert found.layout.row.tolist() == [0, 0, 1]
    assert found.layout.num_tokens.tolist() == [3, 3, 5]
    assert found.layout.truncated.tolist() == [False, False, True]
    assert reasons(found) == [("in.txt:1", "no tokens")]


def test_a_text_too_long_is_rejected_where_asked(tiny_bundle):
    block = documents(["a b c", "a b c d", "\x00", "e"])
    spec = TextSpec(5, long_text="reject")
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), spec)
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:3"]
    assert reasons(found) == [("in.txt:1", "text too long"), ("in.txt:2", "no tokens")]
    assert [each.record for each in found.part.rejected] == ["a b c d", "\x00"]


def test_equal_windows_run_once(tiny_bundle):
    block = documents(["a b a b a b", "a b"])
    spec = TextSpec(4, long_text="window", overlap=0)
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), spec)
    assert found.layout.windows.splits.tolist() == [0, 3, 4]
    assert found.layout.row.tolist() == [0, 0, 0, 0]
    assert len(found.layout.rows.input_ids) == 4


def test_what_is_embedded_is_what_is_hashed():
    pairs = documents(["a", "a", "ab"], texts_b=["b", "", ""])
    words = documents(["a b", "a b", "a b"], words=[["a", "b"], ["a b"], None])
    titled = documents(["a", "a"], contexts=["a title", ""])
    single = documents(["a", "a b"])
    assert hashed_texts(titled)[0] != hashed_texts(titled)[1] == hashed_texts(single)[0]
    assert len(set(hashed_texts(pairs))) == 3
    assert hashed_texts(pairs)[1] == hashed_texts(single)[0]
    assert len(set(hashed_texts(words))) == 2
    assert hashed_texts(words)[2] == hashed_texts(single)[1]


def test_text_hashes_are_the_same_everywhere():
    """XXH3 of UTF-8, as the algorithm's own test vectors have it for the empty input."""
    assert text_hashes([""])[0] == 0x2D06800538D394C2
    assert text_hashes(["a", "b"])[0] != text_hashes(["a", "b"])[1]
