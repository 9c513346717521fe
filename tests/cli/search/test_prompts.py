"""Prompts: documents and queries get those of the model by themselves; outputs say which."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import data_files, record, vectors
from tests.support.models.hub import snapshot_folder
from tests.support.models.sentence_transformers import write_sentence_transformers

TEXTS = ("the bank of the river", "money in the vault", "people could find two banks")
QUERY, PASSAGE = "find the river: ", "people: "
SEARCHING = "Represent this sentence for searching relevant passages: "


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "imported"))


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return tmp_path / "in.txt"


def in_hub_cache(tmp_path, name):
    """A model without prompts in the cache of the hub."""
    folder = snapshot_folder(tmp_path / "hub", name, "0a" * 20)
    write_sentence_transformers(folder, normalize=True)
    return name


def scores(output, capsys, *flags):
    capsys.readouterr()
    assert main(["search", str(output), "find banks", "--json", *flags]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    return {hit["text"]: hit["score"] for hit in hits}


def expected(model, documents, query):
    encoder = bert_embed.load(model)
    found = encoder.encode(TEXTS, prompt=documents) @ encoder.encode("find banks", prompt=query)
    return dict(zip(TEXTS, found.tolist(), strict=True))


def test_documents_and_queries_get_the_prompts_that_the_model_names(tmp_path, run, source, capsys):
    model = str(tmp_path / "model")
    prompts = {"other": "no: ", "passage": "no: ", "query": QUERY, "document": PASSAGE}
    settings = {"prompts": prompts, "default_prompt": "other", "normalize": True}
    write_sentence_transformers(tmp_path / "model", **settings)
    output = run(source, model=model)
    assert f"prompt {PASSAGE!r}" in run.err
    wanted = bert_embed.load(model).encode_document(TEXTS)
    np.testing.assert_allclose(vectors(output), wanted, atol=1e-5)
    described = record(output)["vectors"]
    assert (described["prompt"], described["query_prompt"]) == (PASSAGE, QUERY)
    footer = pq.read_schema(data_files(output)[0]).metadata[b"bert_embed"]
    assert json.loads(footer)["query_prompt"] == QUERY
    wanted = expected(model, PASSAGE, QUERY)
    assert scores(output, capsys) == pytest.approx(wanted, abs=1e-4)
    bare = expected(model, PASSAGE, "")
    assert scores(output, capsys, "--prompt=") == pytest.approx(bare, abs=1e-4)
    assert record(run(source, "bare", model=model, prompt=""))["vectors"]["prompt"] == ""


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_a_prompt_of_another_name_is_not_for_documents(tmp_path, run, source, name):
    """As in sentence-transformers 6.2, whatever its page on `encode_document` says."""
    model = str(tmp_path / "model")
    prompts = {"query": QUERY, name: PASSAGE}
    write_sentence_transformers(tmp_path / "model", prompts=prompts, normalize=True)
    output = run(source, model=model)
    assert f"--prompt name:{name} puts it there" in run.err
    encoder = bert_embed.load(model)
    np.testing.assert_array_equal(encoder.encode_document(TEXTS), encoder.encode(TEXTS, prompt=""))
    np.testing.assert_allclose(vectors(output), encoder.encode_document(TEXTS), atol=1e-5)
    asked = run(source, "asked", model=model, prompt=f"name:{name}")
    assert "puts it there" not in run.err
    wanted = encoder.encode(TEXTS, prompt=PASSAGE)
    np.testing.assert_allclose(vectors(asked), wanted, atol=1e-5)


def test_a_known_model_whose_files_name_no_prompts_is_said_to_need_them(
    tmp_path, run, source, capsys
):
    model = in_hub_cache(tmp_path, "intfloat/multilingual-e5-small")
    output = run(source, model=model)
    assert "was trained with 'passage: ' before each document and 'query: ' before" in run.err
    assert "--prompt 'passage: ' puts it there" in run.err
    assert "query_prompt" not in record(output)["vectors"]
    assert scores(output, capsys) == pytest.approx(expected(model, "", ""), abs=1e-4)
    asked = run(source, "with", model=model, prompt="passage: ")
    assert "was trained with" not in run.err
    assert record(asked)["vectors"]["query_prompt"] == "query: "
    wanted = expected(model, "passage: ", "query: ")
    assert scores(asked, capsys) == pytest.approx(wanted, abs=1e-4)


def test_queries_alone_get_a_prompt_where_the_model_was_trained_so(tmp_path, run, source, capsys):
    model = in_hub_cache(tmp_path, "BAAI/bge-small-en-v1.5")
    output = run(source, model=model)
    assert "was trained with" not in run.err
    described = record(output)["vectors"]
    assert (described["prompt"], described["query_prompt"]) == ("", SEARCHING)
    wanted = expected(model, "", SEARCHING)
    assert scores(output, capsys) == pytest.approx(wanted, abs=1e-4)


def test_outputs_of_one_model_with_other_prompts_get_their_own_queries(
    tmp_path, run, source, capsys
):
    model = in_hub_cache(tmp_path, "intfloat/e5-base-v2")
    outputs = [run(source, "a", model=model), run(source, "b", model=model, prompt="passage: ")]
    assert main(["search", *map(str, outputs), "find banks", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    for output, prompts in zip(outputs, (("", ""), ("passage: ", "query: ")), strict=True):
        found = {hit["text"]: hit["score"] for hit in hits if hit["output"] == str(output)}
        assert found == pytest.approx(expected(model, *prompts), abs=1e-4)


def test_a_model_without_prompts_says_nothing_of_them(tmp_path, run, source):
    write_sentence_transformers(tmp_path / "model", prompts={"query": "", "document": ""})
    assert "query_prompt" not in record(run(source, model=tmp_path / "model"))["vectors"]


def test_a_default_prompt_of_another_name_is_for_those_who_ask_for_it(
    tmp_path, run, source, capsys
):
    model, prompts = str(tmp_path / "model"), {"clustering": PASSAGE}
    settings = {"prompts": prompts, "default_prompt": "clustering", "normalize": True}
    write_sentence_transformers(tmp_path / "model", **settings)
    for folder, flags, text in (("out", {}, ""), ("asked", {"prompt": "name:clustering"}, PASSAGE)):
        output = run(source, folder, model=model, **flags)
        assert record(output)["vectors"]["prompt"] == text
        wanted = expected(model, text, text)
        assert scores(output, capsys) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("similarity", "plain"),
    [
        ("dot", lambda found, query: found @ query),
        ("euclidean", lambda found, query: -np.linalg.norm(found - query, axis=1)),
    ],
)
def test_search_compares_as_the_model_does(tmp_path, run, source, capsys, similarity, plain):
    model = tmp_path / "model"
    write_sentence_transformers(model)
    config = model / "config_sentence_transformers.json"
    config.write_text(json.dumps({"similarity_fn_name": similarity, "truncate_dim": 8}))
    output = run(source, model=model)
    assert record(output)["vectors"]["similarity"] == similarity
    encoder = bert_embed.load(model)
    found, query = encoder.encode(TEXTS), encoder.encode("find banks")
    assert found.shape == (3, 8)
    np.testing.assert_allclose(vectors(output), found, atol=1e-5)
    wanted = dict(zip(TEXTS, plain(found, query).tolist(), strict=True))
    assert scores(output, capsys) == pytest.approx(wanted, abs=1e-4)
    described = record(output)
    del described["vectors"]["similarity"]  # as in a run of an earlier version
    (output / "run.json").write_text(json.dumps(described))
    assert scores(output, capsys) == pytest.approx(wanted, abs=1e-4)
    assert main(["model", "inspect", str(model)]) == 0
    shown = {"dot": "dot product", "euclidean": "euclidean distance"}[similarity]
    assert f"compared by    {shown}" in " ".join(capsys.readouterr().out.split("\n"))
