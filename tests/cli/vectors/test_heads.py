"""Each kind of vectors beside dense ones, from one pass: by the command, and back by readers."""

import json
import shutil
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import (
    block_records,
    data_files,
    embed,
    record,
    rows,
    say_status,
    write_json,
)
from tests.support.models.heads import VOCABULARY, write_classifier, write_m3, write_splade
from tests.support.models.multi_vectors import write_multi_vectors

LINES = ["the bank of the river", "money bank", "", "the vault of the bank", "money " * 90]
TEXTS = {f"{n}": f"{LINES[n % 5]} {n}" for n in range(40)}
MAX = {"pooling_strategy": "max", "activation_function": "relu"}
QUERIES = ["the bank of the river", "money"]
LABELS = ["label 0", "label 1", "label 2"]


@pytest.fixture(scope="module")
def models(model_of):
    """A model of each kind."""
    bundles = {
        "sparse": model_of(write_splade, **MAX),
        "multi": model_of(write_multi_vectors, "stanford"),
        "scores": model_of(write_classifier, "distilbert", 3),
        "m3": model_of(write_m3),
    }
    return {kind: bundle.path for kind, bundle in bundles.items()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    return write_json(path, *({"id": name, "text": text} for name, text in TEXTS.items()))


def sparse_rows(output):
    return [row for path in data_files(output, "sparse") for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def both(tmp_path_factory, models, corpus):
    """A run with dense and sparse vectors."""
    output = tmp_path_factory.mktemp("both") / "out"
    assert embed(output, models["sparse"], corpus, vectors="sparse,dense", part_docs=7) == 0
    return output


def test_a_sparse_model_writes_sparse_vectors_alone(run, models, corpus, both):
    output = run(corpus, model=models["sparse"], part_docs=7)
    assert data_files(output) == []
    settings = record(output)["vectors"]
    assert settings["vectors"] == ["sparse"]
    sparse = {"entries": len(VOCABULARY), "similarity": "dot", "top_k": None}
    assert settings["heads"] == {"sparse": sparse}
    found = sparse_rows(output)
    assert [row["indices"] for row in found] == [row["indices"] for row in sparse_rows(both)]
    assert all(row["indices"] == sorted(row["indices"]) for row in found)
    assert all(min(row["values"], default=1) > 0 for row in found)
    message = "none of sentence: read them with bert_embed.read_sparse, .* with vectors dense"
    with pytest.raises(ValueError, match=message):
        bert_embed.read(output)


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_hits_are_those_of_all_products(run, both, models, corpus, kind):
    """Exact in unit/search; here from the texts to the hits."""
    output = both if kind == "sparse" else run(corpus, model=models[kind], part_docs=17)
    encoder = bert_embed.load(models[kind])
    documents = encoder.encode(list(TEXTS.values()), kind=kind, long_text="truncate")
    scores = encoder.similarity(encoder.encode_query(QUERIES, kind=kind), documents)
    found = bert_embed.nearest(str(output), QUERIES, 20, by=kind)
    for of_query, hits in zip(scores, found, strict=True):
        own = of_query[[int(hit.id) for hit in hits]]
        np.testing.assert_allclose([hit.score for hit in hits], own, rtol=1e-5)
        np.testing.assert_allclose(own, np.sort(of_query)[: -20 - 1 : -1], rtol=1e-5)
        assert [hit.text for hit in hits] == [TEXTS[hit.id] for hit in hits]
        assert hits[0].file.startswith(f"{kind}/part-")


def test_what_an_output_holds_is_searched_by_default(both, models, corpus, run, command):
    flags = {"model": models["sparse"]}
    sparse, none = run(corpus, "sparse", **flags), run({"empty.jsonl": ""}, "none", **flags)

    def scores(output, by=None):
        return [
            [hit.score for hit in hits]
            for hits in bert_embed.nearest(str(output), QUERIES, 5, by=by)
        ]

    assert scores(sparse) == scores(sparse, "sparse") == scores(both, "sparse")
    assert scores(both) == scores(both, "dense") != scores(both, "sparse")
    command("search", both, sparse, "money", k=1)  # what both hold
    assert "none has no vectors" in command("search", none, "money").err
    for output, by, messages in (
        (sparse, "dense", ["--by dense requires dense vectors", "that makes them, such as BAAI"]),
        (both, "multi", [f"multi vectors, but {both} holds dense and sparse"]),
        (both, "words", ["--by must be one of dense, sparse, multi"]),
    ):
        said = command("search", output, "money", by=by, code=2).err
        assert all(message in said for message in messages)


def test_all_kinds_of_a_run_have_the_same_parts(both, monkeypatch):
    names = [path.name for path in data_files(both)]
    assert len(names) > 3
    assert [path.name for path in data_files(both, "sparse")] == names
    for dense, sparse in zip(data_files(both), data_files(both, "sparse"), strict=True):
        assert pq.read_table(dense)["id"] == pq.read_table(sparse)["id"]
    ids, weights = bert_embed.read_sparse(both)
    assert ids == bert_embed.read(both)[0] == rows(both)["id"]
    assert (weights.shape, weights.dtype) == ((len(ids), len(VOCABULARY)), np.float32)
    for row, found in zip(weights, sparse_rows(both), strict=True):
        assert (row.indices.tolist(), row.data.tolist()) == (found["indices"], found["values"])
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ValueError, match=r"read_sparse requires scipy, .*: pip install scipy"):
        bert_embed.read_sparse(both)


@pytest.mark.slow
def test_an_unfinished_run_of_kinds_goes_on(tmp_path, run, corpus, models):
    flags = {"vectors": "dense,sparse,multi", "top_k": 20, "output_dtype": "int8"}
    flags |= {"block_bytes": 200, "report": "false", "model": models["m3"]}
    output = run(corpus, **flags)
    whole = shutil.copytree(output, tmp_path / "whole")
    for path in block_records(output)[2:]:
        path.unlink()
    for path in output.glob("*/part-0000002-*"):
        path.unlink()
    say_status(output, "running")
    run(corpus, **flags)
    assert record(output)["written"] == record(whole)["written"]
    for kind in ("embeddings", "sparse", "multi"):
        found = {path.name: path.read_bytes() for path in data_files(output, kind)}
        assert found == {path.name: path.read_bytes() for path in data_files(whole, kind)}
        assert len(found) > 2
    assert record(output)["counts"]["parts_reused"] == 2


def test_what_an_earlier_output_has_is_skipped_of_its_kinds(run, models, corpus, both, command):
    more = {"more.jsonl": corpus.read_text() + json.dumps({"id": "new", "text": "a new one"})}
    flags = {"model": models["sparse"], "skip_existing": both}
    output = run(more, vectors="dense,sparse", **flags)
    assert [row["id"] for row in sparse_rows(output)] == ["new"]
    (lost,) = data_files(output, "sparse")
    before = lost.read_bytes()
    lost.unlink()
    assert lost.name in command("verify", output, code=1).out
    command("verify", output, repair=True)
    assert lost.read_bytes() == before


REFUSED = [
    ({"pooling": "mean"}, "--pooling is for --vectors dense, not sparse"),
    ({"granularity": "token"}, "--granularity is for --vectors dense, not sparse"),
    ({"vectors": "sparse", "output_dtype": "int8"}, "--output_dtype is for --vectors dense and mu"),
    ({"extra_columns": "values:int64"}, "--extra_columns values clashes with a column of --vec"),
    ({"vectors": "multi", "output_format": "tfrecord"}, "multi requires parquet or jsonl"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED, ids=[one[1][:30] for one in REFUSED])
def test_what_cannot_be_is_refused_before_work_starts(run, models, flags, message):
    source = {"in.jsonl": '{"id": "1", "text": "bank", "values": 3}\n'}
    run.refused(source, message, model=models["sparse"], **flags)


def test_examples_give_sparse_and_no_multi_vectors(tmp_path, run, command, models, corpus, both):
    for kind in ("sparse", "multi"):
        command("tokenize", input=corpus, output=tmp_path / kind, model=models[kind])
    found = sparse_rows(run(tmp_path / "sparse", model=models["sparse"], vectors="dense,sparse"))
    wanted = sparse_rows(both)
    assert [row["id"] for row in found] == [row["id"] for row in wanted]
    assert [row["indices"] for row in found] == [row["indices"] for row in wanted]
    run.refused(corpus, "sparse: this model makes dense vectors alone", "none", vectors="sparse")
    flags = {"model": models["multi"], "vectors": "multi"}
    run.refused(tmp_path / "multi", "--vectors multi is for texts", "none", **flags)


def test_scores_have_a_column_for_each_label(run, models, corpus):
    """They stand beside vectors of the same pass where those are asked for, too."""
    output = run(corpus, model=models["scores"], vectors="scores,dense")
    ids, labels, scores = bert_embed.read_scores(output)
    done = record(output)
    assert labels == LABELS
    assert done["vectors"]["heads"] == {"scores": {"labels": LABELS, "activation": "softmax"}}
    assert ids == list(TEXTS)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
    [path] = data_files(output, "scores")
    table = pq.read_table(path).to_pydict()
    assert list(table)[:5] == ["id", *labels, "label"]
    assert table["label"] == [labels[number] for number in scores.argmax(axis=1)]
    assert done["computed_tokens"] == done["tokens"]
    assert bert_embed.read(output)[0] == ids


def test_labels_that_are_columns_already_are_refused(tmp_path, run, corpus, models):
    labels = {"0": "fine", "1": "Num_Tokens"}
    write_classifier(tmp_path / "source", "distilbert", 2, id2label=labels)
    run.refused(corpus, "the label Num_Tokens of --model", model=tmp_path / "source")
    assert "clashes with the output's own column num_tokens" in run.err
    source = {"in.jsonl": '{"id": "1", "text": "bank", "label": "x"}\n'}
    message = "--extra_columns label clashes with a column of --vectors scores"
    run.refused(source, message, model=models["scores"], extra_columns="label")


def test_multi_vectors_are_those_of_the_encoder(run, models, corpus):
    """All formats and types: unit/transforms/test_writer.py."""
    output = run(corpus, model=models["multi"], vectors="multi", output_dtype="int8", part_docs=7)
    assert record(output)["vectors"]["heads"]["multi"]["similarity"] == "maxsim"
    with pytest.raises(bert_embed.SettingError, match=r"^kind multi .*: read it with read_multi"):
        bert_embed.read(output, kind="multi")
    read = dict(bert_embed.read_multi(output))
    assert list(read) == list(TEXTS)
    asked = {"long_text": "truncate", "kind": "multi"}
    wanted = bert_embed.load(models["multi"]).encode(list(TEXTS.values()), **asked)
    for found, vectors in zip(read.values(), wanted.rows(), strict=True):
        assert (found.dtype, found.flags.writeable) == (np.float32, True)
        np.testing.assert_allclose(found, vectors, atol=1e-2)
