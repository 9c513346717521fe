"""Prompts: documents and queries get those of the model by themselves; outputs say which."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.base.errors import SettingError
from tests.support.command import data_files, record, vectors
from tests.support.models.folder import snapshot_folder
from tests.support.models.sentence_transformers import write_sentence_transformers

TEXTS = ("the bank of the river", "money in the vault", "people could find two banks")
SOURCE = {"in.txt": "".join(f"{text}\n" for text in TEXTS)}
QUERY, PASSAGE = "find the river: ", "people: "
SEARCHING = "Represent this sentence for searching relevant passages: "
E5, BGE = "intfloat/multilingual-e5-small", "BAAI/bge-small-en-v1.5"
PROMPTS = {"other": "no: ", "passage": "no: ", "query": QUERY, "document": PASSAGE}
NAMED, ASKED = "--prompt name:passage puts it there", {"prompt": "name:passage"}
TRAINED = "was trained with 'passage: ' before each document and 'query: ' before"
CLUSTERS = {"clustering": PASSAGE}
# The model's prompts, or its name in the cache of the hub; its default; flags; what is said; the
# prompts of documents and queries. As sentence-transformers 6.2 takes a prompt of another name than
# `document` for none of documents, whatever its page on `encode_document` says.
CASES = {
    "named": (PROMPTS, "other", {}, f"prompt {PASSAGE!r}", PASSAGE, QUERY),
    "left out": (PROMPTS, "other", {"prompt": ""}, "", "", QUERY),
    "passage": ({"query": QUERY, "passage": PASSAGE}, None, {}, NAMED, "", QUERY),
    "asked for": ({"query": QUERY, "passage": PASSAGE}, None, ASKED, "", PASSAGE, QUERY),
    "known": (E5, None, {}, TRAINED, "", ""),
    "known, given": (E5, None, {"prompt": "passage: "}, "", "passage: ", "query: "),
    "of queries alone": (BGE, None, {}, "", "", SEARCHING),
    "empty": ({"query": "", "document": ""}, None, {}, "", "", ""),
    "default of another name": (CLUSTERS, "clustering", {}, "", "", ""),
    "that default": (CLUSTERS, "clustering", {"prompt": "name:clustering"}, "", PASSAGE, PASSAGE),
}


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "imported"))


def in_hub_cache(tmp_path, name):
    """A model without prompts in the cache of the hub."""
    folder = snapshot_folder(tmp_path / "hub", name, "0a" * 20)
    write_sentence_transformers(folder, normalize=True)
    return name


@pytest.fixture
def found(command):
    """The hits of a search, as JSON has them."""
    return lambda *words: json.loads(command("search", *words, "--json").out)["hits"]


def scores(hits):
    return {hit["text"]: hit["score"] for hit in hits}


def expected(model, documents, query):
    encoder = bert_embed.load(model)
    found = encoder.encode(TEXTS, prompt=documents) @ encoder.encode("find banks", prompt=query)
    return pytest.approx(dict(zip(TEXTS, found.tolist(), strict=True)), abs=1e-4)


@pytest.mark.parametrize(
    ("prompts", "default", "flags", "said", "document", "query"), CASES.values(), ids=CASES
)
def test_documents_and_queries_get_their_prompts(
    tmp_path, run, found, prompts, default, flags, said, document, query
):
    if isinstance(prompts, str):
        model = in_hub_cache(tmp_path, prompts)
    else:
        model = str(tmp_path / "model")
        settings = {"prompts": prompts, "default_prompt": default, "normalize": True}
        write_sentence_transformers(
            tmp_path / "model", **{name: value for name, value in settings.items() if value}
        )
    output = run(SOURCE, model=model, **flags)
    assert said in run.err
    assert ("puts it there" in run.err) == ("puts it" in said or said == TRAINED)
    assert ("was trained with" in run.err) == (said == TRAINED)
    described = record(output)["vectors"]
    assert (described["prompt"], described.get("query_prompt", "")) == (document, query)
    footer = pq.read_schema(data_files(output)[0]).metadata[b"bert_embed"]
    assert json.loads(footer) == described
    encoder = bert_embed.load(model)
    np.testing.assert_allclose(vectors(output), encoder.encode(TEXTS, prompt=document), atol=1e-5)
    assert scores(found(output, "find banks")) == expected(model, document, query)
    if not flags:
        np.testing.assert_allclose(vectors(output), encoder.encode_document(TEXTS), atol=1e-5)
        bare = scores(found(output, "find banks", "--prompt="))
        assert bare == expected(model, document, "")


def test_outputs_of_one_model_with_other_prompts_get_their_own_queries(tmp_path, run, found):
    model = in_hub_cache(tmp_path, "intfloat/e5-base-v2")
    outputs = [run(SOURCE, "a", model=model), run(SOURCE, "b", model=model, prompt="passage: ")]
    hits = found(*outputs, "find banks")
    for output, prompts in zip(outputs, (("", ""), ("passage: ", "query: ")), strict=True):
        own = scores(hit for hit in hits if hit["output"] == str(output))
        assert own == expected(model, *prompts)
    with pytest.raises(SettingError, match=r"^prompt name:passage is none of this model's prompts"):
        bert_embed.nearest(str(outputs[0]), ["banks"], k=1, prompt="name:passage")


def test_search_compares_as_the_model_does(tmp_path, run, found, command):
    model = tmp_path / "model"
    write_sentence_transformers(model)
    config = model / "config_sentence_transformers.json"
    config.write_text(json.dumps({"similarity_fn_name": "euclidean", "truncate_dim": 8}))
    output = run(SOURCE, model=model)
    described = record(output)
    assert described["vectors"].pop("similarity") == "euclidean"
    encoder = bert_embed.load(model)
    wanted = encoder.encode(TEXTS)
    assert wanted.shape == (3, 8)
    wanted = (-np.linalg.norm(wanted - encoder.encode("find banks"), axis=1)).tolist()
    wanted = pytest.approx(dict(zip(TEXTS, wanted, strict=True)), abs=1e-4)
    assert scores(found(output, "find banks")) == wanted
    (output / "run.json").write_text(json.dumps(described))  # as of a run of an earlier version
    assert scores(found(output, "find banks")) == wanted
    facts = json.loads(command("model", "inspect", model, "--json").out)
    assert facts["similarity"] == "euclidean"
