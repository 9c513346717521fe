"""--chunk: a vector for each sentence, paragraph or run of tokens, none lost and none twice."""

import json
import re

import numpy as np
import pytest

import bert_embed
from tests.support.command import record, rejected, rows, vectors
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
LINES = [json.dumps({"id": name, "text": text}) for name, text in DOCUMENTS.items()]
CORPUS = {"in.jsonl": "\n".join(LINES)}


def places(output):
    found = rows(output)
    names = ("id", "chunk", "start", "stop")
    return list(zip(*(found[name] for name in names), strict=True))


@pytest.mark.parametrize(
    ("chunk", "of_chunks"),
    [("sentence", {}), ("paragraph:11", {}), ("tokens:11", {"overlap": 2})],
)
def test_a_chunk_has_the_vector_of_its_text(run, chunk, of_chunks):
    flags = {"max_seq_length": 16, "prompt": "bank: ", "normalize": "overlap" in of_chunks}
    output = run(CORPUS, keep_text=True, chunk=chunk, **flags, **of_chunks)
    done, found = record(output), rows(output)
    for (name, _, start, stop), text in zip(places(output), found["text"], strict=True):
        assert text == DOCUMENTS[name][start:stop]
    for name in "abc":
        own = [number for each, number, _, _ in places(output) if each == name]
        assert own == list(range(len(own)))
    counts = done["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (5, 3, 2)
    assert {each["reason"] for each in rejected(output)} == {"no tokens", "empty text"}
    assert done["written"]["chunks"]["rows"] == len(found["id"]) > 6
    assert found["truncated"] == [False] * len(found["id"])
    assert max(found["num_tokens"]) <= 16
    alone = run({"alone.jsonl": [{"text": text} for text in found["text"]]}, "alone", **flags)
    assert_near(vectors(output), vectors(alone))
    assert rows(alone)["num_tokens"] == found["num_tokens"]


def test_a_chunk_that_is_pooled_late_is_the_mean_of_its_tokens_in_the_document(run):
    chunk, flags = {"chunk": "sentence", "dim": 8}, {"max_seq_length": 24, "block_bytes": 200}
    output = run(CORPUS, "late", chunk_context="document", **chunk, **flags)
    flags |= {"granularity": "token", "long_text": "window", "dim": 8}
    documents = {each.id: each for each in bert_embed.read_tokens(run(CORPUS, "tokens", **flags))}
    wanted = []
    for name, _, start, stop in places(output):
        tokens = documents[name]
        inside = (tokens.starts >= start) & (tokens.stops <= stop)
        wanted.append(tokens.vectors[inside].mean(0))
    assert len(wanted) > 6
    assert_near(vectors(output), np.array(wanted))
    own = run(CORPUS, "own", max_seq_length=24, **chunk)
    assert places(own) == places(output)
    assert np.abs(vectors(own) - vectors(output)).max() > 0.01


def test_chunks_are_read_searched_and_not_embedded_again(run, command, monkeypatch):
    monkeypatch.setattr("bert_embed.pipeline.job._LONG_REPORT", 0.0)
    output = run(CORPUS, chunk="sentence")
    # Documents may be books; the report's seconds are none of the run's.
    assert re.search(r"\d documents/s, [\d,]+ chunks/s, [\d,]+ tokens/s", run.out)
    assert re.search(r"the report took \d+\.\d s more\n", run.err)
    command("verify", output)
    ids, found = bert_embed.read(output)
    assert ids == rows(output)["id"]
    assert found.shape == (len(ids), 32)
    assert "The bank." in command("search", output, "The bank.").out
    more = {"more.jsonl": "\n".join([*LINES, '{"id": "f", "text": "Red. Seven."}'])}
    again = run(more, "again", skip_existing=output, chunk="sentence")
    assert record(again)["counts"]["skipped"] == 3
    assert [place[:2] for place in places(again)] == [("f", 0), ("f", 1)]
    message = 'chunk is "sentence" there and "paragraph" here'
    run.refused(more, message, "other", skip_existing=output, chunk="paragraph")


def test_chunks_that_overlap_are_read_in_blocks_of_the_usual_size(run):
    run({"in.txt": "the bank of the river\n" * 1000}, chunk="tokens", overlap=32, dry_run=True)
    assert "in 1 block\n" in run.out


def test_late_chunks_of_a_model_with_modules_on_tokens_are_refused(tmp_path, run, here):
    write_sentence_transformers(tmp_path / "model", **CASES["weighted"])
    flags = {"model": tmp_path / "model", "chunk": "sentence"}
    message = "--chunk_context document takes the mean of hidden"
    run.refused({"in.txt": "a bank\n"}, message, chunk_context="document", **flags)
    run({"in.txt": "a bank\n"}, **flags)
