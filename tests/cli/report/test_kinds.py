"""Every kind of output gives a page that says what is there, and what is not."""

import numpy as np
import pytest

import bert_embed
from tests.support.command import write_json
from tests.support.loads import load
from tests.support.outputs import content, write_output

TEXTS = [f"the bank of the red river and {n % 7} seven stars of money" for n in range(30)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "in.jsonl"
    return write_json(path, *({"id": f"d{n}", "text": t} for n, t in enumerate(TEXTS)))


STORED = {
    "jsonl of bits": {"output_dtype": "ubinary", "output_format": "jsonl"},
    "int8": {"output_dtype": "int8"},
    "tfrecord": {"output_format": "tfrecord", "output_dtype": "bfloat16", "keep_text": True},
    "a stack": {"layers": "-1,-2", "layer_combine": "stack"},
    "one number": {"dim": 1, "keep_text": True},
    "windows": {"max_seq_length": 8, "long_text": "windows"},
    "chunks": {"chunk": "tokens:6", "keep_text": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", STORED.values(), ids=STORED)
def test_vectors_are_read_as_they_are_stored(flags, corpus, run):
    output = run(corpus, **flags)
    page, (ids, vectors) = content(output), bert_embed.read(output)
    assert page["documents"]["ids"] == ids
    flat = vectors.reshape(len(ids), -1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    row, near = page["neighbours"][0]["row"], page["neighbours"][0]["near"]
    for other, score in near:
        assert score == pytest.approx(unit[row] @ unit[other], abs=1e-3)
        assert ids[other] != ids[row]
    places, texts = page["documents"]["places"], page["documents"]["texts"]
    assert (places is not None) == ("embeddings" not in page["written"])
    if places is None:
        assert texts == TEXTS  # those that the output does not hold come from the input
    else:
        start, stop = map(int, places[1].split(":"))
        whole = TEXTS[int(ids[1][1:])]
        assert texts[1] == " ".join(whole[start:stop].split())


def test_a_run_into_a_table_has_its_page(bigquery, corpus, tiny_bundle, tmp_path):
    bigquery.client.create_dataset("test-project.reports")
    table, output = "test-project:reports.v", tmp_path / "out"
    assert load(output, tiny_bundle, corpus, table, keep_text=True) == 0
    page = content(output)
    assert page["run"]["tables"] == ["test-project.reports.v"]
    assert page["documents"]["ids"] == [f"d{n}" for n in range(len(TEXTS))]
    assert page["documents"]["texts"] == TEXTS


def test_vectors_of_tokens_and_words_alone_give_a_page_without_a_map(corpus, run, command):
    output = run(corpus, granularity="token,word")
    page = content(output)
    assert (page["vectors"], page["documents"]) == (None, None)
    assert page["counts"]["embedded"] == page["written"]["words"]["rows"] == len(TEXTS)
    assert page["lengths"]["counts"] != []
    said = command("search", output, "stars", code=2).err
    assert "holds vectors of token and word, none of sentence" in said


def test_an_empty_input_and_one_that_is_rejected_give_a_page(tmp_path, run):
    page = content(run({"empty.txt": ""}, "empty"))
    assert page["counts"]["records"] == 0
    assert (page["rejected"], page["documents"]) == ([], None)
    lines = {"bad.jsonl": '{"id": "a", "text": ""}\n' * 9}
    page = content(run(lines, "bad", max_rejected="100%"))
    ((count, places),) = [(each["count"], each["places"]) for each in page["rejected"]]
    starts = [f"{tmp_path}/bad.jsonl, line {line}" for line in range(1, 6)]
    assert (count, [place["source"] for place in places]) == (9, starts)


def found_bad(page):
    return {each["name"] for each in page["vectors"]["findings"] if not each["healthy"]}


def test_vectors_that_are_not_healthy_are_reported(run):
    texts = {"in.txt": "".join(f"the same text of the river {n}\n" for n in range(25))}
    page = content(run(texts, max_seq_length=5))
    assert {"Equal vectors", "Cosine of random pairs"} <= found_bad(page)
    assert page["full_lengths"]["longest"] > 5
    copies = content(run({"same.txt": "the same text\n" * 25}, "copies"))
    assert copies["vectors"]["equal"] == 24
    assert "Equal vectors" not in found_bad(copies)
    assert "map" not in copies


def test_vectors_of_zeros_alone_give_a_page_that_says_so(tmp_path, command):
    output = write_output(tmp_path / "zeros", np.zeros((3, 8), np.float32))
    command("report", output)
    page = content(output)
    assert found_bad(page) == {"NaN and zero vectors"}
    assert (page["vectors"]["zero"], page["documents"]["ids"], page["neighbours"]) == (3, [], [])


def test_examples_have_a_page_on_request(corpus, tiny_bundle, tmp_path, command):
    output = tmp_path / "out"
    command("tokenize", input=corpus, output=output, model=tiny_bundle)
    assert not (output / "report.html").exists()
    command("report", output)
    page = content(output)
    assert (page["run"]["kind"], page["counts"]["embedded"]) == ("examples", len(TEXTS))
