"""Arguments of the Python API: each wrong one is refused by name; half a second a model."""

import pickle
import re
import traceback
from decimal import Decimal
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bert_embed
from bert_embed.base.errors import InputError, SettingError
from bert_embed.transforms import BertEmbeddings, BertModelHandler, EmbedDocuments

TEXTS = ["the bank of the river", "money"]
PAIRED_WINDOWS = {"texts_b": TEXTS, "long_text": "window", "overlap": 1}


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle, threads=1)


# Wrong for every method that takes texts.
EVERYWHERE = [
    (TEXTS, {"dim": "3"}, "dim must be an integer, got '3'"),
    (TEXTS, {"dim": 0}, "dim must be at least 1, got 0"),
    (TEXTS, {"dim": 33}, "dim must be between 1 and 32 for this model"),
    (TEXTS, {"layers": []}, "layers must name at least one layer"),
    (TEXTS, {"layers": "-1"}, "layers must be integers, such as [-1, -2], got '-1'"),
    (TEXTS, {"layers": [0.5]}, "layers must be an integer, got 0.5"),
    (TEXTS, {"layers": [-1, -2]}, "layers names 2 layers: say how they become one"),
    (TEXTS, {"layers": [3]}, "layers must be between -3 and 2"),
    (TEXTS, {"normalize": 1}, "normalize must be True or False, got 1"),
    (TEXTS, {"max_seq_length": 65}, "max_seq_length must be between 3 and 64"),
    (TEXTS, {"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
    (b"abc", {}, "texts must be a list of texts"),
    ({"a": 1}, {}, "got a dict"),
    (TEXTS, {"poling": "cls"}, "poling is not a setting; did you mean"),
    (TEXTS, {"show_progress_bar": 1}, "show_progress_bar must be True or False, got 1"),
    (TEXTS, {"prompt": "name:query"}, "prompt name:query is none of this model's prompts"),
]


@pytest.mark.parametrize(
    ("method", "texts", "settings", "message"),
    [
        ("encode", ["a", b"b"], {}, "number 1 is"),
        ("units", ["a", b"b"], {"of": "word"}, "got one bytes"),
        ("units", "abc", {"texts_b": ["b"]}, "texts_b is for pairs, texts must be a list"),
        ("units", TEXTS, {"of": "sentence"}, "of must be one of token, word, got 'sentence'"),
        ("units", TEXTS, {"word_pooling": "max"}, "word_pooling is of words"),
        ("units", TEXTS, {"of": "word", "texts_b": TEXTS}, "texts_b is for pairs, which have vec"),
        ("encode", TEXTS, {"pooling": ["cls"]}, "pooling must be a str, got ['cls'"),
        ("encode", TEXTS, {"pooling": "best"}, "pooling must be one of"),
        ("encode", TEXTS, {"texts_b": "b"}, "texts_b must be a list of texts, got one str"),
        ("encode", TEXTS, {"texts_b": []}, "texts_b must be 2 texts, got 0"),
        ("encode", TEXTS, PAIRED_WINDOWS, "long_text window is for single texts"),
        ("encode", TEXTS, {"prompt_name": "query"}, "prompt name:query is none of this model's"),
        ("encode", TEXTS, {"prompt_name": "a", "prompt": "b"}, "prompt_name and prompt: give on"),
        ("encode", TEXTS, {"pooling": "sum-last-four"}, "pooling sum-last-four requires 4 layers"),
        ("encode", TEXTS, {"pooling": "sum-all", "layers": 1}, "pooling sum-all sets layers, give"),
        ("encode", [("a", "b")], {}, "texts must be str, number 0 is tuple; pairs are two lists"),
        ("encode", TEXTS, {"prompt": 3}, "prompt must be a str, got 3"),
        ("encode", TEXTS, {"kind": ["dense"]}, "kind must be one of dense, sparse, multi, scores"),
        ("encode", TEXTS, {"long_text": "windows"}, "long_text windows gives several vectors"),
        ("encode", TEXTS, {"overlap": 3}, "overlap requires long_text window"),
        ("units", ["a", {"b": 1}], {"of": "word"}, "texts[1] must be a list of texts, got a dict"),
        ("units", [["a", 3]], {"of": "word"}, "texts[0] must be str, number 1 is int"),
    ],
)
def test_a_wrong_argument_is_named(encoder, method, texts, settings, message):
    refused_by(encoder, method, texts, settings, message)


def test_a_wrong_argument_is_named_by_every_method(encoder):
    for texts, settings, message in EVERYWHERE:
        refused_by(encoder, "encode", texts, settings, message)
        for of in ("token", "word"):
            refused_by(encoder, "units", texts, settings | {"of": of}, message)


def refused_by(encoder, method, texts, settings, message):
    with pytest.raises(SettingError, match=re.escape(message)) as refused:
        getattr(encoder, method)(texts, **settings)
    assert str(refused.value).startswith(refused.value.setting)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": None}, "model must be a str, got None"),
        ({"threads": 1.5}, "threads must be an integer, got 1.5"),
        ({"precision": ["int8"]}, "precision must be one of float32,"),
        ({"dense": -1}, "dense must be at least 0, got -1"),
        ({"color": 1}, "color is not a setting, those are dense, device, dim, engine, layer"),
        ({"model_name": "a"}, "model_name is not a setting; did you mean model?"),
        ({"prompts": {}}, "prompts is not offered: prompt takes one text, or name:NAME"),
        ({"token": "a"}, "token is not offered: HF_TOKEN has the token"),
        ({"torch_dtype": "float16"}, "torch_dtype is not a setting; did you mean precision?"),
        ({"revision": "a"}, "revision is not offered: give it behind the model's name"),
    ],
)
def test_a_wrong_argument_of_load_is_named(tiny_bundle, settings, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        bert_embed.load(**{"model": tiny_bundle} | settings)


OF_TRANSFORMS = {  # by those that take the argument
    (EmbedDocuments, BertEmbeddings, BertModelHandler): [
        ({"large_model": "yes"}, "large_model must be True or False, got 'yes'"),
        ({"max_seq_length": 65}, "max_seq_length must be between 3 and 64"),
        ({"layer_combine": "stack"}, "layer_combine stack gives several vectors"),
        ({"normalize": "yes"}, "normalize must be True or False, got 'yes'"),
        ({"colour": "red"}, "colour is not a setting"),
        ({"model": "nowhere"}, "model must be minilm"),
    ],
    (EmbedDocuments, BertModelHandler): [
        ({"column": ""}, "column must be the name of a field, got ''"),
        ({"text_b_column": "text"}, "columns must differ from each other, got column='text', "),
        ({"text_b_column": "b", "long_text": "window"}, "text_b_column makes pairs"),
    ],
    (BertEmbeddings, BertModelHandler): [
        ({"as_rows": True}, "as_rows is a setting of another transform"),
    ],
    (EmbedDocuments,): [
        ({"layers": [1, 2]}, "layer_combine"),
        ({"long_text": "window", "overlap": 62}, "overlap must be at least 0 and below 62"),
        ({"prompt": "a " * 62}, "prompt has 62 tokens, which leaves no room"),
        ({"output_column": "text"}, "differ from each other, got column='text', output_column="),
        ({"as_rows": True, "as_numpy": True}, "as_numpy conflicts with as_rows"),
        ({"vectors": ["scores"]}, "scores: this model makes dense vectors"),
        ({"vectors": "dense,sparse"}, 'must be a list of names: write ["dense", "sparse"]'),
    ],
    (BertEmbeddings,): [
        ({"columns": "text"}, "columns must be a list of different names, got 'text'"),
        ({"columns": (name for name in "ab")}, "must be a list of different names, got <generator"),
        ({"columns": ["a", "a"]}, "columns must be a list of different names, got ['a', 'a']"),
        ({"output_columns": ["b", "c"]}, "output_columns must be as many as columns"),
    ],
    (BertModelHandler,): [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1, got 0"),
        ({"model_copies": 1.5}, "model_copies must be an integer, got 1.5"),
        ({"max_batch_duration_secs": "1"}, "max_batch_duration_secs must be a number of seconds"),
        ({"max_batch_duration_secs": 0}, "max_batch_duration_secs must be over 0, got 0"),
        ({"max_batch_duration_secs": float("inf")}, "must be finite, got inf"),
    ],
}


@pytest.mark.parametrize(
    ("transform", "settings", "message"),
    [(one, *row) for some, rows in OF_TRANSFORMS.items() for one in some for row in rows],
)
def test_a_wrong_argument_of_a_transform_is_named(tiny_bundle, transform, settings, message):
    columns = {"columns": ["text"]} if transform is BertEmbeddings else {}
    with pytest.raises(SettingError, match=re.escape(message)):
        transform(**{"model": tiny_bundle} | columns | settings)


def test_what_is_meant_is_taken(encoder, tiny_bundle):
    wanted = encoder.encode(TEXTS, layers=[-2])
    for layers in (-2, (-2,), np.array([-2]), np.array(-2), iter([-2])):
        np.testing.assert_array_equal(encoder.encode(TEXTS, layers=layers), wanted)
    loaded = bert_embed.load(
        Path(tiny_bundle), threads=np.int64(1), normalize=np.True_, dense=False
    )
    np.testing.assert_allclose(np.linalg.norm(loaded.encode(TEXTS), axis=1), 1, atol=1e-6)
    BertModelHandler(model=tiny_bundle, max_batch_duration_secs=np.float32(0.5))


NAN = float("nan")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (pd.Series(["a", None]), 'is missing (NaN): give "" instead, or leave it out'),
        (pd.Series(["a", pd.NA], dtype="string"), "is missing (NA)"),
        (pl.Series(["a", None]), "is missing (None)"),
        (pa.array(["a", None]), "is missing (None)"),
        (np.array(["a", NAN], object), "is missing (NaN)"),
        (["a", Decimal("nan")], "is missing (NaN)"),
        (("a", None), "is missing (None)"),
        (datasets.Dataset.from_dict({"t": ["a", None]})["t"], "is missing (None)"),
    ],
)
def test_a_missing_text_is_named_as_one(encoder, texts, message):
    said = f"must be str, number 1 {message}"
    for method, of in (("encode", {}), ("units", {}), ("units", {"of": "word"})):
        refused_by(encoder, method, texts, of, f"texts {said}")
    refused_by(encoder, "encode", ["a", "b"], {"texts_b": texts}, f"texts_b {said}")


