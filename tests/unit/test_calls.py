"""What `encode` and its sisters take from people and other libraries, and what they return."""

import copy
import io
import itertools
import pickle
import sys
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bert_embed
from bert_embed import SettingError
from bert_embed.backends import runner
from bert_embed.backends.choose import load_engine
from bert_embed.backends.runner import RowSpec
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.settings import VectorSpec
from bert_embed.text.documents import TokenRows
from tests.support.models.folder import change, imported
from tests.support.models.heads import write_classifier
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

pytestmark = pytest.mark.numeric

TEXTS = ["the bank of the river", "money", "a robber"]


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle, threads=1)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompted")
    prompts = {"query": "find: ", "document": "read: ", "passage": "no: "}
    write_sentence_transformers(folder / "source", prompts=prompts)
    return bert_embed.load(imported(folder).path)


@pytest.mark.parametrize(
    "column",
    [
        tuple(TEXTS),
        (text for text in TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, np.dtypes.StringDType()),
        pd.Series(TEXTS, index=[7, 8, 9]),
        pd.Series(TEXTS, dtype="category"),
        pd.Index(TEXTS),
        pl.Series(TEXTS),
        pa.array(TEXTS),
        pa.array(TEXTS).dictionary_encode(),
        pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_column_of_any_library_gives_the_vectors_of_a_list(encoder, column):
    np.testing.assert_array_equal(encoder.encode(column), encoder.encode(TEXTS))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.DataFrame({"text": TEXTS}), "a DataFrame: give one of its columns"),
        (pl.DataFrame({"text": TEXTS}), "a DataFrame: give one of its columns"),
        (pa.table({"text": TEXTS}), "a Table: give one of its columns"),
        (np.array([TEXTS, TEXTS]), "a ndarray"),
    ],
)
def test_what_is_no_column_of_texts_is_refused(encoder, column, message):
    with pytest.raises(SettingError, match=f"texts must be a list of texts, got {message}"):
        encoder.encode(column)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 3)), "must name outputs of runs, got a ndarray; vectors in memory"),
        (["out", 1], "must name outputs of runs, got a int"),
        ([], "must name an output, got none"),
    ],
    ids=str,
)
def test_what_is_no_output_is_refused_by_the_name_of_its_argument(given, message):
    with pytest.raises(SettingError, match=f"^folders {message}"):
        bert_embed.nearest(given, ["the bank"])
    with pytest.raises(SettingError, match=f"^source {message}"):
        bert_embed.export(given, "index", "npy")


def test_what_is_no_query_is_refused():
    for given, message in (
        (None, "must be a list of texts, got a NoneType"),
        (pd.Series(["the bank", None]), "must be str, number 1 is missing"),
    ):
        with pytest.raises(SettingError, match=f"^queries {message}"):
            bert_embed.nearest("out", given)


def test_one_text_gives_one_vector(encoder):
    one = encoder.encode("the bank")
    assert (one.shape, one.dtype) == ((32,), np.float32)
    np.testing.assert_array_equal(one, encoder.encode(["the bank"])[0])
    assert encoder.encode("the bank", layers=[1, 2], layer_combine="stack").shape == (2, 32)
    with pytest.raises(SettingError, match=r"a pair is encode\(\[one\], \[other\]\)"):
        encoder.encode("the bank", "query")  # which sentence-transformers takes for a prompt's name
    with pytest.raises(SettingError, match="texts_b is for pairs, texts must be a list then"):
        encoder.encode("the bank", ["a river"])


def test_an_encoder_is_loaded_anew_elsewhere_and_cannot_be_changed(encoder):
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    with pytest.raises(AttributeError, match="truncate_dim cannot be set"):
        encoder.truncate_dim = 8


