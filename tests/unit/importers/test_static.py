"""Static models: a table and a mean, as sentence-transformers and model2vec compute them."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from bert_embed.backends.probe import verify
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.models.static import NO_LIMIT
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.static import GOLDEN, LONG, MODEL2VEC, MODULES, TEXTS, write_static

VECTORS = np.load(GOLDEN)


def imported(folder, kind):
    write_static(folder / "source", kind)
    return import_huggingface(str(folder / "source"), str(folder / "bundle"))


@pytest.fixture(scope="module")
def potion(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("potion"), "potion")


@pytest.mark.parametrize("kind", [*MODULES, *MODEL2VEC])
def test_vectors_are_those_of_the_library_that_wrote_the_model(tmp_path, kind):
    bundle = imported(tmp_path, kind)
    encoder = Encoder(bundle, threads=1)
    assert isinstance(encoder.tokenizer, JsonTokenizer) == (kind == "unigram")
    texts = [*TEXTS, LONG]
    found = encoder.encode(texts, long_text="truncate")
    np.testing.assert_allclose(found, VECTORS[kind], atol=1e-5)
    for text, vector in zip(texts, found, strict=True):
        np.testing.assert_array_equal(encoder.encode(text, long_text="truncate"), vector)
    assert not verify(read_bundle(bundle.path)).problem


def test_length_is_that_of_the_files_and_else_without_limit(tmp_path, potion):
    lengths = {kind: imported(tmp_path / kind, kind).max_seq_length for kind in ("plain", "shared")}
    assert lengths == {"plain": NO_LIMIT, "shared": 100}
    assert potion.max_seq_length == 512
    cut = Encoder(potion, threads=1).encode(LONG, long_text="truncate")
    whole = Encoder(potion, threads=1).encode(LONG, max_seq_length=10**6)
    assert np.abs(cut - whole).max() > 1e-3
    write_static(tmp_path / "cut" / "source", "plain")
    path = tmp_path / "cut" / "source" / "0_StaticEmbedding" / "tokenizer.json"
    truncation = {"max_length": 9, "direction": "Right", "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": truncation}))
    cut = import_huggingface(str(tmp_path / "cut" / "source"), str(tmp_path / "cut" / "bundle"))
    assert cut.max_seq_length == 9


def test_tokens_words_chunks_and_windows_have_no_special_tokens(potion):
    encoder = Encoder(potion, threads=1)
    text = "the banks of the river"
    (tokens,) = encoder.units([text])
    assert tokens.texts == ["the", "bank", "##s", "of", "the", "river"]
    assert tokens.starts.tolist() == [0, 4, 8, 10, 13, 17]
    mean = tokens.vectors.mean(axis=0)
    found = encoder.encode(text)
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-6)
    (words,) = encoder.units([text], of="word")
    np.testing.assert_allclose(words.vectors[1], tokens.vectors[1:3].mean(axis=0), atol=1e-6)
    # Windows that share nothing are merged to the mean of all tokens.
    windows = encoder.encode(text, max_seq_length=4, long_text="window", stride=0)
    np.testing.assert_allclose(windows, found, atol=1e-6)
    np.testing.assert_array_equal(tokens.vectors[0], tokens.vectors[4])
    prompted = encoder.encode("river", prompt="the ")
    np.testing.assert_allclose(prompted, encoder.encode("the river"), atol=1e-6)
    alone = encoder.encode("river", prompt="the ", pool_prompt=False)
    np.testing.assert_allclose(alone, encoder.encode("river"), atol=1e-6)
    np.testing.assert_allclose(
        encoder.encode(text, pooling="max", normalize=False), tokens.vectors.max(axis=0)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "int8"}, "precision int8 does not compute this model, a table"),
        ({"device": "gpu"}, "device gpu does not compute this model"),
        ({"engine": "tensorflow"}, "engine tensorflow does not compute this model"),
    ],
)
def test_what_is_for_layers_is_refused_by_name(potion, settings, message):
    with pytest.raises(ValueError, match=message):
        Encoder(potion, **settings)


def test_layers_that_it_does_not_have_are_refused(potion):
    with pytest.raises(ValueError, match="must be between -1 and 0 for this 0-layer model"):
        Encoder(potion).encode("a", layers=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"max_length": 0}}, "max_length must be a positive integer"),
        ({"config": {"normalize": "yes"}}, "normalize must be true or false"),
        ({"config": {"pool": "max"}}, "pool is not supported"),
        ({"tensors": {"mapping": np.full(9, 1)}}, r"tensor mapping must be \[\d+\], is \[9\]"),
        ({"tensors": {"other": np.ones(3, np.float32)}}, "other is not part of a static model"),
        ({"tokenizer": {"truncation": {"direction": "Left"}}}, "truncation_side must be right"),
        ({"tokenizer": {"truncation": {"max_length": "9"}}}, "max_length must be a positive int"),
        ({"tokenizer": {"added_tokens": [{"content": {}}]}}, "of added_tokens is no token"),
        (
            {"tokenizer": {"model": {"vocab": {"[UNK]": 0, "a": None}}}},
            "tokenizer.json: cannot be read: data did",
        ),
    ],
)
def test_what_would_give_other_vectors_is_refused(tmp_path, change, message):
    source = tmp_path / "source"
    write_static(source, "potion")
    for name, changes in change.items():
        if name == "tensors":
            weights = load_file(source / "model.safetensors") | changes
            save_file(weights, source / "model.safetensors")
            continue
        path = source / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message):
        import_huggingface(str(source), str(tmp_path / "bundle"))


def test_the_id_of_an_added_token_is_that_of_the_vocabulary_whatever_its_file_says(tmp_path):
    write_static(tmp_path / "source", "potion")
    plain = import_huggingface(str(tmp_path / "source"), str(tmp_path / "plain"))
    path = tmp_path / "source" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"] = [{"id": 99_999, "content": "[PAD]", "special": True, **flags}]
    path.write_text(json.dumps(tokenizer))
    bundle = import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    texts = TEXTS[:4]
    np.testing.assert_array_equal(Encoder(bundle).encode(texts), Encoder(plain).encode(texts))


@pytest.mark.parametrize("kind", ["plain", "weighted", "shared"])
def test_rows_of_the_table_that_no_token_has_change_no_vector(tmp_path, kind):
    write_static(tmp_path / "source", kind)
    plain = import_huggingface(str(tmp_path / "source"), str(tmp_path / "plain"))
    (path,) = (tmp_path / "source").rglob("model.safetensors")
    weights = load_file(path)
    name = max(weights, key=lambda name: weights[name].ndim)
    save_file(weights | {name: np.concatenate([weights[name]] * 2)}, path)
    bundle = import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    texts = TEXTS[:4]
    np.testing.assert_array_equal(Encoder(bundle).encode(texts), Encoder(plain).encode(texts))


def test_a_tokenizer_without_a_normalizer_keeps_letters_as_they_are(tmp_path):
    write_static(tmp_path / "source", "potion")
    path = tmp_path / "source" / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": None}))
    bundle = import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    right = Tokenizer.from_file(str(path)).encode("The bank", add_special_tokens=False)
    assert load_tokenizer(bundle).encode("The bank") == right.ids