SENTENCE_TRANSFORMERS = {
    "sentences": (["a"], "sentences comes first here, without a name"),
    "output_value": ("token_embeddings", "output_value is not offered: units gives"),
    "convert_to_numpy": (True, "convert_to_numpy is not needed: vectors are NumPy arrays"),
    "device": ("cpu", "device is the model's: give it to bert_embed.load"),
    "normalize_embeddings": (True, "normalize_embeddings is not a setting; did you mean normal"),
    "pool": ({}, "pool is not offered: threads of bert_embed.load"),
}


@pytest.mark.parametrize("name", SENTENCE_TRANSFORMERS)
def test_an_argument_of_sentence_transformers_says_what_to_write(encoder, name):
    value, message = SENTENCE_TRANSFORMERS[name]
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        for texts in ((["a"],), ()) if name == "sentences" else ((["a"],),):
            with pytest.raises(SettingError, match=re.escape(message)):
                method(*texts, **{name: value})
    with pytest.raises(SettingError, match="texts must be a list of texts, got a NoneType"):
        encoder.encode(normalize=True)


def test_no_texts_give_no_vectors_and_an_empty_text_one(encoder):
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert encoder.encode([], dim=7).shape == (0, 7)
    assert encoder.units([]) == []
    np.testing.assert_array_equal(encoder.encode(["", "a"])[0], encoder.encode(""))
    assert np.isfinite(encoder.encode("")).all()