def test_a_copy_shares_the_loaded_model_and_has_a_length_of_its_own(tiny_bundle):
    loads = []

    def load(*arguments):
        loads.append(load_engine(*arguments))
        return loads[-1]

    encoder = bert_embed.Encoder(read_bundle(tiny_bundle), load_engine=load)
    encoder.max_seq_length = 16
    for copied in (copy.deepcopy({"model": encoder})["model"], copy.copy(encoder)):
        np.testing.assert_array_equal(copied.encode(TEXTS), encoder.encode(TEXTS))
        assert copied.max_seq_length == 16
    copied.max_seq_length = 5
    assert encoder.max_seq_length == 16
    assert len(loads) == 1


def test_a_slow_call_says_how_far_it_is_from_its_first_batches(encoder, monkeypatch):
    """Not only after 1,024 texts; one of its batches takes over half a second."""
    pad, calls, stream = runner.pad_rows, itertools.count(), io.StringIO()

    def padded(*arguments):
        if next(calls) == 4:
            time.sleep(0.6)
        return pad(*arguments)

    monkeypatch.setattr(runner, "pad_rows", padded)
    monkeypatch.setattr(sys, "stderr", stream)
    texts = [f"number {number}" for number in range(60)]
    encoder.encode(texts, batch_tokens=64, show_progress_bar=True)
    monkeypatch.undo()
    first, *_, last = stream.getvalue().split("\r")[1:]
    done = int(first.split()[0])
    assert 1 < done < 60
    assert last.startswith("60 of 60 texts, ")


def test_in_a_notebook_a_call_changes_one_line_in_place(encoder, notebook, monkeypatch):
    monkeypatch.setattr(sys, "stderr", notebook.stderr)
    texts = [f"number {number}" for number in range(2500)]
    found = encoder.encode(texts, show_progress_bar=True)
    assert_near(found, encoder.encode(texts))
    assert len(notebook.shown) == 1
    assert "2,500 of 2,500 texts" in [*notebook.shown, *notebook.updates][-1]
    assert notebook.stderr.getvalue() == ""


def test_a_recipe_gives_what_its_settings_give(encoder, tiny_bundle):
    wanted = encoder.encode(TEXTS, layers=[1, 2], layer_combine="sum", pooling="mean")
    assert_near(encoder.encode(TEXTS, pooling="sum-all"), wanted)
    loaded = bert_embed.load(tiny_bundle, pooling="sum-all", dim=5)
    assert_near(loaded.encode(TEXTS), wanted[:, :5])
    (tokens,) = loaded.units(["the bank"])
    (given,) = encoder.units(["the bank"], layers=[1, 2], layer_combine="sum", dim=5)
    assert_near(tokens.vectors, given.vectors)


def test_tokens_and_words_follow_the_layers_and_the_prompt_of_the_encoder(tiny_bundle, encoder):
    loaded = bert_embed.load(tiny_bundle, layers=1, prompt="find: ", normalize=True)
    for of in ("token", "word"):
        [found] = loaded.units(["the bank"], of)
        [wanted] = encoder.units(["find: the bank"], of, layers=1)
        assert found.texts == wanted.texts[-len(found) :]
        assert_near(found.vectors, wanted.vectors[-len(found) :])
    assert loaded.units(["the bank"])[0].starts.tolist() == [-1, -1, -1, 0, 4, -1]


def test_one_text_gives_its_own_tokens_and_words(encoder):
    for of in ("token", "word"):
        one, (listed,) = encoder.units("the bank", of), encoder.units(["the bank"], of)
        assert one.texts == listed.texts
        assert one == listed
        assert one in [listed]
        assert one != encoder.units("the river", of)
        assert {one.starts.dtype, one.stops.dtype} == {np.dtype(np.int32)}
    [without_token] = encoder.units([["", "a"]], "word")
    assert np.isnan(without_token.vectors[0]).all()
    assert without_token == copy.copy(without_token)


def test_words_of_a_text_are_the_same_beside_a_list_of_words(model_of):
    """Also where a space is a token of its own."""
    other = bert_embed.load(model_of(write_classifier, "roberta", 3).path)
    text = f"{'x' * 30} é Ünï money"
    assert other.units([["a"], text], "word")[1] == other.units(text, "word")


