"""A head and an output format that a file and a row add, through the doors that users have."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bert_embed
from bert_embed.bundle.bundle import load_tensors, read_bundle
from bert_embed.importers.weights import write_bundle
from bert_embed.models.heads.kinds import HEADS, KINDS, ROW_KINDS, register_kind
from bert_embed.results.files import FORMATS, VECTOR_FORMATS, register_format
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.fields import table_schema, vector_schema
from tests.support.arrow_format import ARROW
from tests.support.command import block_records, data_files, record, say_status, write_json
from tests.support.norm_head import NORM, NormHead
from tests.support.outputs import contents, export

LINES = ["the bank of the river", "money bank", "", "the vault of the bank", "money " * 90]


@pytest.fixture(scope="module", autouse=True)
def toys():
    """Both are known in this module alone."""
    tables = (KINDS, ROW_KINDS, HEADS, FORMATS, VECTOR_FORMATS)
    before = [dict(table) for table in tables]
    register_kind(NORM)
    register_format(ARROW)
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, tiny_bundle):
    plain = read_bundle(tiny_bundle)
    folder = tmp_path_factory.mktemp("norm") / "bundle"
    made = replace(
        plain, path=str(folder), files={}, heads={"norm": NormHead()}, default_vectors=("norm",)
    )
    return write_bundle(made, load_tensors(plain), load_tokenizer(plain)).path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    records = [{"id": f"{n}", "text": f"{LINES[n % 5]} {n}"} for n in range(40)]
    return write_json(path, *records)


@pytest.fixture(scope="module")
def expected(bundle, corpus):
    """The norms of the texts, by the vectors that the encoder gives."""
    texts = [json.loads(line)["text"] for line in corpus.read_text().splitlines()]
    encoder = bert_embed.load(bundle, normalize=False, max_seq_length=24)
    vectors = encoder.encode(texts, kind="dense", pooling="mean", normalize=False, dense=0)
    return np.linalg.norm(vectors, axis=1)


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord", "arrow"])
def test_a_head_is_written_read_and_described(
    tmp_path, run, bundle, corpus, expected, output_format, command
):
    flags = {"output_format": output_format, "max_seq_length": 24, "report": "true"}
    output = run(corpus, model=bundle, **flags)
    assert "the norm of the mean vector of a document" in run.said
    settings = record(output)["vectors"]
    assert (settings["vectors"], settings["heads"]) == (["norm"], {"norm": {}})
    assert record(output)["written"]["norms"]["rows"] == 40
    ids, norms = bert_embed.read(output, kind="norm")
    assert ids == [str(number) for number in range(40)]
    np.testing.assert_allclose(norms[:, 0], expected, rtol=1e-5)
    command("verify", output)
    with pytest.raises(ValueError, match=r"none of sentence: read them with .*kind='norm'"):
        bert_embed.read(output)
    said = command("search", output, "the bank", code=2).err
    assert "holds norm vectors, which have no similarity" in said
    if output_format != "parquet":
        return
    assert "norm" in command("model", "inspect", bundle).out
    assert export(output, tmp_path / "npy", "npy") == 0
    exported = np.load(tmp_path / "npy" / "emb_0000.npy")
    np.testing.assert_allclose(exported[:, 0], expected, rtol=1e-5)
    fields = table_schema(vector_schema("norm", None, False, settings))
    found = [(one["name"], one["type"]) for one in fields][:2]
    assert found == [("id", "STRING"), ("norm", "FLOAT64")]
    encoder = bert_embed.load(bundle, max_seq_length=24)
    text = json.loads(corpus.read_text().splitlines()[0])["text"]
    assert encoder.encode([text], kind="norm")[0, 0] == pytest.approx(expected[0], rel=1e-5)


def test_a_format_is_written_resumed_verified_and_read(run, corpus, command):
    flags = {"output_format": "arrow", "granularity": "sentence,word", "block_bytes": 300}
    again = run(corpus, "again", **flags)
    names, before = [path.name for path in data_files(again)], contents(again / "words")
    assert len(names) > 2
    assert all(name.endswith(".arrow") for name in names)
    # As a kill between two parts leaves it: a part's files without its record, another without both
    say_status(again, "running")
    records = block_records(again)
    for path in (records[0], records[-1], again / "words" / names[-1]):
        path.unlink()
    run(corpus, "again", **flags)
    assert contents(again / "words") == before
    command("verify", again)
    plain = run(corpus, "plain", **flags | {"output_format": "parquet"})
    np.testing.assert_array_equal(bert_embed.read(again)[1], bert_embed.read(plain)[1])
    for one, other in zip(bert_embed.read_words(again), bert_embed.read_words(plain), strict=True):
        assert (one.id, one.texts) == (other.id, other.texts)
        np.testing.assert_array_equal(one.vectors, other.vectors)
    first = again / "embeddings" / names[0]
    first.write_bytes(first.read_bytes()[:-8])
    command("verify", again, code=1)
