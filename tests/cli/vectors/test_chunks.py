"""--chunk: a vector for each sentence, paragraph or run of tokens; --chunk_context before it."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import record, rejected, rows, vectors
from tests.support.models.architectures import write_architecture
from tests.support.models.sentence_transformers import write_case
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


def test_chunks_are_read_searched_and_not_embedded_again(run, command):
    output = run(CORPUS, chunk="sentence")
    # Documents may be books.
    assert re.search(r"\d documents/s, [\d,]+ chunks/s, [\d,]+ tokens/s", run.out)
    command("verify", output)
    ids, found = bert_embed.read(output)
    assert ids == rows(output)["id"]
    assert found.shape == (len(ids), 32)
    assert "The bank." in command("search", output, "The bank.").out
    more = {"more.jsonl": "\n".join([*LINES, '{"id": "f", "text": "Red. Seven."}'])}
    again = run(more, "again", skip_existing=output, chunk="sentence")
    assert record(again)["counts"]["skipped"] == 3
    assert [place[:2] for place in places(again)] == [("f", 0), ("f", 1)]


def test_chunks_that_overlap_are_read_in_blocks_of_the_usual_size(run):
    run({"in.txt": "the bank of the river\n" * 1000}, chunk="tokens", overlap=32, dry_run=True)
    assert "in 1 block\n" in run.out


def test_late_chunks_of_a_model_with_modules_on_tokens_are_refused(model_of, run):
    flags = {"model": model_of(write_case, "weighted").path, "chunk": "sentence"}
    message = "--chunk_context document takes the mean of hidden"
    run.refused({"in.txt": "a bank\n"}, message, chunk_context="document", **flags)
    run({"in.txt": "a bank\n"}, **flags)


MARKDOWN = (
    "# The river\n\nA bank.\n\n## Red stars ##\n\nSeven of them. Is it?\n\n# End\n\nThe bank."
)
TITLED = [
    {"id": "a", "title": "Seven banks", "part": " two ", "text": "The bank of a river. Red stars!"},
    {"id": "b", "title": "Straße 北京", "part": None, "text": MARKDOWN},
    {"id": "c", "title": " ", "part": None, "text": "  Unaffable words? The river bank."},
    {"id": "d", "title": None, "part": None, "text": MARKDOWN},
]
# The context of each chunk of `MARKDOWN`, a paragraph or less
ABOVE = ["", "The river", "The river", "The river Red stars", "", "End"]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_a_chunk_has_the_vector_of_prompt_context_and_text(run, model_of, tiny_bundle, family):
    model = tiny_bundle if family == "bert" else model_of(write_architecture, family).path
    prompt, context = "bank: ", {"chunk_context": "title,part,headings"}
    flags = {"chunk": "paragraph", "prompt": prompt, "keep_text": True, "model": model}
    source = {"in.jsonl": TITLED}
    output, without = run(source, **flags, **context), run(source, "plain", **flags)
    found, plain = rows(output), rows(without)
    for name in ("id", "chunk", "start", "stop", "text", "truncated"):
        assert found[name] == plain[name], name
    before = {"a": ["Seven banks two"], "b": [f"Straße 北京 {one}".strip() for one in ABOVE]}
    before |= {"c": [""], "d": ABOVE}
    contexts = [
        before[name][chunk] for name, chunk in zip(found["id"], found["chunk"], strict=True)
    ]
    encoder = bert_embed.load(model)
    joined = [
        f"{prompt}{context} {text}" for context, text in zip(contexts, found["text"], strict=True)
    ]
    with_context = np.array(list(map(bool, contexts)))
    assert with_context.sum() == 11
    wanted = encoder.encode([text for text, has in zip(joined, with_context, strict=True) if has])
    np.testing.assert_allclose(vectors(output)[with_context], wanted, atol=1e-5)
    # Without a context a chunk is the same in both, and so are hashes of texts with headings alone.
    hashes = dict(zip(found["id"], found["text_hash"], strict=True))
    same = dict(zip(plain["id"], plain["text_hash"], strict=True))
    assert [hashes[name] == same[name] for name in "abcd"] == [False, False, True, True]
    same = (vectors(output) == vectors(without)).all(axis=1)
    assert same.tolist() == (~with_context).tolist()
    settings, others = record(output), record(without)
    assert settings["vectors"]["chunk_context"] == ["title", "part", "headings"]
    assert settings["run"] != others["run"]
    assert "chunk_context" not in others["vectors"]


def test_a_long_context_is_cut_and_counted_and_chunks_leave_room(run, tiny_bundle):
    text = "the bank of a river. " * 12
    titles = {"long": "river bank " * 40, "word": "x" * 90, "short": "red star"}
    source = [{"id": name, "title": title, "text": text} for name, title in titles.items()]
    flags = {"chunk": "tokens", "max_seq_length": 16, "keep_text": True, "chunk_context": "title"}
    output = run({"in.jsonl": source}, **flags)
    said = "contexts of 2 documents were cut, at half of what the model reads at a time"
    assert said in run.out
    assert record(output)["cut_contexts"] == 2
    found = rows(output)
    assert "".join(found["text"]).replace(" ", "") == 3 * text.replace(" ", "")
    assert max(found["num_tokens"]) <= 16
    first, encoder = found["id"].index("long"), bert_embed.load(tiny_bundle)
    before = "river bank " * 3 + "river "  # half of what it reads
    wanted = encoder.encode(before + found["text"][first])
    np.testing.assert_allclose(vectors(output)[first], wanted, atol=1e-5)


def test_what_cannot_be_a_context_is_refused_before_work(tmp_path, run):
    table = pa.table({"id": ["a"], "title": ["t"], "text": ["The bank."], "n": [1]})
    pq.write_table(table, tmp_path / "in.parquet")
    run.written({"in.jsonl": table.to_pylist(), "in.txt": "The bank.\n"})
    for suffix, context, said in (
        ("jsonl", "headline", "--chunk_context headline is not in the first"),
        ("parquet", "headline", "--chunk_context headline is not a column of"),
        ("parquet", "n", "is int64; must be a string"),
        ("txt", "title", "--chunk_context title is a column of JSON lines"),
        ("jsonl", "title,title", "must name columns, each once"),
        ("jsonl", "headings,document", "--chunk_context headings conflicts with document"),
    ):
        source = tmp_path / f"in.{suffix}"
        run.refused(source, said, chunk="sentence", chunk_context=context)
