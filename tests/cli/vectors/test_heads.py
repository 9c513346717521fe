"""Sparse vectors beside dense ones, from one pass: through the command line, back by readers."""

import json
import sys
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import (
    Hold,
    data_files,
    embed,
    flags_of,
    record,
    rows,
    write_json,
)
from tests.support.models.heads import (
    VOCABULARY,
    write_classifier,
    write_m3,
    write_splade,
)
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.tiny import bundle_of

LINES = ["the bank of the river", "money bank", "", "the vault of the bank", "money " * 90]
SMALL = {"block_bytes": 200}


@pytest.fixture(scope="module")
def splade(tmp_path_factory):
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    return bundle_of(tmp_path_factory.mktemp("splade"), write_splade, **pooling)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    records = [{"id": f"{n}", "text": f"{LINES[n % 5]} {n}"} for n in range(40)]
    return write_json(path, *records)


class Csr:
    """What `read_sparse` needs of SciPy, which is not installed for tests."""

    def __init__(self, arrays, shape):
        self.data, self.indices, self.indptr = arrays
        self.shape = shape


@pytest.fixture
def scipy(monkeypatch):
    module = ModuleType("scipy.sparse")
    module.csr_array = Csr
    monkeypatch.setitem(sys.modules, "scipy", ModuleType("scipy"))
    monkeypatch.setitem(sys.modules, "scipy.sparse", module)


def sparse_rows(output):
    return [row for path in data_files(output, "sparse") for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def both(tmp_path_factory, splade, corpus):
    """A run with dense and sparse vectors."""
    output = tmp_path_factory.mktemp("both") / "out"
    assert embed(output, splade, corpus, vectors="sparse,dense", part_docs=7) == 0
    return output


def test_a_sparse_model_writes_sparse_vectors_alone(tmp_path, splade, corpus, both):
    output = tmp_path / "out"
    assert embed(output, splade, corpus, part_docs=7) == 0
    assert data_files(output) == []
    settings = record(output)["vectors"]
    assert settings["vectors"] == ["sparse"]
    assert settings["heads"] == {
        "sparse": {
            "entries": len(VOCABULARY),
            "similarity": "dot",
            "top_k": None,
        }
    }
    found = sparse_rows(output)
    assert [row["indices"] for row in found] == [row["indices"] for row in sparse_rows(both)]
    assert all(row["indices"] == sorted(row["indices"]) for row in found)
    assert all(min(row["values"], default=1) > 0 for row in found)
    with pytest.raises(
        ValueError,
        match=r"none of sentence: read them with bert_embed.read_sparse, .* with vectors dense",
    ):
        bert_embed.read(output)


def test_all_kinds_of_a_run_have_the_same_parts(both, scipy, monkeypatch):
    names = [path.name for path in data_files(both)]
    assert len(names) > 3
    assert [path.name for path in data_files(both, "sparse")] == names
    for dense, sparse in zip(data_files(both), data_files(both, "sparse"), strict=True):
        assert pq.read_table(dense)["id"] == pq.read_table(sparse)["id"]
    ids, weights = bert_embed.read_sparse(both)
    assert ids == bert_embed.read(both)[0] == rows(both)["id"]
    assert weights.shape == (len(ids), len(VOCABULARY))
    assert weights.data.dtype == np.float32
    assert weights.indices.dtype == weights.indptr.dtype == np.int32
    found = [row["indices"] for row in sparse_rows(both)]
    assert weights.indices.tolist() == [index for row in found for index in row]
    assert np.diff(weights.indptr).tolist() == [len(row) for row in found]
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ValueError, match=r"read_sparse requires scipy, .*: pip install scipy"):
        bert_embed.read_sparse(both)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "more"),
    [
        ("splade", {"vectors": "dense,sparse", "top_k": 20}),
        ("colbert", {"vectors": "dense,multi", "output_dtype": "int8"}),
        ("classifier", {"vectors": "dense,scores", "granularity": "sentence,token"}),
        ("m3", {"vectors": "dense,sparse,multi"}),
    ],
)
def test_a_killed_run_of_all_kinds_continues_to_the_same_bytes(
    tmp_path, corpus, request, fixture, more
):
    model, flags = request.getfixturevalue(fixture), more | SMALL
    whole, output = tmp_path / "whole", tmp_path / "out"
    assert embed(whole, model, corpus, report="false", **flags) == 0
    Hold(tmp_path / "hold", 2).kill(
        "embed", *flags_of(output, model, corpus, report="false", **flags)
    )
    assert record(output)["status"] == "running"
    assert embed(output, model, corpus, report="false", **flags) == 0
    kinds = sorted(record(whole)["written"])
    assert kinds == sorted(record(output)["written"])
    assert len(kinds) == len(flags["vectors"].split(",")) + ("granularity" in flags)
    for kind in kinds:
        found = {path.name: path.read_bytes() for path in data_files(output, kind)}
        assert found == {path.name: path.read_bytes() for path in data_files(whole, kind)}
        assert len(found) > 2
    assert record(output)["counts"]["parts_reused"] == 2