def test_units_of_long_texts_may_be_computed_in_windows(encoder):
    text = "the bank of the river " * 20
    with pytest.warns(bert_embed.TruncationWarning):
        assert len(encoder.units([text], "word")[0]) == 62
    assert len(encoder.units([text], "word", long_text="window", overlap=8)[0]) == 100
    with pytest.raises(SettingError, match="texts number 1 is longer than 64 tokens"):
        encoder.units(["the bank", text], long_text="reject")


@pytest.mark.parametrize(
    ("method", "of"),
    [
        *((method, ()) for method in ("encode", "encode_query", "encode_document", "units")),
        ("units", ("word",)),
    ],
)
def test_one_warning_a_call_says_how_many_texts_were_cut_and_where(encoder, method, of):
    """A line of ours would be shown once for all callers."""
    texts = ["money " * 90, "bank", "river " * 90]
    call = getattr(encoder, method)
    with pytest.warns(bert_embed.TruncationWarning) as caught:
        call(texts, *of, max_seq_length=32)
    (only,) = caught
    assert str(only.message).startswith("2 of 3 texts were cut at 32 tokens: long_text='window'")
    assert "max_seq_length up to 64 keeps more" in str(only.message)
    assert only.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for settings in ({"long_text": "window"}, {"long_text": "truncate"}):
            call(texts, *of, **settings)
        call(["bank"], *of)


def test_queries_and_documents_get_the_prompts_of_the_model(prompted, encoder):
    for method, prompt in (("encode_query", "query"), ("encode_document", "document")):
        found = getattr(prompted, method)("the bank")
        assert_near(found, prompted.encode("the bank", prompt=f"name:{prompt}"))
        assert np.abs(found - prompted.encode("the bank")).max() > 1e-3
        own = getattr(prompted, method)("the bank", prompt="")
        assert_near(own, prompted.encode("the bank"))
    named = prompted.encode("the bank", prompt="name:query")
    assert_near(named, prompted.encode("the bank", prompt="find: "))
    np.testing.assert_array_equal(prompted.encode("the bank", prompt_name="query"), named)
    np.testing.assert_array_equal(encoder.encode_query(TEXTS), encoder.encode(TEXTS))


def test_a_default_prompt_of_another_name_is_for_no_query_and_no_document(tmp_path):
    prompts = {"clustering": "name: "}
    write_sentence_transformers(tmp_path / "source", prompts=prompts, default_prompt="clustering")
    encoder = bert_embed.load(imported(tmp_path).path)
    asked = bert_embed.load(tmp_path / "bundle", prompt="name:clustering")
    bare, usual = encoder.encode(TEXTS, prompt=""), encoder.encode(TEXTS)
    assert np.abs(usual - bare).max() > 1e-3
    for method in ("encode_query", "encode_document"):
        np.testing.assert_array_equal(getattr(encoder, method)(TEXTS), bare)
        np.testing.assert_array_equal(getattr(asked, method)(TEXTS), usual)


def test_an_encoder_says_what_it_is(encoder, tiny_bundle):
    assert (encoder.dimension, encoder.device) == (32, "cpu")
    assert bert_embed.Encoder(encoder.bundle, VectorSpec(dim=4)).dimension == 4
    with pytest.raises(SettingError, match=r"must be a Bundle: bert_embed\.load takes"):
        bert_embed.Encoder("minilm")
    cut = bert_embed.load(tiny_bundle, pooling="cls", dim=7)
    assert cut.dimension == 7
    said = "dimension=7, layers=(-1,), pooling='cls' (its files name none), max_seq_length=64"
    assert said in repr(cut)


def test_the_length_of_texts_can_be_set(tiny_bundle):
    encoder = bert_embed.load(tiny_bundle, max_seq_length=6)
    assert encoder.max_seq_length == 6
    long, short = "money " * 9, "money " * 4
    with pytest.warns(bert_embed.TruncationWarning, match="cut at 6 tokens"):
        assert_near(encoder.encode(long), encoder.encode(short))
    encoder.max_seq_length = 64
    assert np.abs(encoder.encode(long) - encoder.encode(short)).max() > 1e-3
    for wrong, message in ((65, "must be between 3 and 64"), ("9", "must be an integer")):
        with pytest.raises(SettingError, match=f"max_seq_length {message}"):
            encoder.max_seq_length = wrong


