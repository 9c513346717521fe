"""The programs of TPUs and GPUs, compiled by XLA for this machine's processor."""

import re
import sys
from itertools import islice, product
from unittest import mock

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from bert_embed import load
from bert_embed.backends.choose import load_engine
from bert_embed.backends.jax.engine import JaxEngine
from bert_embed.backends.jax.program import gelu
from bert_embed.backends.runner import RowRunner, RowSpec
from bert_embed.importers import import_model
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.text.documents import TokenRows
from tests.support.command import embed, flags_of, ran, rows, vectors
from tests.support.engines import jax_process, load_jax_as_tpu
from tests.support.models.heads import write_splade
from tests.support.models.tiny import WORDS, write_tiny_huggingface
from tests.support.rounding import assert_near

SIGNS = {"query": 1, "key": -1}
BROKEN = 40  # the id of a word whose embedding is not a number


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_writes_what_the_processor_writes(tmp_path, precision):
    texts = tmp_path / "texts.txt"
    words = ["the", "bank", "of", "a", "river", "was", "down", "by", "water", "and", "she", "said"]
    texts.write_text("\n".join(" ".join(words[: 1 + n % 13] * (1 + n % 7)) for n in range(90)))
    assert embed(tmp_path / "one", "minilm", texts) == 0
    flags = {"engine": "jax", "device": "cpu", "precision": precision}
    assert embed(tmp_path / "other", "minilm", texts, **flags) == 0
    assert rows(tmp_path / "other")["id"] == rows(tmp_path / "one")["id"]
    one, other = vectors(tmp_path / "one"), vectors(tmp_path / "other")
    if precision == "float32":
        assert_near(other, one)
    else:
        assert np.vecdot(one, other).min() > 0.999


def test_platforms_without_the_processor_are_refused_before_the_run(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("the bank\n")
    words = flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", engine="jax", device="cpu")
    command = [sys.executable, "-m", "bert_embed", "embed", *words]
    ended = ran(command, JAX_PLATFORMS="nothing")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: --engine jax: JAX does not start on this machine's proc")
    assert ended.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def broken_bundle(tmp_path_factory):
    """A model one of whose words is not a number: a row that has it is none, either."""
    folder = tmp_path_factory.mktemp("broken")
    words = "embeddings.word_embeddings.weight"
    table = write_tiny_huggingface(folder / "source")[words].copy()
    table[BROKEN] = np.nan
    write_tiny_huggingface(folder / "source", changes={words: table})
    return import_model(str(folder / "source"), str(folder / "bundle"))


def loaded(bundle, load=load_engine, **settings):
    return RowRunner(bundle.config, load(bundle, (2, 3), "float32", **settings), 2)


def run(runner, texts):
    splits = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    wanted = RowSpec(VectorSpec(), OutputSpec(tokens=True), batch_tokens=512)
    return runner.run(TokenRows(np.concatenate(texts), splits), wanted)


def test_what_shares_a_row_changes_nothing(tiny_bundle, broken_bundle):
    """Among the neighbours: the longest, empty ones, and such as are not numbers."""
    random = np.random.default_rng(0)
    texts = [
        np.array([2, *random.integers(41, 90, length), 3], np.int32)
        for length in (*range(13), 0, 62, 1, 0, 30, *[2] * 40)
    ]
    runner = loaded(broken_bundle, engine="jax", device="cpu")
    alone = [run(runner, [text]) for text in texts]
    hostile = [number for number in range(len(texts)) if number % 5 == 3 and len(texts[number]) > 2]
    for number in hostile:
        texts[number][1] = BROKEN
    together = run(runner, texts)
    assert sorted(together.failed) == hostile
    tokens = np.split(together.token_vectors, np.cumsum([len(text) for text in texts])[:-1])
    for number, one in enumerate(alone):
        if number not in hostile:
            assert_near(together.vectors[number], one.vectors[0])
            assert_near(tokens[number], one.token_vectors)


@pytest.mark.parametrize("layer", [0, 1])
def test_scores_far_below_their_bound_are_no_reason_to_reject(tmp_path, layer):
    """All keys point away from all queries: a TPU's first program has no share for any of them."""
    attention = f"encoder.layer.{layer}.attention.self"
    away = {f"{attention}.{name}.bias": np.full(32, 8.0 * sign) for name, sign in SIGNS.items()}
    write_tiny_huggingface(tmp_path / "source", changes=away)
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    texts = [np.array([2, *range(41, 41 + count), 3], np.int32) for count in (1, 30, 5, 62, 0)]
    expected = run(loaded(bundle), texts)
    found = run(loaded(bundle, load_jax_as_tpu), texts)
    assert found.failed == {}
    # Scores of hundreds are rounded by 1e-5.
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-4)
    np.testing.assert_allclose(found.token_vectors, expected.token_vectors, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "gated"), [(jax.numpy.bfloat16, True), (np.float16, True), (np.float16, False)]
)
def test_gelu_of_all_numbers_is_rounded_as_the_exact_one(dtype, gated):
    """By the operations of GPUs, but for those of bfloat16 that cuBLAS does with a product."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    x = every[np.isfinite(every.astype(np.float32))]
    exact = (x.astype(np.float64) * ndtr(x.astype(np.float64))).astype(dtype)
    found = np.asarray(gelu(jax.numpy.asarray(x), "gelu", gated))
    steps = np.abs(exact.astype(np.float64)) * 2 * jax.numpy.finfo(dtype).eps
    assert found.shape == x.shape
    error = np.abs(found.astype(np.float64) - exact.astype(np.float64))
    assert (error <= steps / 2 + 3e-5).all()
    beyond = np.asarray(gelu(jax.numpy.asarray([np.inf, np.nan], dtype), "gelu", gated))
    assert beyond[0] == np.inf
    assert np.isnan(beyond[1])


EIGHT = """
import json
import jax
import bert_embed

