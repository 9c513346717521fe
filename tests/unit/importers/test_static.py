"""Static models: a table and a mean, as sentence-transformers and model2vec compute them."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import bert_embed
from bert_embed.backends.probe import verify
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.models.static import NO_LIMIT
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.folder import change, imported, refused
from tests.support.models.static import GOLDEN, LONG, MODEL2VEC, MODULES, TEXTS, write_static

VECTORS = np.load(GOLDEN)
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def static(folder, kind, files=None):
    write_static(folder / "source", kind)
    return imported(folder, files=files)


@pytest.fixture(scope="module")
def potion(model_of):
    return model_of(write_static, "potion")


@pytest.mark.parametrize("kind", [*MODULES, *MODEL2VEC])
def test_vectors_are_those_of_the_library_that_wrote_the_model(tmp_path, kind):
    bundle = static(tmp_path, kind)
    encoder = Encoder(bundle, threads=1)
    assert isinstance(encoder.tokenizer, JsonTokenizer) == (kind == "unigram")
    texts = [*TEXTS, LONG]
    found = encoder.encode(texts, long_text="truncate")
    np.testing.assert_allclose(found, VECTORS[kind], atol=1e-5)
    for text, vector in zip(texts, found, strict=True):
        np.testing.assert_array_equal(encoder.encode(text, long_text="truncate"), vector)
    assert not verify(read_bundle(bundle.path)).problem


def test_length_is_that_of_the_files_and_else_without_limit(tmp_path, potion):
    lengths = {kind: static(tmp_path / kind, kind).max_seq_length for kind in ("plain", "shared")}
    assert lengths == {"plain": NO_LIMIT, "shared": 100}
    assert potion.max_seq_length == 512
    cut = Encoder(potion, threads=1).encode(LONG, long_text="truncate")
    whole = Encoder(potion, threads=1).encode(LONG, max_seq_length=10**6)
    assert np.abs(cut - whole).max() > 1e-3
    truncation = {"max_length": 9, "direction": "Right", "strategy": "LongestFirst", "stride": 0}
    folder = tmp_path / "plain" / "source" / "0_StaticEmbedding"
    change(folder, {"tokenizer.json": {"truncation": truncation}})
    assert imported(tmp_path / "plain", "cut").max_seq_length == 9


def test_tokens_words_chunks_and_windows_have_no_special_tokens(potion):
    encoder = Encoder(potion, threads=1)
    text = "the banks of the river"
    (tokens,), (words,) = encoder.units([text]), encoder.units([text], of="word")
    assert tokens.texts == ["the", "bank", "##s", "of", "the", "river"]
    assert [len(each.vectors) for each in encoder.units(["", text, ""], dim=5)] == [0, 6, 0]
    assert tokens.starts.tolist() == [0, 4, 8, 10, 13, 17]
    np.testing.assert_array_equal(tokens.vectors[0], tokens.vectors[4])
    mean = tokens.vectors.mean(axis=0)
    found = encoder.encode(text)
    # Windows that share nothing are merged to the mean of all tokens.
    windows = encoder.encode(text, max_seq_length=4, long_text="window", overlap=0)
    for one, other in (
        (found, mean / np.linalg.norm(mean)),
        (words.vectors[1], tokens.vectors[1:3].mean(axis=0)),
        (windows, found),
        (encoder.encode("river", prompt="the "), encoder.encode("the river")),
        (encoder.encode("river", prompt="the ", pool_prompt=False), encoder.encode("river")),
        (encoder.encode(text, pooling="max", normalize=False), tokens.vectors.max(axis=0)),
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "int8"}, "precision int8 does not compute this model, a table"),
        ({"device": "gpu"}, "device gpu does not compute this model"),
        ({"engine": "tensorflow"}, "engine tensorflow does not compute this model"),
        ({"layers": 1}, "must be between -1 and 0 for this 0-layer model"),
    ],
)
def test_what_is_for_layers_is_refused_by_name(potion, settings, message):
    with pytest.raises(ValueError, match=message):
        bert_embed.load(potion.path, **settings).encode("a")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"normalize": "yes"}, "normalize must be true or false"),
        ("config.json", {"pool": "max"}, "pool is not supported"),
        (WEIGHTS, {"mapping": np.full(9, 1)}, r"tensor mapping must be \[\d+\], is \[9\]"),
        (WEIGHTS, {"other": np.ones(3, "f4")}, "other is not part of a static model"),
        (TOKENIZER, {"truncation": {"direction": "Left"}}, "truncation_side must be right"),
        (TOKENIZER, {"added_tokens": [{"content": {}}]}, "of added_tokens is no token"),
    ],
)
def test_what_would_give_other_vectors_is_refused(tmp_path, file, changes, message):
    write_static(tmp_path / "source", "potion")
    refused(tmp_path, message, {file: changes})


@pytest.mark.parametrize("kind", ["plain", "weighted", "shared"])
def test_rows_of_the_table_that_no_token_has_change_no_vector(tmp_path, kind):
    """Nor does the id of an added token, which is that of the vocabulary."""
    plain = static(tmp_path, kind)
    (path,) = (tmp_path / "source").rglob(WEIGHTS)
    weights = load_file(path)
    name = max(weights, key=lambda name: weights[name].ndim)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokens = [{"id": 99_999, "content": "[PAD]", "special": True, **flags}]
    more = {WEIGHTS: {name: np.concatenate([weights[name]] * 2)}}
    change(path.parent, more | {TOKENIZER: {"added_tokens": tokens}})
    other = imported(tmp_path, "more")
    found, wanted = (Encoder(bundle).encode(TEXTS[:4]) for bundle in (other, plain))
    np.testing.assert_array_equal(found, wanted)


def test_a_tokenizer_without_a_normalizer_keeps_letters_as_they_are(tmp_path):
    bundle = static(tmp_path, "potion", {TOKENIZER: {"normalizer": None}})
    library = Tokenizer.from_file(str(tmp_path / "source" / TOKENIZER))
    right = library.encode("The bank", add_special_tokens=False)
    assert load_tokenizer(bundle).encode("The bank") == right.ids
