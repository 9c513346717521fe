"""Tokens, words, windows and prompts of real texts, against one plain row at a time."""

import numpy as np
import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.documents import tokenize_documents
from bert_embed.text.layout import lay_out
from tests.support.models.plain_bert import PlainBert, gelu
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

pytestmark = pytest.mark.numeric

TEXTS = [
    "The bank, of the river!",
    "money",
    "embeddings  are\tnot\u200b words",
    "Ünïcode café 銀行",
]


@pytest.fixture(scope="module")
def encoder(minilm):
    return Encoder(minilm)


@pytest.fixture(scope="module")
def tiny(tiny_bundle):
    return Encoder(read_bundle(tiny_bundle))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Ids of one row to its hidden states, `[3, tokens, hidden]`, in NumPy."""
    bert = PlainBert(write_tiny_huggingface(tmp_path_factory.mktemp("same")), 4, gelu)
    return lambda ids: np.stack(bert.hidden_states(np.array(ids), np.zeros(len(ids), np.int64)))


def test_tokens_carry_their_text_their_place_and_the_hidden_states(tiny, plain):
    units = tiny.units(TEXTS, layers=[-1, 0], layer_combine="concat")
    for text, found in zip(TEXTS, units, strict=True):
        ids = tiny.tokenizer.encode(text)
        assert found.texts == tiny.tokenizer.tokens(ids)
        states = plain(ids)
        assert_near(found.vectors, np.hstack([states[2], states[0]]))
        assert (found.starts[0], found.stops[0], found.starts[-1]) == (-1, -1, -1)
        offsets = tiny.tokenizer.encode_with_offsets([text])
        assert found.starts[1:-1].tolist() == offsets.starts.tolist()
        assert found.stops[1:-1].tolist() == offsets.stops.tolist()


def test_pairs_have_offsets_in_the_text_of_each_token(encoder):
    (found,) = encoder.units(["the bank"], texts_b=["of a river"])
    assert found.texts == ["[CLS]", "the", "bank", "[SEP]", "of", "a", "river", "[SEP]"]
    assert found.starts.tolist() == [-1, 0, 4, -1, 0, 3, 5, -1]
    assert found.stops.tolist() == [-1, 3, 8, -1, 2, 4, 10, -1]


def test_words_are_merged_from_their_tokens(encoder):
    text = "The embeddings, unquestionably."
    (found,) = encoder.units([text], "word", word_pooling="max")
    assert found.texts == ["The", "embeddings", ",", "unquestionably", "."]
    assert [text[a:b] for a, b in zip(found.starts, found.stops, strict=True)] == found.texts
    (tokens,) = encoder.units([text])
    assert tokens.texts[2:6] == ["em", "##bed", "##ding", "##s"]
    assert_near(found.vectors[1], tokens.vectors[2:6].max(0))


def test_the_callers_words_stay_one_to_one(encoder):
    words = ["EU", "", "rejects", "\u200b", "German-made", "call", "."]
    (found,) = encoder.units([words], "word", max_seq_length=9)
    assert found.texts == words
    (tokens,) = encoder.units([" ".join(words)], max_seq_length=9)
    assert tokens.texts[1:-1] == ["eu", "rejects", "german", "-", "made", "call", "."]
    alone = [np.isnan(vector).all() for vector in found.vectors]
    assert alone == [False, True, False, True, False, False, False]
    assert_near(found.vectors[4], tokens.vectors[3:6].mean(0))
    (cut,) = encoder.units([words], "word", max_seq_length=6)
    assert cut.texts == words
    assert np.isnan(cut.vectors[5:]).all()
    (tokens,) = encoder.units([" ".join(words)], max_seq_length=6)
    assert_near(cut.vectors[4], tokens.vectors[3:5].mean(0))


def test_lists_of_words_and_texts_may_stand_together_and_come_from_generators(encoder):
    found = encoder.units(iter(["two  words", iter(["two  words", "more"]), "!"]), "word")
    assert [each.texts for each in found] == [["two", "words"], ["two  words", "more"], ["!"]]
    assert found[0].starts.tolist() == [0, 5]
    assert found[1].starts.tolist() == [0, 11]
    assert encoder.units(iter(["two words"])) == encoder.units(["two words"])


def laid_out(encoder, texts, **settings):
    made = TextSpec(**{"max_seq_length": 16, "granularity": ("word",), **settings})
    documents = tokenize_documents(encoder.tokenizer, texts, offsets=True, prompt=made.prompt)
    return lay_out(documents, made, encoder.tokenizer)


def test_a_word_says_whether_it_was_cut(encoder):
    layout = laid_out(encoder, ["a b embeddings c"], max_seq_length=6)
    assert layout.words.texts == ["a", "b", "embeddings"]
    assert layout.words.truncated.tolist() == [False, False, True]
    assert (layout.words.last - layout.words.first).tolist() == [1, 1, 2]


def test_a_prompt_stands_before_the_text_and_has_no_place_in_it(encoder):
    layout = laid_out(encoder, ["river"], prompt="query: ", granularity=("token", "word"))
    names = encoder.tokenizer.tokens(layout.rows.input_ids)
    assert names == ["[CLS]", "query", ":", "river", "[SEP]"]
    assert layout.tokens.starts.tolist() == [-1, -1, -1, 0, -1]
    assert layout.tokens.stops.tolist() == [-1, -1, -1, 5, -1]
    assert layout.words.texts == ["river"]
    assert layout.words.first.tolist() == [3]


@pytest.mark.parametrize("prompt", ["find", "so: qx", "x" * 150, "river\u200b"])
def test_a_prompt_that_runs_into_the_text_is_refused(tiny, prompt):
    with pytest.raises(ValueError, match="would run into the first word of a text"):
        tiny.encode(["ing", "x" * 150], prompt=prompt)


def test_a_prompt_leaves_room_for_a_text(tiny):
    for long_text in ("truncate", "window"):
        with pytest.raises(ValueError, match="prompt has 5 tokens, which leaves no room"):
            tiny.encode(["the bank"], prompt="a " * 5, max_seq_length=7, long_text=long_text)


def test_windows_are_merged_by_their_tokens_and_then_scaled(tiny, plain):
    tokenizer = tiny.tokenizer
    text = "the bank of the river and the money of the bank"
    ids = tokenizer.encode(text)[1:-1]
    spec = VectorSpec(pool_special_tokens=False, normalize=True, dim=7)
    encoder = Encoder(tiny.bundle, spec)
    found = encoder.encode([text, "bank"], max_seq_length=8, long_text="window", overlap=2)
    spans = [(at, min(at + 6, len(ids))) for at in range(0, len(ids) - 2, 4)]
    rows = [[tokenizer.cls_id, *ids[a:b], tokenizer.sep_id] for a, b in spans]
    means = [plain(row)[-1][1:-1].mean(0) for row in rows]
    merged = np.average(means, axis=0, weights=[b - a for a, b in spans])[:7]
    assert_near(found[0], merged / np.linalg.norm(merged))
    assert_near(found[1], encoder.encode(["bank"])[0])


def test_a_stack_has_an_axis_of_layers(tiny):
    stack = {"layers": [-1, 0], "layer_combine": "stack"}
    found = tiny.encode(["bank of", "river"], **stack)
    assert found.shape == (2, 2, 32)
    assert_near(found[:, 1], tiny.encode(["bank of", "river"], layers=[0]))
    (tokens,) = tiny.units(["bank of"], **stack)
    assert tokens.vectors.shape == (4, 2, 32)
    (words,) = tiny.units(["bank of"], "word", dim=3, **stack)
    assert words.vectors.shape == (2, 2, 3)
    assert_near(words.vectors, tokens.vectors[1:3, :, :3])