texts = ["the bank " * (1 + n % 9) for n in range(200)]
encoder = bert_embed.load(MODEL, engine="jax", device="cpu")
vectors = encoder.encode(texts, batch_tokens=4096)
print(json.dumps({"chips": len(jax.devices()), "vectors": vectors.tolist()}))
"""


def test_eight_chips_share_the_rows_of_each_program(tiny_bundle, tmp_path):
    code = f"MODEL = {str(tiny_bundle)!r}\n{EIGHT}"
    found, programs = {}, {}
    for chips in (1, 8):
        dump = tmp_path / str(chips)
        flags = f"--xla_force_host_platform_device_count={chips} --xla_dump_hlo_as_text"
        found[chips] = jax_process(code, tmp_path, XLA_FLAGS=f"{flags} --xla_dump_to={dump}")[0]
        assert found[chips]["chips"] == chips
        files = dump.glob("*jit_program*after_optimizations.txt")
        programs[chips] = [file.read_text() for file in files]
    assert_near(np.array(found[8]["vectors"]), np.array(found[1]["vectors"]))
    assert 0 < len(programs[8]) <= 3  # a shape of rows each, for all chips
    for program in programs[8]:
        assert "num_partitions=8" in program
        for collective in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
            assert f" {collective}(" not in program


AGAIN = """
import json
import bert_embed
encoder = bert_embed.load(MODEL, engine="jax", device="cpu")
encoder.encode(["the bank of the river", "money"])
print(json.dumps({}))
"""


def test_a_second_process_compiles_nothing(tiny_bundle, tmp_path):
    variables = {"JAX_LOG_COMPILES": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    code = f"MODEL = {str(tiny_bundle)!r}\n{AGAIN}"
    _, first = jax_process(code, tmp_path, **variables)
    _, second = jax_process(code, tmp_path, **variables)
    assert "Persistent compilation cache hit for 'jit_program" not in first
    assert "Persistent compilation cache hit for 'jit_program" in second


def test_a_chip_that_is_not_there_is_refused(tiny_bundle, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the bank\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", device="tpu") == 2
    said = capsys.readouterr().err
    assert "--device tpu: jax sees no TPU on this machine" in said
    assert "it needs a TPU VM and the packages of jax[tpu]" in said
    assert not (tmp_path / "out").exists()


def failing(said, most=0):
    """JAX's programs, which fail so with more than `most` tokens, compiled before or not."""
    whole = JaxEngine.graph

    def graph(self, *wanted):
        programs = whole(self, *wanted)
        function = programs.function

        def call(ids, *others):
            if ids.size > most:
                raise jax.errors.JaxRuntimeError(said)
            return function(ids, *others)

        programs.function = call
        return programs

    return mock.patch.object(JaxEngine, "graph", graph)


@pytest.fixture
def many(tmp_path):
    """256 texts of 1 to 60 words: batches of 8 rows of 128 tokens."""
    texts = tmp_path / "many.txt"
    texts.write_text("\n".join(" ".join(WORDS[: 1 + n % 60]) for n in range(256)))
    return texts


ON_JAX = {"engine": "jax", "device": "cpu", "batch_tokens": 1024}


@pytest.mark.parametrize("rows_that_fit", [1, 3, 7])
def test_a_batch_that_does_not_fit_runs_in_parts_of_fewer_rows(
    tmp_path, tiny_bundle, many, rows_that_fit
):
    assert embed(tmp_path / "one", tiny_bundle, many, **ON_JAX) == 0
    with failing("RESOURCE_EXHAUSTED: Out of memory", 128 * rows_that_fit):
        assert embed(tmp_path / "other", tiny_bundle, many, **ON_JAX) == 0
    assert rows(tmp_path / "other")["id"] == rows(tmp_path / "one")["id"]
    assert_near(vectors(tmp_path / "other"), vectors(tmp_path / "one"))


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", "the model failed on all of 60 rows: out of memory"),
        ("INTERNAL: a text of device ordinal 0", "block 0, .*: cpu:0 failed: INTERNAL"),
        ("UNAVAILABLE: a text", "block 0, .*: cpu:0 failed: UNAVAILABLE"),
    ],
)
def test_a_chip_that_cannot_go_on_ends_the_run_by_its_name(
    tmp_path, tiny_bundle, many, capsys, failure, told
):
    with failing(failure):
        assert embed(tmp_path / "out", tiny_bundle, many, **ON_JAX) == 1
    said = capsys.readouterr().err
    assert re.search(told, said), said
    assert "a text" not in said


