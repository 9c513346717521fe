"""Sparse vectors of SPLADE models: their numbers, and what documents get of those of rows."""

import json
import shutil
from dataclasses import replace
from functools import cache, partial
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
from bert_embed.model import Request
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.layout import text_rows
from tests.support.engines import ENGINES
from tests.support.models.folder import change, imported, refused
from tests.support.models.heads import VOCABULARY, as_router, plain_weights, write_splade
from tests.support.models.plain_bert import PlainBert, gelu
from tests.support.models.tiny import WORDS

TEXTS = ("the bank of the river", "a", "money in the vault of people", "two", "the bank of it")
LONG = " ".join(np.random.default_rng(3).choice(WORDS, 50))
ONES = np.ones(len(VOCABULARY), np.float32)
LATE = {"chunk": "sentence", "chunk_context": ("document",)}
QUERY = "query_0_SparseStaticEmbedding"
CASES = {
    "max": {"pooling_strategy": "max"},
    "own": {"own_decoder": True, "activation_function": "log1p_relu"},
    "sum": {"pooling_strategy": "sum"},
    "twice": {"pooling_strategy": "sum", "activation_function": "log1p_relu"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The bundle and the tensors of each case, imported when it is first asked for."""

    @cache
    def model(case):
        place = tmp_path_factory.mktemp(case)
        tensors = write_splade(place / "source", **CASES[case])
        return imported(place), tensors

    return model


@pytest.fixture(scope="module")
def encoder(models):
    return Encoder(models("max")[0], threads=2)


def vectors_of(encoder, texts, *, spec=None, batch_tokens=None, **text):
    text_spec = TextSpec(**{"max_seq_length": 64, "vectors": ("sparse",), **text})
    _, rows = text_rows(encoder.tokenizer, text_spec, texts)
    done = encoder.embedder.run(Request(text_spec, rows=rows, spec=spec, batch_tokens=batch_tokens))
    return done.rows, done


def whole(vectors):
    """float32 `[rows, vocabulary]`."""
    matrix = np.zeros((len(vectors.splits) - 1, len(VOCABULARY)), np.float32)
    rows = np.repeat(np.arange(len(matrix)), np.diff(vectors.splits))
    matrix[rows, vectors.indices] = vectors.values
    return matrix


def sparse(encoder, texts, **settings):
    return vectors_of(encoder, texts, **settings)[1].heads["sparse"]


@pytest.mark.numeric
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_the_vectors_are_those_of_numpy_in_float64(models, case, engine):
    bundle, tensors = models(case)
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    bert, expected = PlainBert(tensors, 4, gelu), []
    for ids in map(np.array, map(encoder.tokenizer.encode, TEXTS)):
        weights = plain_weights("multilingual", tensors, bert.hidden_states(ids, ids * 0)[-1])
        if CASES[case].get("activation_function") == "log1p_relu":
            weights = np.log1p(weights)
        is_sum = CASES[case].get("pooling_strategy") == "sum"
        expected.append(weights.sum(0) if is_sum else weights.max(0))
    found = sparse(encoder, TEXTS)
    np.testing.assert_allclose(whole(found), expected, atol=1e-4)
    assert (found.values > 0).all()
    assert 0 < len(found.values) < len(TEXTS) * len(VOCABULARY) / 2


def test_a_model_of_sparse_vectors_says_so_and_keeps_its_fingerprint_and_its_weights(models):
    for case in ("max", "own"):
        bundle, tensors = models(case)
        again = read_bundle(bundle.path)
        assert again == bundle
        assert (again.default_vectors, [*again.heads]) == (("sparse",), ["sparse"])
        assert verify(again).problem == ""
        assert "sparse_output" in verify(again).outputs
        ours = load_tensors(again)
        name = "cls.predictions.transform.dense.weight"
        np.testing.assert_array_equal(ours["heads/sparse/transform/kernel"].T, tensors[name])
    np.testing.assert_array_equal(
        ours["heads/sparse/decoder"], tensors["cls.predictions.decoder.weight"]
    )
    assert len({models(case)[0].fingerprint for case in CASES}) == len(CASES)


def test_a_tied_decoder_is_in_the_files_once(models):
    tied, own = (models(case)[0].sizes() for case in ("max", "own"))
    table = len(VOCABULARY) * 32
    assert abs(own["float32.tflite"] - tied["float32.tflite"] - 4 * table) < 1000
    assert abs(own["int8.tflite"] - tied["int8.tflite"] - table) < 1000


@pytest.mark.numeric
def test_a_vector_has_the_same_bits_in_any_batch(models):
    for case in CASES:
        encoder = Encoder(models(case)[0], threads=2)
        texts = [*TEXTS, LONG, *(" ".join(WORDS[n : n + 5]) for n in range(40))]
        together, few = (sparse(encoder, texts, batch_tokens=most) for most in (None, 20))
        alone = [sparse(encoder, [text]) for text in texts]
        for name in ("indices", "values"):
            np.testing.assert_array_equal(getattr(together, name), getattr(few, name))
            joined = np.concatenate([getattr(one, name) for one in alone])
            np.testing.assert_array_equal(getattr(together, name), joined)


@pytest.mark.numeric
def test_int8_stays_near(models):
    bundle = models("max")[0]
    exact, near = (
        whole(sparse(Encoder(bundle, threads=1, precision=precision), (*TEXTS, LONG)))
        for precision in ("float32", "int8")
    )
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(near, axis=1)
    assert ((exact * near).sum(1) / lengths).min() > 0.99


def test_dense_vectors_of_any_layer_come_from_the_same_pass(encoder):
    spec = VectorSpec(layers=(1,), pooling="cls")
    _, both = vectors_of(encoder, TEXTS, spec=spec, vectors=("sparse", "dense"))
    _, alone = vectors_of(encoder, TEXTS, spec=spec, vectors=("dense",))
    np.testing.assert_array_equal(both.sentences, alone.sentences)
    np.testing.assert_array_equal(both.heads["sparse"].values, sparse(encoder, TEXTS).values)
    assert alone.heads == {}


@pytest.mark.parametrize(("case", "merge"), [("max", np.max), ("sum", np.sum)])
def test_windows_become_one_vector_as_tokens_do(models, case, merge):
    encoder = Encoder(models(case)[0], threads=1)
    texts = [TEXTS[0], LONG, TEXTS[1]]
    windows = {"long_text": "window", "max_seq_length": 16, "overlap": 4}
    apart = sparse(encoder, texts, **windows | {"long_text": "windows"})
    counts = np.array([1, 5, 1])
    rows = whole(apart)
    assert len(rows) == counts.sum()
    parts = np.split(rows, np.cumsum(counts)[:-1])
    expected = [merge(part, axis=0) for part in parts]
    found = sparse(encoder, texts, **windows)
    np.testing.assert_allclose(whole(found), expected, rtol=1e-6)
    assert all((np.diff(found.indices[a:b]) > 0).all() for a, b in pairwise(found.splits))


def test_chunks_have_vectors_of_their_own(encoder):
    text = "The bank of the river. Money in the vault."
    found = sparse(encoder, [text], chunk="sentence")
    for number, sentence in enumerate(text.split(". ")):
        one = sparse(encoder, [sentence.removesuffix(".") + "."])
        np.testing.assert_array_equal(whole(found)[number], whole(one)[0])


def test_the_largest_weights_stay(encoder):
    every = whole(sparse(encoder, TEXTS))
    most = 20
    cut = whole(sparse(encoder, TEXTS, top_k=most))
    for row, kept in zip(every, cut, strict=True):
        least = np.sort(row)[-most]
        np.testing.assert_array_equal(kept, np.where(row >= least, row, 0))


def test_of_equal_weights_the_lower_index_stays(tmp_path):
    flat = {"cls.predictions.transform.LayerNorm.weight": np.zeros(32, np.float32)}
    flat["cls.predictions.transform.LayerNorm.bias"] = np.zeros(32, np.float32)
    flat["cls.predictions.bias"] = np.ones(len(VOCABULARY), np.float32)
    write_splade(tmp_path / "source", changes=flat)
    encoder = Encoder(imported(tmp_path), threads=1)
    assert sparse(encoder, ["the"], top_k=3).indices.tolist() == [0, 1, 2]


def test_rows_that_are_not_finite_fail_alone(tmp_path):
    words = np.random.default_rng(0).normal(size=(len(VOCABULARY), 32)).astype(np.float32)
    words[VOCABULARY.index("money")] = np.nan
    decoder = np.random.default_rng(1).normal(size=words.shape).astype(np.float32)
    changes = {
        "embeddings.word_embeddings.weight": words,
        "cls.predictions.decoder.weight": decoder,
    }
    write_splade(tmp_path / "source", changes=changes)
    rows, vectors = vectors_of(Encoder(imported(tmp_path), threads=1), TEXTS)
    assert [*rows.failed] == [2]
    lengths = np.diff(vectors.heads["sparse"].splits)
    assert lengths[2] == 0
    assert (np.delete(lengths, 2) > 0).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vectors": ("sparse", "sparse")}, "vectors must name at least one kind, and each once"),
        ({"vectors": ("sparse",), "granularity": ("token",)}, "granularity is of dense vectors"),
        ({"top_k": 5}, "top_k requires vectors sparse"),
        ({"vectors": ("sparse",), "top_k": 0}, "top_k must be at least 1, got 0"),
        ({"vectors": ("sparse",), **LATE}, "chunk_context document is for vectors dense, not s"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(SettingError) as error:
        TextSpec(64, **settings)
    assert said in str(error.value)


def test_kinds_are_in_one_order():
    spec = TextSpec(64, vectors=("scores", "sparse", "dense"), granularity=("token", "sentence"))
    assert spec.kinds == ("sentence", "token", "sparse", "scores")
    assert TextSpec(64, vectors=("sparse",)).kinds == ("sparse",)
    assert TextSpec.from_dict(spec.to_dict()) == spec
    assert "vectors" not in TextSpec(64).to_dict()


def test_vectors_that_a_model_has_not_are_refused(encoder):
    with pytest.raises(SettingError, match="multi: this model makes dense, sparse vectors alone"):
        vectors_of(encoder, TEXTS, vectors=("multi",))


def test_texts_are_encoded_without_a_layout(encoder):
    found = encoder.encode(TEXTS, top_k=30, kind="sparse")
    expected = sparse(encoder, TEXTS, top_k=30)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.indices, expected.indices)
    one = encoder.encode(TEXTS[2], max_seq_length=16, kind="sparse")
    np.testing.assert_array_equal(one.values, encoder.encode(TEXTS, kind="sparse")[2].values)
    with pytest.raises(SettingError, match="is not a setting"):
        encoder.encode(TEXTS, pooling="mean", kind="sparse")


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


def test_queries_of_other_models_are_encoded_as_documents(encoder):
    found, same = encoder.encode_query(TEXTS, kind="sparse"), encoder.encode(TEXTS, kind="sparse")
    np.testing.assert_array_equal(found.values, same.values)
    few = encoder.encode_query(TEXTS, top_k=5, kind="sparse")
    np.testing.assert_array_equal(few.values, same.largest(5).values)
    with pytest.raises(SettingError, match="top_k must be at least 1"):
        encoder.encode_query(TEXTS, top_k=0, kind="sparse")


def test_a_splade_model_names_the_kind_to_give(encoder):
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        with pytest.raises(
            SettingError, match=r"must be named, .* sparse, .*: give kind='sparse';"
        ):
            method(TEXTS)
        found = method(TEXTS, kind="sparse", top_k=3)
        assert found.to_dicts() == encoder.encode(TEXTS, top_k=3, kind="sparse").to_dicts()
        assert method(TEXTS[0], kind="sparse", top_k=3).to_dict() == found[0].to_dict()
    assert encoder.encode(TEXTS, kind="dense").shape == (len(TEXTS), encoder.dimension)
    with pytest.raises(SettingError, match="kind multi: this model makes dense, sparse vectors"):
        encoder.encode(TEXTS, kind="multi")


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
    windows = {"long_text": "window", "max_seq_length": 16, "overlap": 4}
    assert encoder.encode([LONG], **windows, kind="sparse").width == len(VOCABULARY)
    assert encoder.encode([], kind="sparse").to_scipy().shape == (0, len(VOCABULARY))
    with pytest.raises(IndexError):
        found[len(TEXTS)]


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
    with pytest.raises(SettingError, match="must be dense vectors as the first, got sparse ones"):
        encoder.similarity(encoder.encode(TEXTS, kind="dense"), found)
    with pytest.raises(SettingError, match="must be 5 vectors as the first, got 2"):
        encoder.similarity_pairwise(found, found[:2])
    with pytest.raises(SettingError, match="must be vectors of 30 numbers, got"):
        encoder.similarity(replace(found, width=30), found)


def test_rows_are_equal_where_their_numbers_are(encoder):
    found, again = (encoder.encode(TEXTS, kind="sparse") for _ in range(2))
    assert found == again
    assert found[0] in [again[1], again[0]]
    assert found[0] != found[1]
    assert found != found[:2]
    assert found[0] != found
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


def test_documents_are_ranked_by_all_their_weights(encoder):
    with pytest.raises(SettingError, match="top_k is not a setting; did you mean k"):
        encoder.rank("the bank", TEXTS, top_k=1)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"idf": {"no such token": 1.0}}, "must hold a number for tokens of the model"),
        ({"idf": {"the": -1.0}}, "weights of tokens must be numbers of at least 0"),
        ({"weight": np.ones((2, 2), np.float32)}, "must hold a weight for each of"),
    ],
)
def test_wrong_weights_of_queries_are_refused(tmp_path, weights, said):
    write_splade(tmp_path / "source")
    as_router(tmp_path / "source", **weights)
    refused(tmp_path, said)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"router_config.json": {"merge": "sum"}}, "merge is not supported, got 'sum'"),
        ({"router_config.json": {"parameters": {"route_mappings": {"a": "b"}}}}, "route_mappings"),
        ({"router_config.json": {"parameters": {"default_route": "query"}}}, "default_route must"),
        ({f"{QUERY}/config.json": {"scale": 2}}, "scale is not supported"),
    ],
)
def test_an_unknown_setting_of_a_router_is_refused(tmp_path, files, said):
    write_splade(tmp_path / "source")
    as_router(tmp_path / "source", idf={"the": 1.0})
    change(tmp_path / "source", files)
    refused(tmp_path, said)


def test_queries_have_the_tokenizer_of_documents(tmp_path):
    source, slow = tmp_path / "source", f"{QUERY}/tokenizer_config.json"
    write_splade(source)
    as_router(source, weight=ONES)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(source / name, source / QUERY / name)
    assert imported(tmp_path, "same").heads["sparse"].query_weights
    change(source, {slow: {"model_max_length": 6}})
    refused(tmp_path, "model_max_length must be at least")
    change(source, {slow: {"do_lower_case": False}})
    refused(tmp_path, "the tokenizer of queries must be that of documents")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pooling_strategy": "mean"}, "pooling must be max or sum, got 'mean'"),
        ({"activation_function": "tanh"}, "activation must be relu or log1p_relu, got 'tanh'"),
        ({"changes": {"cls.predictions.transform.dense.weight": None}}, "they lack the head"),
    ],
)
def test_a_head_that_is_not_computed_is_refused(tmp_path, settings, said):
    write_splade(tmp_path / "source", **settings)
    refused(tmp_path, said)


def masked_lm(folder, architectures, changes=None, **config):
    write_splade(folder / "source", changes=changes)
    config |= {"architectures": architectures}
    change(folder / "source", {"modules.json": None, "config.json": config})
    return imported(folder)


@pytest.mark.slow
def test_a_masked_language_model_makes_sparse_vectors_beside_dense_ones(tmp_path, models):
    encoder = Encoder(masked_lm(tmp_path, ["BertForMaskedLM"]))
    found, splade = encoder.encode(TEXTS, kind="sparse"), Encoder(models("max")[0])
    assert found.to_dicts() == splade.encode(TEXTS, kind="sparse").to_dicts()
    assert encoder.encode(TEXTS, kind="sparse").to_dicts() == found.to_dicts()
    assert encoder.encode(TEXTS).shape == (len(TEXTS), encoder.dimension)
    for one in (found[0], encoder.encode_query(TEXTS, kind="sparse")[0]):
        assert one.to_dict() == found.to_dicts()[0]
    assert verify(encoder.bundle).problem == ""


@pytest.mark.slow
def test_dense_vectors_of_a_masked_language_model_load_no_head(tmp_path):
    bundle = masked_lm(tmp_path, ["BertForMaskedLM"])
    for precision in ("float32", "int8"):
        loaded = Interpreter(str(Path(bundle.path, FILES[precision]))).get_signature_list()
        assert sorted(loaded) == ["hidden_states", "pooler"]
        for threads in (1, 2):
            encoder = Encoder(bundle, threads=threads, precision=precision)
            dense = encoder.encode(TEXTS)
            found = encoder.encode(TEXTS, kind="sparse")
            last = encoder.encode(TEXTS, layers=(1,))
            np.testing.assert_array_equal(encoder.encode(TEXTS), dense)
            np.testing.assert_array_equal(encoder.encode(TEXTS, layers=(1,)), last)
            assert encoder.encode(TEXTS, kind="sparse").to_dicts() == found.to_dicts()


@pytest.mark.parametrize(
    ("architectures", "changes", "config"),
    [
        (["BertForPreTraining"], {}, {}),
        (["BertModel"], {}, {}),
        (None, {}, {}),
        ("BertForMaskedLM", {}, {}),
        (["BertForMaskedLM"], {"cls.predictions.transform.dense.weight": None}, {}),
        (["BertForMaskedLM"], {"cls.predictions.transform.LayerNorm.bias": np.ones(3, "f4")}, {}),
        (["BertForMaskedLM"], {"cls.predictions.transform.LayerNorm.weight": None}, {}),
        (["BertForMaskedLM"], {}, {"tie_word_embeddings": False}),
    ],
)
def test_a_model_without_a_whole_head_of_a_masked_one_is_dense(
    tmp_path, architectures, changes, config
):
    encoder = Encoder(masked_lm(tmp_path, architectures, changes, **config))
    assert encoder.encode(TEXTS).shape == (len(TEXTS), encoder.dimension)
    with pytest.raises(SettingError, match=r"dense vectors alone.*the whole head.*ForMaskedLM am"):
        encoder.encode(TEXTS, kind="sparse")


def test_an_untied_decoder_without_its_own_bias_is_refused(tmp_path):
    """transformers 4 takes another tensor for it, and 5 nothing."""
    write_splade(tmp_path / "source", own_decoder=True)
    change(tmp_path / "source", {"config.json": {"tie_word_embeddings": False}})
    refused(tmp_path, r"hold no cls\.predictions\.decoder\.bias, for which")


def test_the_task_of_a_transformer_is_never_that_of_the_pooling_behind_it(tmp_path):
    """Without a task, sentence-transformers pools hidden states."""
    write_splade(tmp_path / "source")
    other = {"modules.json": lambda data: data.replace(b"MLMTransformer", b"Transformer")}
    change(tmp_path / "source", other)
    refused(tmp_path, "transformer_task must be 'fill-mask' for SpladePooling")


def test_max_active_dims_is_the_models_top_k(tmp_path):
    write_splade(tmp_path / "source")
    said = json.dumps({"model_type": "SparseEncoder", "max_active_dims": 4})
    change(tmp_path / "source", {"config_sentence_transformers.json": said})
    encoder = Encoder(imported(tmp_path))
    few, asked = encoder.encode(TEXTS, kind="sparse"), encoder.encode(TEXTS, top_k=4, kind="sparse")
    assert few.to_dicts() == asked.to_dicts()
    assert few.to_dicts() == encoder.encode_query(TEXTS, kind="sparse").to_dicts()
    assert np.diff(few.splits).max() == 4
    assert np.diff(encoder.encode(TEXTS, top_k=6, kind="sparse").splits).max() == 6
