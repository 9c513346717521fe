"""Sparse vectors of SPLADE models: their numbers, and what documents get of those of rows."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from bert_embed.backends.litert import FILES
from bert_embed.backends.probe import verify
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import load_tensors, read_bundle
from bert_embed.encoder import Encoder, TruncationWarning
from bert_embed.settings import TextSpec
from tests.support.engines import ENGINES
from tests.support.models.folder import imported, refused, tensors_of
from tests.support.models.heads import (
    SPLADES,
    VOCABULARY,
    as_router,
    plain_weights,
    run_texts,
    write_splade,
)
from tests.support.models.plain_bert import PlainBert, gelu
from tests.support.models.tiny import WORDS

TEXTS = ("the bank of the river", "a", "money in the vault of people", "two", "the bank of it")
LONG = " ".join(np.random.default_rng(3).choice(WORDS, 50))
ONES = np.ones(len(VOCABULARY), np.float32)
IDF, UNTIED = {"idf": {"the": 1.0}}, {"tie_word_embeddings": False}
QUERY, ROUTER = "query_0_SparseStaticEmbedding", "router_config.json"
TRANSFORM, MODEL = "cls.predictions.transform", "config_sentence_transformers.json"
COSINE = '{"model_type": "SparseEncoder", "similarity_fn_name": "cosine"}'
WINDOWS = {"long_text": "window", "max_seq_length": 16, "overlap": 4}


@pytest.fixture(scope="module")
def models(model_of):
    """The bundle of each case."""
    return lambda case: model_of(write_splade, **SPLADES[case])


@pytest.fixture(scope="module")
def encoder(models):
    return Encoder(models("max"), threads=2)


def whole(vectors):
    """float32 `[rows, vocabulary]`."""
    matrix = np.zeros((len(vectors.splits) - 1, len(VOCABULARY)), np.float32)
    rows = np.repeat(np.arange(len(matrix)), np.diff(vectors.splits))
    matrix[rows, vectors.indices] = vectors.values
    return matrix


@pytest.mark.numeric
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", SPLADES)
def test_the_vectors_are_those_of_numpy_in_float64(models, case, engine):
    bundle = models(case)
    tensors = tensors_of(bundle)
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    bert, expected = PlainBert(tensors, 4, gelu), []
    for ids in map(np.array, map(encoder.tokenizer.encode, TEXTS)):
        weights = plain_weights("multilingual", tensors, bert.hidden_states(ids, ids * 0)[-1])
        if SPLADES[case].get("activation_function") == "log1p_relu":
            weights = np.log1p(weights)
        is_sum = SPLADES[case].get("pooling_strategy") == "sum"
        expected.append(weights.sum(0) if is_sum else weights.max(0))
    found = encoder.encode(TEXTS, kind="sparse")
    np.testing.assert_allclose(whole(found), expected, atol=1e-4)
    assert (found.values > 0).all()
    assert 0 < len(found.values) < len(TEXTS) * len(VOCABULARY) / 2


def test_a_model_of_sparse_vectors_says_so_and_keeps_its_fingerprint_and_its_weights(models):
    for case in ("max", "own"):
        bundle = models(case)
        tensors = tensors_of(bundle)
        assert read_bundle(bundle.path) == bundle
        assert (bundle.default_vectors, [*bundle.heads]) == (("sparse",), ["sparse"])
        assert (verify(bundle).problem, "sparse_output" in verify(bundle).outputs) == ("", True)
        ours, name = load_tensors(bundle), f"{TRANSFORM}.dense.weight"
        np.testing.assert_array_equal(ours["heads/sparse/transform/kernel"].T, tensors[name])
    decoder = tensors["cls.predictions.decoder.weight"]
    np.testing.assert_array_equal(ours["heads/sparse/decoder"], decoder)
    assert len({models(case).fingerprint for case in SPLADES}) == len(SPLADES)
    tied, own = (models(case).sizes() for case in ("max", "own"))
    for name, number in (("float32.tflite", 4), ("int8.tflite", 1)):  # a tied one is there once
        assert abs(own[name] - tied[name] - number * len(VOCABULARY) * 32) < 1000


@pytest.mark.numeric
def test_int8_stays_near(models):
    bundle = models("max")
    encoders = (Encoder(bundle, threads=1, precision=name) for name in ("float32", "int8"))
    exact, near = (whole(one.encode([*TEXTS, LONG], kind="sparse")) for one in encoders)
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(near, axis=1)
    assert ((exact * near).sum(1) / lengths).min() > 0.99


@pytest.mark.parametrize(("case", "merge"), [("max", np.max), ("sum", np.sum)])
def test_windows_become_one_vector_as_tokens_do(models, case, merge):
    encoder = Encoder(models(case), threads=1)
    texts = [TEXTS[0], LONG, TEXTS[1]]
    _, done = run_texts(encoder, "sparse", texts, **WINDOWS | {"long_text": "windows"})
    rows = whole(done.heads["sparse"])
    assert len(rows) == 1 + 5 + 1
    expected = [merge(part, axis=0) for part in np.split(rows, [1, 6])]
    found = encoder.encode(texts, **WINDOWS, kind="sparse")
    np.testing.assert_allclose(whole(found), expected, rtol=1e-6)
    assert all((np.diff(found.indices[a:b]) > 0).all() for a, b in pairwise(found.splits))


def test_the_largest_weights_stay_and_of_equal_ones_the_lower_index(tmp_path, encoder):
    every = whole(encoder.encode(TEXTS, kind="sparse"))
    cut = whole(encoder.encode(TEXTS, kind="sparse", top_k=20))
    for row, kept in zip(every, cut, strict=True):
        np.testing.assert_array_equal(kept, np.where(row >= np.sort(row)[-20], row, 0))
    norm = f"{TRANSFORM}.LayerNorm"
    flat = dict.fromkeys((f"{norm}.weight", f"{norm}.bias"), np.zeros(32, np.float32))
    write_splade(tmp_path / "source", changes=flat | {"cls.predictions.bias": ONES})
    equal = Encoder(imported(tmp_path), threads=1)
    assert equal.encode("the", kind="sparse", top_k=3).indices.tolist() == [0, 1, 2]


def test_rows_that_are_not_finite_fail_alone(tmp_path):
    words, decoder = np.random.default_rng(0).normal(size=(2, len(VOCABULARY), 32)).astype("f4")
    words[VOCABULARY.index("money")] = np.nan
    changes = {"embeddings.word_embeddings.weight": words}
    changes["cls.predictions.decoder.weight"] = decoder
    write_splade(tmp_path / "source", changes=changes)
    _, done = run_texts(Encoder(imported(tmp_path), threads=1), "sparse", TEXTS)
    assert [*done.rows.failed] == [2]
    lengths = np.diff(done.heads["sparse"].splits)
    assert lengths[2] == 0
    assert (np.delete(lengths, 2) > 0).all()


def test_kinds_are_in_one_order():
    spec = TextSpec(64, vectors=("scores", "sparse", "dense"), granularity=("token", "sentence"))
    assert spec.kinds == ("sentence", "token", "sparse", "scores")
    assert TextSpec(64, vectors=("sparse",)).kinds == ("sparse",)
    assert TextSpec.from_dict(spec.to_dict()) == spec
    assert "vectors" not in TextSpec(64).to_dict()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_queries_have_constant_weights(tmp_path, precision):
    weights = np.random.default_rng(2).random(len(VOCABULARY)).astype(np.float32)
    weights[VOCABULARY.index("of")] = 0
    idf = dict(zip(VOCABULARY, weights.tolist(), strict=True))
    for number, stored in enumerate(({"weight": weights}, {"idf": idf})):
        place = tmp_path / str(number)
        write_splade(place / "source")
        as_router(place / "source", **stored)
        encoder = Encoder(imported(place), threads=1, precision=precision)
        encode_query = partial(encoder.encode_query, kind="sparse")
        found = encode_query(["the bank of the river", "of", "the"])
        assert np.diff(found.splits).tolist() == [3, 0, 1]
        ids = sorted(VOCABULARY.index(word) for word in ("the", "bank", "river"))
        assert found.indices[:3].tolist() == ids
        np.testing.assert_array_equal(found.values[:3], weights[ids])
        assert len(encoder.encode("the", kind="sparse").values) > 3
        few = encode_query(["the bank of the river", "of", "the"], top_k=1)
        assert np.diff(few.splits).tolist() == [1, 0, 1]
        assert few.values[0] == weights[ids].max()
        assert verify(encoder.bundle).problem == ""


def test_long_queries_with_constant_weights_are_cut_as_texts_are(tmp_path):
    """Special tokens do not count: sentence-transformers adds none to such queries."""
    write_splade(tmp_path / "source")
    as_router(tmp_path / "source", weight=ONES)
    encoder = Encoder(imported(tmp_path), threads=1)
    encode = partial(encoder.encode_query, kind="sparse", max_seq_length=4)
    river = VOCABULARY.index("river")
    assert river in encode("bank of the river").indices
    longer = ["bank", "bank of the money river"]
    with pytest.warns(TruncationWarning, match="1 of 2 texts was cut at 4 tokens"):
        assert river not in encode(longer).indices
    assert river in encode(longer, long_text="window").indices
    with pytest.raises(SettingError, match="number 1 is longer than 4 tokens"):
        encode(longer, long_text="reject")


def test_queries_of_a_splade_model_are_encoded_as_documents(encoder):
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        found = method(TEXTS, kind="sparse", top_k=3)
        assert found.to_dicts() == encoder.encode(TEXTS, kind="sparse").largest(3).to_dicts()
        assert method(TEXTS[0], kind="sparse", top_k=3).to_dict() == found[0].to_dict()
        with pytest.raises(SettingError, match="top_k must be at least 1"):
            method(TEXTS, kind="sparse", top_k=0)


def test_sparse_vectors_know_their_width_and_convert(encoder):
    found = encoder.encode(TEXTS, kind="sparse")
    matrix = whole(found)
    assert (found.kind, found.width, found.similarity) == ("sparse", len(VOCABULARY), "dot")
    csr = found.to_scipy()
    assert csr.shape == matrix.shape
    assert csr.indices.dtype == csr.indptr.dtype == csr[1:].indices.dtype == np.int32
    np.testing.assert_array_equal(found.to_scipy().toarray(), matrix)
    assert [row.to_dict() for row in found] == found.to_dicts()
    assert found.to_dicts()[1] == {at: matrix[1, at] for at in np.flatnonzero(matrix[1]).tolist()}
    for some in (found[1:3], found[np.array([3, 1])], found.largest(2), found[-1]):
        assert some.width == len(VOCABULARY)
    assert encoder.encode([LONG], **WINDOWS, kind="sparse").width == len(VOCABULARY)
    assert encoder.encode([], kind="sparse").to_scipy().shape == (0, len(VOCABULARY))
    with pytest.raises(IndexError):
        found[len(TEXTS)]
    again = encoder.encode(TEXTS, kind="sparse")
    assert found == again
    assert found[0] in [again[1], again[0]]
    assert found[0] != found[1]
    assert found != found[:2]
    assert found[0] != found
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


def test_the_similarity_of_sparse_vectors_is_their_dot_product(encoder):
    found = encoder.encode(TEXTS, kind="sparse")
    matrix = whole(found).astype(float)
    scores = encoder.similarity(found[:2], found)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, matrix[:2] @ matrix.T, rtol=1e-6)
    np.testing.assert_array_equal(encoder.similarity(found[1], found.to_scipy()), scores[1:])
    np.testing.assert_array_equal(encoder.similarity(found.to_scipy()[1], [*found]), scores[1:])
    pairs = encoder.similarity_pairwise(found, found)
    np.testing.assert_allclose(pairs, (matrix**2).sum(axis=1), rtol=1e-6)
    assert encoder.similarity(found[:0], found).shape == (0, len(TEXTS))
    assert encoder.similarity(found, found[:0]).shape == (len(TEXTS), 0)
    for call, one, other, said in (
        (encoder.similarity, encoder.encode(TEXTS, kind="dense"), found, "dense vectors as the fi"),
        (encoder.similarity_pairwise, found, found[:2], "5 vectors as the first, got 2"),
        (encoder.similarity, replace(found, width=30), found, "vectors of 30 numbers, got"),
    ):
        with pytest.raises(SettingError, match=f"must be {said}"):
            call(one, other)


def without_task(data):
    return data.replace(b"MLMTransformer", b"Transformer")


@pytest.mark.parametrize(
    ("settings", "router", "files", "said"),
    [
        ({}, {"idf": {"no such": 1.0}}, {}, "must hold a number for tokens of the model"),
        ({}, {"idf": {"the": -1.0}}, {}, "weights of tokens must be numbers of at least 0"),
        ({}, {"weight": np.ones((2, 2), "f4")}, {}, "must hold a weight for each of"),
        ({}, IDF, {ROUTER: {"merge": "sum"}}, "merge is not supported, got 'sum'"),
        ({}, IDF, {ROUTER: {"parameters": {"route_mappings": {"a": "b"}}}}, "route_mappings"),
        ({}, IDF, {ROUTER: {"parameters": {"default_route": "query"}}}, "default_route must"),
        ({}, IDF, {ROUTER: {"structure": {"query": [QUERY], "document": [{}]}}}, "Router is"),
        ({}, IDF, {f"{QUERY}/config.json": {"scale": 2}}, "scale is not supported"),
        ({"pooling_strategy": "mean"}, {}, {}, "pooling must be max or sum, got 'mean'"),
        ({"activation_function": "tanh"}, {}, {}, "activation must be relu or log1p_relu, got 't"),
        ({"changes": {f"{TRANSFORM}.dense.weight": None}}, {}, {}, "they lack the head"),
        # transformers 4 takes another tensor for it, and 5 nothing.
        ({"own_decoder": True}, {}, {"config.json": UNTIED}, r"hold no cls\..*decoder\.bias, for"),
        ({}, {}, {MODEL: COSINE}, "similarity_fn_name must be dot, got 'cosine'"),
        # Without a task, sentence-transformers pools hidden states.
        ({}, {}, {"modules.json": without_task}, "transformer_task must be 'fill-mask' for Splade"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, settings, router, files, said):
    write_splade(tmp_path / "source", **settings)
    if router:
        as_router(tmp_path / "source", **router)
    refused(tmp_path, said, files)


def test_queries_have_the_tokenizer_of_documents(tmp_path):
    source, slow = tmp_path / "source", f"{QUERY}/tokenizer_config.json"
    write_splade(source)
    as_router(source, weight=ONES)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(source / name, source / QUERY / name)
    assert imported(tmp_path, "same").heads["sparse"].query_weights
    refused(tmp_path, "model_max_length must be at least", {slow: {"model_max_length": 6}})
    message = "the tokenizer of queries must be that of documents"
    refused(tmp_path, message, {slow: {"do_lower_case": False}})


def masked_lm(folder, architectures, changes=None, **config):
    write_splade(folder / "source", changes=changes)
    config |= {"architectures": architectures}
    return imported(folder, files={"modules.json": None, "config.json": config})


@pytest.mark.slow
def test_a_masked_language_model_makes_sparse_vectors_beside_dense_ones(tmp_path, models):
    """For which it loads no head."""
    bundle = masked_lm(tmp_path, ["BertForMaskedLM"])
    splade = Encoder(models("max")).encode(TEXTS, kind="sparse")
    assert verify(bundle).problem == ""
    for precision in ("float32", "int8"):
        loaded = Interpreter(str(Path(bundle.path, FILES[precision]))).get_signature_list()
        assert sorted(loaded) == ["hidden_states", "pooler"]
        for threads in (1, 2):
            encoder = Encoder(bundle, threads=threads, precision=precision)
            dense, last = encoder.encode(TEXTS), encoder.encode(TEXTS, layers=(1,))
            found = encoder.encode(TEXTS, kind="sparse").to_dicts()
            assert precision == "int8" or found == splade.to_dicts()
            assert encoder.encode_query(TEXTS, kind="sparse").to_dicts() == found
            np.testing.assert_array_equal(encoder.encode(TEXTS), dense)
            np.testing.assert_array_equal(encoder.encode(TEXTS, layers=(1,)), last)
            assert dense.shape == (len(TEXTS), encoder.dimension)


@pytest.mark.parametrize(
    ("architectures", "changes", "config"),
    [
        (["BertForPreTraining"], {}, {}),
        (None, {}, {}),
        ("BertForMaskedLM", {}, {}),
        (["BertForMaskedLM"], {f"{TRANSFORM}.dense.weight": None}, {}),
        (["BertForMaskedLM"], {f"{TRANSFORM}.LayerNorm.bias": np.ones(3, "f4")}, {}),
        (["BertForMaskedLM"], {}, UNTIED),
    ],
)
def test_a_model_without_a_whole_head_is_dense(tmp_path, architectures, changes, config):
    encoder = Encoder(masked_lm(tmp_path, architectures, changes, **config))
    assert encoder.encode(TEXTS).shape == (len(TEXTS), encoder.dimension)
    with pytest.raises(SettingError, match=r"dense vectors alone.*the whole head.*ForMaskedLM am"):
        encoder.encode(TEXTS, kind="sparse")


def test_max_active_dims_is_the_models_top_k(tmp_path):
    write_splade(tmp_path / "source")
    said = json.dumps({"model_type": "SparseEncoder", "max_active_dims": 4})
    encoder = Encoder(imported(tmp_path, files={MODEL: said}))
    few, asked = encoder.encode(TEXTS, kind="sparse"), encoder.encode(TEXTS, top_k=4, kind="sparse")
    assert few.to_dicts() == asked.to_dicts()
    assert few.to_dicts() == encoder.encode_query(TEXTS, kind="sparse").to_dicts()
    assert np.diff(few.splits).max() == 4
    assert np.diff(encoder.encode(TEXTS, top_k=6, kind="sparse").splits).max() == 6