@pytest.mark.parametrize("output_format", ["jsonl", "tfrecord"])
def test_other_formats_hold_the_same_weights(run, splade, corpus, both, scipy, output_format):
    output = run(corpus, model=splade, vectors="dense,sparse", output_format=output_format)
    ids, weights = bert_embed.read_sparse(output)
    expected_ids, expected = bert_embed.read_sparse(both)
    assert ids == expected_ids
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(weights, name), getattr(expected, name))
    np.testing.assert_array_equal(bert_embed.read(output)[1], bert_embed.read(both)[1])


def test_what_an_earlier_output_has_is_skipped_only_of_the_same_kinds(
    run, splade, corpus, both, capsys
):
    more = {"more.jsonl": corpus.read_text() + json.dumps({"id": "new", "text": "a new one"})}
    flags = {"model": splade, "skip_existing": both}
    output = run(more, vectors="dense,sparse", **flags)
    assert [row["id"] for row in sparse_rows(output)] == ["new"]
    message = 'vectors is ["dense", "sparse"] there and ["sparse"] here'
    run.refused(more, message, "other", vectors="sparse", **flags)
    (lost,) = data_files(output, "sparse")
    before = lost.read_bytes()
    lost.unlink()
    assert main(["verify", str(output)]) != 0
    assert lost.name in "".join(capsys.readouterr())
    assert main(["verify", str(output), "--repair"]) == 0
    assert lost.read_bytes() == before