def test_a_length_that_a_thread_sets_meanwhile_is_for_later_calls(tiny_bundle):
    class Changed(Encoder):
        _max_seq_length = property(lambda self: next(lengths), lambda self, length: None)

    lengths = itertools.cycle([6, 64])
    with pytest.warns(bert_embed.TruncationWarning, match="cut at 6 tokens"):
        found = Changed(read_bundle(tiny_bundle)).encode("money " * 9)
    assert_near(found, bert_embed.load(tiny_bundle, max_seq_length=6).encode("money " * 4))


def test_similarities_are_cosines(encoder):
    one, other = np.array([[1, 0], [1, 1], [0, 0]]), [[2, 0], [0, 3], [1, -1]]
    half = np.sqrt(0.5)
    found = encoder.similarity(one, other)
    assert found.dtype == np.float32
    assert_near(found, [[1, 0, half], [half, half, 0], [0, 0, 0]])
    assert_near(encoder.similarity_pairwise(one, other), [1, half, 0])
    assert encoder.similarity([1, 0], one).shape == (1, 3)
    for column in (pd.Series([*one]), pl.Series(one.tolist()), pa.array(one.tolist())):
        assert_near(encoder.similarity(column, other), found)
    for wrong, message in (
        ([[1, 2, 3]], "other must be vectors of 2 numbers, got 3"),
        ([["a", "b"]], r"other must be vectors, numbers \[vectors, dim\]"),
        (np.ones((1, 1, 2)), r"other must be numbers \[vectors, dim\] or \[dim\], got \(1, 1, 2\)"),
        (None, r"other must be numbers \[vectors, dim\] or \[dim\], got \(\)"),
    ):
        with pytest.raises(SettingError, match=message):
            encoder.similarity(one, wrong)
    with pytest.raises(SettingError, match="other must be 3 vectors as the first, got 1"):
        encoder.similarity_pairwise(one, [1, 0])


def test_documents_are_ranked_by_what_the_model_is_for(prompted, monkeypatch):
    texts = ["the bank", "money", "a robber", "the bank"]
    ranked = prompted.rank("the river", texts)
    scores = prompted.similarity(
        prompted.encode_query("the river"), prompted.encode_document(texts)
    )
    assert [hit.number for hit in ranked] == np.argsort(-scores[0], kind="stable").tolist()
    assert [hit.score for hit in prompted.rank("the river", texts, k=1)] == [scores.max()]
    with pytest.raises(SettingError, match="model is no cross-encoder: it has no sc"):
        prompted.score([("a", "b")])
    monkeypatch.setattr(prompted.embedder, "run", None)  # which a wrong argument does not reach
    for given, message in (
        (("the river", texts, 0), "k must be at least 1, got 0"),
        ((["the river"], texts), "query must be one text, got a list"),
        (("the river", [None]), "documents must be str, number 0 is missing"),
    ):
        with pytest.raises(SettingError, match=message):
            prompted.rank(*given)
    with pytest.raises(SettingError, match=r"top_k is not a setting; did you mean k\?"):
        prompted.rank("the river", texts, top_k=1)  # of sparse vectors it was the weights kept


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


def test_a_text_without_a_finite_vector_is_counted_in_the_error(poisoned_bundle):
    poisoned = Encoder(read_bundle(poisoned_bundle))
    windows = {"long_text": "window"}
    for times, settings in ((1, {}), (80, windows)):
        with pytest.raises(RuntimeError, match="1 text failed, the first is 1: vector is not fi"):
            poisoned.encode(["bank " * times, "vault " * times, "bank"], **settings)
    with pytest.raises(RuntimeError, match="the model failed on all of 2 rows: vector is not"):
        poisoned.encode(["vault", "vault vault"])  # it is broken
