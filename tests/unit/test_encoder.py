"""Encoders: vectors in their order, the same in every batch; rows that fail, fail alone."""

import numpy as np
import pytest

import bert_embed
from bert_embed.backends.runner import NOT_FINITE, RowSpec
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.text.documents import TokenRows
from tests.support.models.folder import change
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface
from tests.support.rounding import MINILM, assert_near, relative_error

pytestmark = pytest.mark.numeric

TEXTS = ["the bank", "river", "", "she made her way down to the bank of the river", "money " * 90]


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle)


def test_the_packaged_model_knows_what_is_alike(minilm):
    encoder = Encoder(minilm)
    cat, dog, stock = encoder.encode(["A cat sits.", "A kitten is sitting.", "Stocks fell."])
    assert cat @ dog > 0.6 > 0.2 > cat @ stock
    assert np.linalg.norm(cat) == pytest.approx(1, abs=relative_error(MINILM))


def test_a_dim_of_wider_vectors_leaves_the_tokens_whole(encoder):
    wide = bert_embed.load(encoder.bundle.path, pooling="mean_max", dim=50)
    assert wide.encode(["bank"]).shape == (1, 50)
    (tokens,) = wide.units(["bank"])
    assert_near(tokens.vectors, encoder.units("bank").vectors)
    cut = bert_embed.load(encoder.bundle.path, dim=5)
    assert cut.units("bank", "word").vectors.shape == (1, 5)


def embed_rows(encoder, ids, splits):
    return encoder.embedder.runner.run(TokenRows(ids, splits), RowSpec(encoder.spec))


def test_a_model_with_one_segment_takes_pairs(tmp_path):
    one = np.random.default_rng(1).normal(size=(1, 32)).astype(np.float32)
    name = "embeddings.token_type_embeddings.weight"
    write_tiny_huggingface(tmp_path / "source", changes={name: one})
    change(tmp_path / "source", {"config.json": {"type_vocab_size": 1}})
    encoder = bert_embed.load(tmp_path / "source")
    pair = encoder.encode(["the bank"], ["of the river"])
    cls, sep = encoder.tokenizer.cls_id, encoder.tokenizer.sep_id
    ids = [encoder.tokenizer.encode(text)[1:-1] for text in ("the bank", "of the river")]
    row = np.array([cls, *ids[0], sep, *ids[1], sep], np.int32)
    assert_near(pair, embed_rows(encoder, row, np.array([0, len(row)])).vectors)


def test_settings_of_a_call_win_over_the_models(encoder):
    assert encoder.encode(TEXTS, layers=[-1, -2], layer_combine="concat").shape == (5, 64)
    assert encoder.encode(TEXTS, pooling="mean_max", dim=3).shape == (5, 3)
    norms = np.linalg.norm(encoder.encode(TEXTS, normalize=True), axis=1)
    np.testing.assert_allclose(norms, 1, atol=relative_error())
    loaded = bert_embed.load(encoder.bundle.path, pooling="cls")
    assert_near(loaded.encode(TEXTS), encoder.encode(TEXTS, pooling="cls"))


def test_a_text_that_is_refused_is_counted_from_the_first_one(encoder):
    texts = ["a"] * 1_100 + ["money " * 70]
    with pytest.raises(bert_embed.SettingError, match="texts number 1100 is longer than 64 tokens"):
        encoder.encode(texts, long_text="reject", show_progress_bar=True)


def test_no_windows_are_suggested_for_pairs(encoder):
    """They are refused for these."""
    long = ["money " * 70]
    with pytest.warns(bert_embed.TruncationWarning, match="at 64 tokens: long_text='truncate' cut"):
        encoder.encode(long, long)
    with pytest.raises(bert_embed.SettingError, match=r"set long_text to truncate$"):
        encoder.encode(long, long, long_text="reject")


@pytest.mark.parametrize(
    ("ids", "splits", "message"),
    [
        ([2, 3] * 40, [0, 80], "rows must have at most 64 tokens, one has 80"),
        ([2, 3], [0, 0, 2], "rows must have at least 1 token, number 0 has none"),
        ([2, 9999, 3], [0, 3], "input_ids must be between 0 and"),
        ([2, -1, 3], [0, 3], "input_ids must be between 0 and"),
    ],
)
def test_rows_the_model_cannot_take_are_refused(encoder, ids, splits, message):
    with pytest.raises(ValueError, match=message):
        embed_rows(encoder, np.array(ids, np.int32), np.array(splits))


def test_rows_are_counted_with_their_filling(encoder):
    ids, splits = np.array([2, 40, 3, 2, 3], np.int32), np.array([0, 3, 5])
    done = embed_rows(encoder, ids, splits)
    assert (done.tokens, done.padded_tokens, done.batches, done.failed) == (5, 5, 2, {})
    none = embed_rows(encoder, ids[:0], splits[:1])
    assert (none.vectors.shape, none.tokens, none.padded_tokens) == ((0, 32), 0, 0)


def test_a_row_without_a_finite_vector_fails_alone(poisoned_bundle):
    poisoned = Encoder(read_bundle(poisoned_bundle))
    vault = small_vocabulary().index("vault")
    ids = np.array([2, 40, 3, 2, vault, 3, 2, 41, 3], np.int32)
    done = embed_rows(poisoned, ids, np.array([0, 3, 6, 9]))
    assert done.failed == {1: NOT_FINITE}
    assert not done.vectors[1].any()
    good = embed_rows(poisoned, np.delete(ids, [3, 4, 5]), np.array([0, 3, 6]))
    assert_near(done.vectors[[0, 2]], good.vectors)
    windows = {"long_text": "window"}
    for times, settings in ((1, {}), (80, windows)):
        with pytest.raises(RuntimeError, match="1 text failed, the first is 1: vector is not fi"):
            poisoned.encode(["bank " * times, "vault " * times, "bank"], **settings)
    with pytest.raises(RuntimeError, match="the model failed on all of 2 rows: vector is not"):
        poisoned.encode(["vault", "vault vault"])  # it is broken