REFUSED = [
    ({"vectors": "sparse,scores"}, "scores: this model makes dense, sparse vectors"),
    ({"vectors": "sparse,sparse"}, "--vectors must name at least one kind, and each once"),
    ({"vectors": "colbert"}, "--vectors must be one of dense, sparse, multi, scores"),
    ({"pooling": "mean"}, "--pooling is for --vectors dense, not sparse"),
    ({"granularity": "token"}, "--granularity is for --vectors dense, not sparse"),
    (
        {"vectors": "sparse", "output_dtype": "int8"},
        "--output_dtype is for --vectors dense and multi",
    ),
    ({"vectors": "dense", "top_k": 3}, "--top_k requires --vectors sparse"),
    (
        {"vectors": "dense,sparse", "chunk": "tokens", "chunk_context": "document"},
        "document is for --vectors dense, not sparse",
    ),
    (
        {"extra_columns": "values:int64"},
        "--extra_columns values clashes with a column of --vectors",
    ),
    ({"vectors": "multi", "output_format": "tfrecord"}, "multi requires parquet or jsonl"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED, ids=[one[1][:30] for one in REFUSED])
def test_what_cannot_be_is_refused_before_work_starts(run, splade, flags, message):
    source = {"in.jsonl": '{"id": "1", "text": "bank", "values": 3}\n'}
    run.refused(source, message, model=splade, **flags)


def test_examples_give_sparse_vectors(tmp_path, run, splade, tiny_bundle, corpus, both):
    examples = tmp_path / "examples"
    assert main(["tokenize", *flags_of(examples, splade, corpus)]) == 0
    found = sparse_rows(run(examples, model=splade, vectors="dense,sparse"))
    wanted = sparse_rows(both)
    assert [row["id"] for row in found] == [row["id"] for row in wanted]
    assert [row["indices"] for row in found] == [row["indices"] for row in wanted]
    message = "sparse: this model makes dense vectors alone"
    run.refused(corpus, message, "none", vectors="sparse")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("classifier"), write_classifier, "distilbert", 3)


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_scores_have_a_column_for_each_label(run, classifier, corpus, output_format):
    """They stand beside vectors of the same pass where those are asked for, too."""
    asked = {"vectors": "scores,dense"} if output_format == "jsonl" else {}
    output = run(corpus, model=classifier, output_format=output_format, **asked)
    ids, labels, scores = bert_embed.read_scores(output)
    heads = record(output)["vectors"]["heads"]
    assert heads == {"scores": {"labels": labels, "activation": "softmax"}}
    assert len(ids) == len(scores) == len({*ids}) == 40
    assert labels == ["label 0", "label 1", "label 2"]
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
    if output_format == "parquet":
        [path] = data_files(output, "scores")
        table = pq.read_table(path).to_pydict()
        assert list(table)[:5] == ["id", *labels, "label"]
        assert table["label"] == [labels[number] for number in scores.argmax(axis=1)]
    if asked:
        assert record(output)["computed_tokens"] == record(output)["tokens"]
        assert bert_embed.read(output)[0] == ids


def test_labels_that_are_columns_already_are_refused(tmp_path, run, corpus, classifier):
    labels = {"0": "fine", "1": "Num_Tokens"}
    write_classifier(tmp_path / "source", "distilbert", 2, id2label=labels)
    run.refused(corpus, "the label Num_Tokens of --model", model=tmp_path / "source")
    assert "clashes with the output's own column num_tokens" in run.err
    source = {"in.jsonl": '{"id": "1", "text": "bank", "label": "x"}\n'}
    message = "--extra_columns label clashes with a column of --vectors scores"
    run.refused(source, message, model=classifier, extra_columns="label")


@pytest.fixture(scope="module")
def m3(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("m3"), write_m3)


@pytest.fixture(scope="module")
def colbert(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("colbert"), write_multi_vectors, "stanford")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_multi_vectors_are_those_of_the_encoder(run, colbert, corpus, output_format, dtype):
    flags = {"output_format": output_format, "output_dtype": dtype, "part_docs": 7}
    output = run(corpus, model=colbert, vectors="multi", **flags)
    assert record(output)["vectors"]["heads"]["multi"]["similarity"] == "maxsim"
    texts = {one["id"]: one["text"] for one in map(json.loads, corpus.read_text().splitlines())}
    with pytest.raises(bert_embed.SettingError, match=r"^kind multi .*: read it with read_multi"):
        bert_embed.read(output, kind="multi")
    read = dict(bert_embed.read_multi(output))
    assert list(read) == list(texts)
    asked = {"long_text": "truncate", "kind": "multi"}
    wanted = bert_embed.load(colbert).encode(list(texts.values()), **asked)
    off = {"float32": 1e-6, "float16": 1e-3, "int8": 1e-2}[dtype]
    for found, vectors in zip(read.values(), wanted.rows(), strict=True):
        assert (found.dtype, found.flags.writeable) == (np.float32, True)
        np.testing.assert_allclose(found, vectors, atol=off)


def test_multi_vectors_of_examples_are_refused(tmp_path, run, colbert, corpus):
    assert main(["tokenize", *flags_of(tmp_path / "examples", colbert, corpus)]) == 0
    flags = {"model": colbert, "vectors": "multi"}
    run.refused(tmp_path / "examples", "--vectors multi is for texts", **flags)