def test_the_tokenizer_takes_texts_alone_and_reads_a_generator_once(encoder):
    tokenizer = encoder.tokenizer
    for texts in ("abc", {"a": 1}, {"a"}, [1], ["a", None], None):
        for call in (tokenizer.encode_flat, tokenizer.encode_with_offsets):
            with pytest.raises(SettingError, match="texts must be"):
                call(texts)
        if texts != "abc":
            with pytest.raises(SettingError, match="text must be a str"):
                tokenizer.encode(texts)
    with pytest.raises(SettingError, match=r"text must be a str, got a list$"):
        tokenizer.encode(["a secret"])
    ids, splits = tokenizer.encode_flat(text for text in TEXTS)
    np.testing.assert_array_equal(ids, tokenizer.encode_flat(TEXTS)[0])
    assert len(splits) == 3


def test_no_text_stands_in_a_message(encoder):
    with pytest.raises(SettingError) as refused:
        encoder.encode(["a secret text", 3, "another"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "error", [InputError("a message", "dim"), SettingError("overlap", "requires long_text", "x")]
)
def test_errors_come_from_other_processes_as_they_were(error):
    (shown,) = traceback.format_exception_only(error)
    assert shown == f"bert_embed.{type(error).__name__}: {error}\n"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.settings) == (type(error), str(error), error.settings)


def test_a_checkpoint_is_named_by_its_folder_and_a_run_by_its_own(tmp_path):
    with pytest.raises(SettingError, match="must be the folder of a checkpoint: give there"):
        bert_embed.load("there/bert_model.ckpt")
    (tmp_path / "v.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"v\.npy is a file; give the output folder of a run"):
        bert_embed.read(tmp_path / "v.npy")
