"""--chunk: a vector for each sentence, paragraph or run of tokens, none lost and none twice."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import data_files, record, rejected, rows, say_status, vectors
from tests.support.models.sentence_transformers import CASES, write_sentence_transformers
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow

DOCUMENTS = {
    "a": "The bank of a river. Seven red stars!  Unaffable words? " + "the river bank " * 12,
    "b": "A river\n\nThe bank.\nA red river.",
    "c": " . \n",
    "d": "\u200b",
    "e": "",
}


OF_CHUNKS = ("chunk", "overlap")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": name, "text": text}) for name, text in DOCUMENTS.items()]
    path.write_text("\n".join(lines))
    return path


def places(output):
    found = rows(output)
    names = ("id", "chunk", "start", "stop")
    return list(zip(*(found[name] for name in names), strict=True))


def test_the_summary_says_how_many_chunks_a_second(run, monkeypatch):
    """Documents may be books; and how long the report took, which the seconds do not include."""
    monkeypatch.setattr("bert_embed.pipeline.job._LONG_REPORT", 0.0)
    text = {"in.txt": "the river bank. a red star. " * 400}
    found = record(run(text, chunk="sentence", max_seq_length=16))
    each = re.search(r"(\d+) documents/s, ([\d,]+) chunks/s, [\d,]+ tokens/s", run.out)
    expected = found["written"]["chunks"]["rows"] / found["elapsed_seconds"]
    assert float(each[2].replace(",", "")) == pytest.approx(expected, rel=0.1, abs=1)
    assert re.search(r"the report took \d+\.\d s more\n", run.err)


@pytest.mark.parametrize(
    "flags",
    [
        {"chunk": "sentence"},
        {"chunk": "paragraph:11"},
        {"chunk": "tokens:11", "overlap": 2, "normalize": True},
    ],
    ids=lambda flags: flags["chunk"],
)
def test_a_chunk_has_the_vector_of_its_text(run, corpus, flags):
    flags = flags | {"max_seq_length": 16, "prompt": "bank: "}
    output = run(corpus, keep_text=True, **flags)
    found = rows(output)
    for (name, _, start, stop), text in zip(places(output), found["text"], strict=True):
        assert text == DOCUMENTS[name][start:stop]
    for name in "abc":
        own = [number for each, number, _, _ in places(output) if each == name]
        assert own == list(range(len(own)))
    counts, written = record(output)["counts"], record(output)["written"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (5, 3, 2)
    assert {each["reason"] for each in rejected(output)} == {"no tokens", "empty text"}
    assert written["chunks"]["rows"] == len(found["id"]) > 6
    assert found["truncated"] == [False] * len(found["id"])
    assert max(found["num_tokens"]) <= 16
    given = {name: value for name, value in flags.items() if name not in OF_CHUNKS}
    alone = run({"alone.jsonl": [{"text": text} for text in found["text"]]}, "alone", **given)
    assert_near(vectors(output), vectors(alone))
    assert rows(alone)["num_tokens"] == found["num_tokens"]


def test_a_chunk_that_is_pooled_late_is_the_mean_of_its_tokens_in_the_document(run, corpus):
    chunk, flags = {"chunk": "sentence", "dim": 8}, {"max_seq_length": 24, "block_bytes": 200}
    output = run(corpus, "late", chunk_context="document", **chunk, **flags)
    flags |= {"granularity": "token", "long_text": "window", "dim": 8}
    documents = {each.id: each for each in bert_embed.read_tokens(run(corpus, "tokens", **flags))}
    wanted = []
    for name, _, start, stop in places(output):
        tokens = documents[name]
        inside = (tokens.starts >= start) & (tokens.stops <= stop)
        wanted.append(tokens.vectors[inside].mean(0))
    assert len(wanted) > 6
    assert_near(vectors(output), np.array(wanted))
    own = run(corpus, "own", max_seq_length=24, **chunk)
    assert places(own) == places(output)
    assert np.abs(vectors(own) - vectors(output)).max() > 0.01


def test_chunks_are_continued_verified_searched_and_not_embedded_again(run, corpus, capsys):
    flags = {"chunk": "sentence", "block_bytes": 60, "part_docs": 1}
    output = run(corpus, **flags)
    before = {path: path.read_bytes() for path in data_files(output, "chunks")}
    whole = places(output)
    (output / "_state" / "blocks" / "0000000-00000.json").unlink()
    say_status(output, "running")
    run(corpus, **flags)
    assert {path: path.read_bytes() for path in data_files(output, "chunks")} == before
    assert main(["verify", str(output)]) == 0
    ids, found = bert_embed.read(output)
    assert ids == [place[0] for place in whole]
    assert found.shape == (len(whole), 32)
    assert main(["search", str(output), "The bank."]) == 0
    assert "The bank." in capsys.readouterr().out
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join([*lines, '{"id": "f", "text": "Red. Seven."}']))
    again = run(corpus, "again", skip_existing=output, **flags)
    assert record(again)["counts"]["skipped"] == 3
    assert [place[:2] for place in places(again)] == [("f", 0), ("f", 1)]
    message = 'chunk is "sentence" there and "paragraph" here'
    run.refused(corpus, message, "other", skip_existing=output, chunk="paragraph")


def test_chunks_that_overlap_are_read_in_blocks_of_the_usual_size(run):
    text = {"in.txt": "the bank of the river\n" * 1000}
    run(text, chunk="tokens", overlap=32, dry_run=True)
    assert "in 1 block\n" in run.out


def test_every_format_has_the_same_chunks(run, corpus):
    flags = {"chunk": "sentence", "keep_text": True}
    made = {
        kind: run(corpus, kind, output_format=kind, **flags)
        for kind in ("parquet", "jsonl", "tfrecord")
    }
    table = pq.read_table(made["parquet"] / "chunks")
    names = ["chunk", "start", "stop", "text"]
    assert table.column_names[-4:] == names
    (path,) = data_files(made["jsonl"], "chunks")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    wanted = table.select(names).to_pylist()
    assert [{name: line[name] for name in names} for line in lines] == wanted
    data = tf.data.TFRecordDataset([str(each) for each in data_files(made["tfrecord"], "chunks")])
    kinds = {name: tf.io.FixedLenFeature([], tf.int64) for name in names[:3]}
    for example, row in zip(data, wanted, strict=True):
        parsed = tf.io.parse_single_example(example, kinds)
        assert [int(parsed[name]) for name in names[:3]] == [row[name] for name in names[:3]]
    for kind in ("jsonl", "tfrecord"):
        np.testing.assert_array_equal(bert_embed.read(made[kind])[1], vectors(made["parquet"]))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"overlap": 5}, "--overlap requires --long_text window or windows, or --chunk"),
        ({"chunk": "sentence", "overlap": 5}, "their most tokens, such as --chunk sentence:200"),
        (
            {"chunk": "tokens", "granularity": "token"},
            "--chunk requires --granularity sentence alone",
        ),
        ({"chunk": "tokens", "long_text": "window"}, "--chunk conflicts with --long_text window"),
        ({"chunk": "tokens:600"}, "--chunk must have at most 62 tokens"),
        (
            {"chunk": "tokens", "chunk_context": "document", "pooling": "cls"},
            "--chunk_context document takes the mean of tokens and conflicts with --pooling cls",
        ),
    ],
)
def test_flags_that_conflict_are_refused(run, corpus, flags, said):
    run.refused(corpus, said, **flags)


def test_late_chunks_of_a_model_with_modules_on_tokens_are_refused(tmp_path, run):
    write_sentence_transformers(tmp_path / "model", **CASES["weighted"])
    flags = {"model": tmp_path / "model", "chunk": "sentence"}
    message = "--chunk_context document takes the mean of hidden"
    run.refused({"in.txt": "a bank\n"}, message, chunk_context="document", **flags)
    run({"in.txt": "a bank\n"}, **flags)
