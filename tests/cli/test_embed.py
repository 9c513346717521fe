"""The whole way: files in, rows out."""

import itertools
import json
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import files, record, rejected, rows, vectors
from tests.support.rounding import assert_near

TEXTS = [
    "The river bank was muddy.",
    "naïve café — 東京 … don't",
    "[SEP] is text here, and so is [CLS].",
    "short",
    "A somewhat longer sentence, so that the batches of this test are padded here and there.",
]


def test_default_model_matches_the_golden_hidden_states(run, minilm):
    """Mean of the last layer, then unit length, is what sentence-transformers gives."""
    folder = "tests/data/minilm_hidden_states"
    with open(folder + ".json", encoding="utf-8") as file:
        examples = json.load(file)["examples"]
    golden = np.load(folder + ".npz")
    singles = [each for each in examples if each["text_b"] is None]
    text = "\n".join(each["text_a"] for each in singles)
    found = vectors(run({"in.txt": text}, model=minilm.path))
    assert len(found) == len(singles) >= 4
    for row, each in zip(found, singles, strict=True):
        expected = golden[f"hidden_states_{each['index']}"][-1].mean(axis=0)
        expected /= np.linalg.norm(expected)
        assert float(row @ expected) >= 0.99999
        assert abs(np.linalg.norm(row) - 1) < 1e-5


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ({"layers": "-1,0", "layer_combine": "stack", "max_seq_length": 5}, (2, 32)),
        ({"pooling": "mean_max", "dim": 40, "normalize": True}, (40,)),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_vector_options_reach_the_files(run, tiny_bundle, flags, shape):
    output = run({"in.txt": "\n".join(TEXTS)}, **flags)
    asked = dict(flags)
    if "layers" in asked:
        asked["layers"] = [int(layer) for layer in asked["layers"].split(",")]
    expected = bert_embed.load(tiny_bundle).encode(TEXTS, **asked)
    ids, found = bert_embed.read(output)
    assert found.shape == (len(TEXTS), *shape)
    assert_near(found.reshape(len(TEXTS), -1), expected.reshape(len(TEXTS), -1))
    assert ids == rows(output)["id"]
    footer = pq.read_metadata(next(output.glob("embeddings/*.parquet"))).metadata
    kept = json.loads(footer[b"bert_embed"])
    assert kept == record(output)["vectors"]
    assert kept["shape"] == list(shape)


def test_neither_blocks_nor_batches_change_ids_and_vectors(run):
    """Nor does another format of the output."""
    texts = {"in.txt": "\n".join(TEXTS * 2)}
    whole = run(texts, "whole")
    for flags in ({"block_bytes": 7}, {"block_bytes": 64}, {"batch_tokens": 8}):
        output = run(texts, "-".join(map(str, *flags.items())), **flags)
        assert rows(output)["id"] == rows(whole)["id"]
        assert_near(vectors(output), vectors(whole))
        assert record(output)["counts"]["embedded"] == len(TEXTS) * 2
    lines = run(texts, "lines", output_format="jsonl")
    assert [path.suffix for path in lines.glob("embeddings/part-*")] == [".jsonl"]
    one, other = bert_embed.read(whole), bert_embed.read(lines)
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])


def test_folders_globs_and_several_inputs_are_read_once_in_order(tmp_path, run, monkeypatch):
    folder = tmp_path / "texts"
    run.written({"texts/b.txt": "bee\n", "texts/a.txt": "ant\n", "texts/.hidden": "no\n"})
    run.written({"texts/deeper/c.jsonl": '{"id": 7, "text": "cow"}\n'})
    monkeypatch.chdir(folder)
    output = run(["*.txt", folder, "a.txt", f"/{folder}/b.txt"])
    assert rows(output)["id"] == [f"{folder}/a.txt:0", f"{folder}/b.txt:0", "7"]


def test_limit_takes_the_first_records(run):
    both = {"a.txt": "one\n\ntwo\nthree\n", "b.txt.gz": "four\nfive\nsix\n"}
    counts = record(run(both, limit=6))["counts"]
    assert (counts["records"], counts["embedded"], counts["blank_lines"]) == (6, 5, 1)
    none = run({"in.txt": ""}, "none")
    assert record(none)["counts"]["records"] == 0
    assert files(none) == {}
    assert bert_embed.read(none)[1].shape == (0, 32)


def test_run_json_tells_what_was_done(run):
    output = run({"in.txt": "\n".join(TEXTS * 20)}, batch_tokens=64)
    numbers = record(output)
    assert numbers["status"] == "done"
    assert numbers["tokens"] == sum(rows(output)["num_tokens"])
    assert numbers["lengths"]["bin_tokens"] == 16
    assert sum(numbers["lengths"]["counts"]) == numbers["counts"]["embedded"] == 100
    assert 0 <= numbers["padding_share"] < 1
    assert numbers["tokens"] > numbers["computed_tokens"] > 0  # equal texts run once
    assert numbers["padded_tokens"] >= numbers["computed_tokens"]
    assert {"read", "tokenize", "infer", "write"} == set(numbers["stage_seconds"])
    assert min(numbers["elapsed_seconds"], numbers["documents_per_second"]) > 0
    assert {"apache-beam", "tensorflow", "python"} <= set(numbers["versions"])
    assert rejected(output) == []


def test_a_clock_that_is_set_back_gives_no_speed(run, monkeypatch):
    straight, calls = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: straight() - 60 * next(calls))
    output = run({"in.txt": "the bank of the river\n"})
    assert "\n0.0 s: the clock was set back meanwhile (" in run.out
    numbers = record(output)
    assert (numbers["elapsed_seconds"], numbers["tokens_per_second"]) == (0, None)