@pytest.fixture(scope="module")
def splade(model_of):
    return model_of(write_splade)


def whole(splits, indices, values, width):
    """float32 `[texts, width]`."""
    matrix = np.zeros((len(splits) - 1, width), np.float32)
    matrix[np.repeat(np.arange(len(matrix)), np.diff(splits)), indices] = values
    return matrix


def test_sparse_vectors_of_many_texts_are_those_of_the_processor(splade):
    """More texts than a sparse head takes at once, of fewer tokens and of more."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, length)) for length in [*range(50), *[3] * 700, 0]]
    found = {}
    for engine in ("litert", "jax"):
        model = load(splade.path, engine=engine, device="cpu", max_seq_length=64)
        vectors = model.encode(texts, kind="sparse", batch_tokens=4096)
        parts = vectors.splits, vectors.indices, vectors.values
        found[engine] = whole(*parts, splade.config.vocab_size)
    assert found["jax"].any(axis=1).all()
    np.testing.assert_allclose(found["jax"], found["litert"], atol=1e-5)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize(("words", "count"), [(23, 640), (3, 3200), (62, 1)])
def test_of_places_without_a_text_few_come_to_the_host(splade, tiny_bundle, words, count, kind):
    """640 texts of 25 tokens fill the rows of a batch that has places for 5,376."""
    path = splade.path if kind == "sparse" else tiny_bundle
    model = load(path, engine="jax", device="cpu", max_seq_length=64)
    model.encode("bank", kind=kind)  # with the test of itself
    different = islice(product(sorted(set(WORDS)), repeat=3), count)
    texts = [" ".join([*some, *["bank"] * (words - 3)]) for some in different]
    fetched = []

    def device_get(arrays):
        fetched.extend(array.nbytes for array in jax.tree.leaves(arrays))
        return jax.tree.map(np.asarray, arrays)

    with mock.patch("jax.device_get", device_get):
        vectors = model.encode(texts, kind=kind)
    assert len(vectors) == count
    of_text = 4 * (splade.config.vocab_size if kind == "sparse" else model.dimension)
    assert count * of_text <= sum(fetched) <= 2 * max(count, 128) * of_text


SPARSE = """
import json
import bert_embed

texts = ["the bank " * (1 + n % 9) + WORDS[n % 40] for n in range(700)]
encoder = bert_embed.load(MODEL, engine="jax", device="cpu")
found = encoder.encode(texts, kind="sparse", batch_tokens=16384)
print(json.dumps([part.tolist() for part in (found.splits, found.indices, found.values)]))
"""


def test_eight_chips_share_the_texts_of_a_sparse_head(splade, tmp_path):
    code, found = f"MODEL, WORDS = {splade.path!r}, {WORDS!r}\n{SPARSE}", []
    for chips in (1, 8):
        flags = f"--xla_force_host_platform_device_count={chips}"
        parts, _ = jax_process(code, tmp_path, XLA_FLAGS=flags)
        found.append(whole(*map(np.array, parts), splade.config.vocab_size))
    assert len(found[0]) == 700
    assert found[0].any(axis=1).all()
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)


def test_a_text_that_is_not_a_number_spoils_no_sparse_vector_but_its_own(tmp_path):
    words = "embeddings.word_embeddings.weight"
    table = write_splade(tmp_path / "first", own_decoder=True)[words].copy()
    table[BROKEN] = np.nan
    write_splade(tmp_path / "source", own_decoder=True, changes={words: table})
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    engine = load_engine(bundle, (2, 3), "float32", engine="jax", device="cpu")
    runner = RowRunner(bundle.config, engine, 2, heads=bundle.heads)
    random = np.random.default_rng(0)
    texts = [np.array([2, *random.integers(41, 90, 1 + n % 9), 3], np.int32) for n in range(40)]

    def sparse(texts):
        splits = np.cumsum([0, *map(len, texts)])
        outputs = OutputSpec(sentences=False, heads=("sparse",))
        wanted = RowSpec(VectorSpec(), outputs, batch_tokens=512)
        done = runner.run(TokenRows(np.concatenate(texts), splits), wanted)
        found = done.heads["sparse"]
        vectors = whole(found.splits, found.indices, found.values, bundle.config.vocab_size)
        return [*done.failed], vectors

    expected = np.concatenate([sparse([text])[1] for text in texts])
    assert expected.any(axis=1).all()
    texts[7][1] = BROKEN
    failed, found = sparse(texts)
    assert failed == [7]
    assert not found[7].any()
    np.testing.assert_allclose(np.delete(found, 7, 0), np.delete(expected, 7, 0), atol=1e-5)
