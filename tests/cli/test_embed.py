"""The whole way: files in, rows out."""

import bz2
import gzip
import itertools
import json
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard

import bert_embed
from tests.support.command import embed, files, record, rejected, rows, vectors
from tests.support.rounding import assert_near

TEXTS = [
    "The river bank was muddy.",
    "naïve café — 東京 … don't",
    "[SEP] is text here, and so is [CLS].",
    "short",
    "A somewhat longer sentence, so that the batches of this test are padded here and there.",
]


def test_text_gives_one_row_a_line_in_order(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_bytes("one\ntwo three\r\nvier fünf\nlast".encode())
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    path = f"{tmp_path}/in.txt"
    assert rows(tmp_path / "out")["id"] == [f"{path}:{at}" for at in (0, 4, 15, 26)]
    expected = bert_embed.load(tiny_bundle).encode(["one", "two three", "vier fünf", "last"])
    assert_near(vectors(tmp_path / "out"), expected)


def test_default_model_matches_the_golden_hidden_states(tmp_path, minilm):
    """Mean of the last layer, then unit length, is what sentence-transformers gives."""
    folder = "tests/data/minilm_hidden_states"
    with open(folder + ".json", encoding="utf-8") as file:
        examples = json.load(file)["examples"]
    golden = np.load(folder + ".npz")
    singles = [each for each in examples if each["text_b"] is None]
    lines = "\n".join(each["text_a"] for each in singles)
    (tmp_path / "in.txt").write_text(lines, encoding="utf-8")
    assert embed(tmp_path / "out", minilm.path, tmp_path / "in.txt") == 0
    found = vectors(tmp_path / "out")
    assert len(found) == len(singles) >= 4
    for row, each in zip(found, singles, strict=True):
        states = golden[f"hidden_states_{each['index']}"]
        expected = states[-1].mean(axis=0)
        expected /= np.linalg.norm(expected)
        assert float(row @ expected) >= 0.99999
        assert abs(np.linalg.norm(row) - 1) < 1e-5


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ({}, (32,)),
        ({"layers": "-1,-2", "layer_combine": "sum"}, (32,)),
        ({"layers": "0,1,2", "layer_combine": "concat"}, (96,)),
        ({"layers": "-1,0", "layer_combine": "stack"}, (2, 32)),
        ({"pooling": "mean_max", "dim": 40, "normalize": True}, (40,)),
        ({"pooling": "pooler"}, (32,)),
        ({"pooling": "max"}, (32,)),
        ({"pooling": "cls", "max_seq_length": 5}, (32,)),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_vector_options_reach_the_files(tmp_path, tiny_bundle, flags, shape):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    asked = {name: value for name, value in flags.items() if name != "max_seq_length"}
    if "layers" in asked:
        asked["layers"] = [int(layer) for layer in asked["layers"].split(",")]
    expected = bert_embed.load(tiny_bundle).encode(
        TEXTS, **asked, max_seq_length=flags.get("max_seq_length")
    )
    ids, found = bert_embed.read(tmp_path / "out")
    assert found.shape == (len(TEXTS), *shape)
    assert_near(found.reshape(len(TEXTS), -1), expected.reshape(len(TEXTS), -1))
    assert ids == rows(tmp_path / "out")["id"]
    footer = pq.read_metadata(next(tmp_path.glob("out/embeddings/*.parquet"))).metadata
    kept = json.loads(footer[b"bert_embed"])
    assert kept == record(tmp_path / "out")["vectors"]
    assert kept["shape"] == list(shape)


def test_jsonl_output_reads_back_as_the_same_vectors(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    assert embed(tmp_path / "a", tiny_bundle, tmp_path / "in.txt") == 0
    assert embed(tmp_path / "b", tiny_bundle, tmp_path / "in.txt", output_format="jsonl") == 0
    assert [path.suffix for path in tmp_path.glob("b/embeddings/part-*")] == [".jsonl"]
    one, other = bert_embed.read(tmp_path / "a"), bert_embed.read(tmp_path / "b")
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])


def test_truncation_is_counted_and_marked(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("one two three four five\none two\n", encoding="utf-8")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", max_seq_length=5) == 0
    table = rows(tmp_path / "out")
    assert table["truncated"] == [True, False]
    assert table["num_tokens"][0] == 5
    assert record(tmp_path / "out")["counts"]["truncated"] == 1


def test_blocks_change_neither_ids_nor_vectors(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS * 7), encoding="utf-8")
    assert embed(tmp_path / "whole", tiny_bundle, tmp_path / "in.txt") == 0
    for size in (7, 64, 1000):
        cut = tmp_path / str(size)
        assert embed(cut, tiny_bundle, tmp_path / "in.txt", block_bytes=size) == 0
        assert rows(cut)["id"] == rows(tmp_path / "whole")["id"]
        assert_near(vectors(tmp_path / "whole"), vectors(cut))
        assert record(cut)["counts"]["embedded"] == len(TEXTS) * 7


@pytest.mark.parametrize("batch_tokens", [8, 100, 5000])
def test_a_vector_does_not_depend_on_its_batch(tmp_path, tiny_bundle, batch_tokens):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    assert embed(tmp_path / "a", tiny_bundle, tmp_path / "in.txt") == 0
    assert embed(tmp_path / "b", tiny_bundle, tmp_path / "in.txt", batch_tokens=batch_tokens) == 0
    assert_near(vectors(tmp_path / "a"), vectors(tmp_path / "b"))


@pytest.mark.slow
def test_compression_goes_by_suffix(tmp_path, tiny_bundle):
    data = ("\n".join(TEXTS) + "\n").encode() * 8
    (tmp_path / "plain.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data[:900]) + gzip.compress(data[900:]))
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(data))
    frames = [zstandard.compress(piece) for piece in (data[:500], data[500:])]
    (tmp_path / "c.txt.zst").write_bytes(b"".join(frames))
    assert embed(tmp_path / "plain", tiny_bundle, tmp_path / "plain.txt") == 0
    expected = rows(tmp_path / "plain")
    for name in ("a.txt.gz", "b.txt.bz2", "c.txt.zst"):
        output = tmp_path / f"out-{name}"
        assert embed(output, tiny_bundle, tmp_path / name, block_bytes=60, part_docs=7) == 0
        found = rows(output)
        assert found["text_hash"] == expected["text_hash"]
        offsets = [each.rsplit(":", 1)[1] for each in found["id"]]
        assert offsets == [each.rsplit(":", 1)[1] for each in expected["id"]]
        assert record(output)["counts"]["records"] == len(TEXTS) * 8


def test_folders_globs_and_several_inputs_are_read_once_in_order(
    tmp_path, tiny_bundle, monkeypatch
):
    folder = tmp_path / "texts"
    (folder / "deeper").mkdir(parents=True)
    (folder / "b.txt").write_text("bee\n")
    (folder / "a.txt").write_text("ant\n")
    (folder / "deeper" / "c.jsonl").write_text('{"id": 7, "text": "cow"}\n')
    (folder / ".hidden").write_text("no\n")
    monkeypatch.chdir(folder)
    assert embed(tmp_path / "out", tiny_bundle, "*.txt", folder, "a.txt", f"/{folder}/b.txt") == 0
    assert rows(tmp_path / "out")["id"] == [f"{folder}/a.txt:0", f"{folder}/b.txt:0", "7"]


def test_an_output_below_its_input_does_not_read_itself(tmp_path, tiny_bundle, capsys):
    (tmp_path / "a.txt").write_text("ant\n")
    (tmp_path / "b.jsonl").write_text('{"id": 7, "text": "cow"}\n{"id": 8}\n')
    for said in ("2 embedded", "nothing to do"):
        assert embed(tmp_path / "out", tiny_bundle, f"/{tmp_path}", f"{tmp_path}/**/*.jsonl") == 0
        assert said in capsys.readouterr().out
    assert rows(tmp_path / "out")["id"] == [f"{tmp_path}/a.txt:0", "7"]


def test_limit_takes_the_first_records(tmp_path, tiny_bundle):
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"four\nfive\nsix\n"))
    both = (tmp_path / "a.txt", tmp_path / "b.txt.gz")
    assert embed(tmp_path / "few", tiny_bundle, *both, limit=3) == 0
    assert [each.rsplit(":", 1)[1] for each in rows(tmp_path / "few")["id"]] == ["0", "5"]
    assert embed(tmp_path / "more", tiny_bundle, *both, limit=6) == 0
    counts = record(tmp_path / "more")["counts"]
    assert (counts["records"], counts["embedded"], counts["blank_lines"]) == (6, 5, 1)


def test_equal_texts_run_once_and_have_a_row_each(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("same\nother\nsame\nSAME\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    found = vectors(tmp_path / "out")
    assert len(found) == 4
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0], found[3])
    numbers = record(tmp_path / "out")
    assert numbers["computed_tokens"] < numbers["tokens"]


def test_an_input_without_a_record_is_done(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_bytes(b"")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    assert record(tmp_path / "out")["counts"]["records"] == 0
    assert files(tmp_path / "out") == {}
    assert bert_embed.read(tmp_path / "out")[1].shape == (0, 32)


def test_settings_come_from_a_file_and_the_command_line_wins(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    (tmp_path / "run.yaml").write_text(
        f"input: [{tmp_path}/in.txt]\nmodel: {tiny_bundle}\nlayers: [-2]\ndim: 8\n"
        "normalize: true\nlimit: null\noverwrite: false\ndry_run: false\n"
    )
    assert embed(tmp_path / "out", tiny_bundle, config=tmp_path / "run.yaml", dim=4) == 0
    kept = record(tmp_path / "out")["vectors"]
    assert (kept["layers"], kept["dim"], kept["normalize"]) == ([-2], 4, True)


def test_run_json_tells_what_was_done(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", batch_tokens=64) == 0
    numbers = record(tmp_path / "out")
    assert numbers["status"] == "done"
    assert numbers["tokens"] == sum(rows(tmp_path / "out")["num_tokens"])
    assert numbers["lengths"]["bin_tokens"] == 16
    assert sum(numbers["lengths"]["counts"]) == numbers["counts"]["embedded"] == 100
    assert 0 <= numbers["padding_share"] < 1
    assert numbers["padded_tokens"] >= numbers["computed_tokens"] > 0
    assert {"read", "tokenize", "infer", "write"} == set(numbers["stage_seconds"])
    assert numbers["elapsed_seconds"] > 0
    assert numbers["documents_per_second"] > 0
    assert {"apache-beam", "tensorflow", "python"} <= set(numbers["versions"])
    assert rejected(tmp_path / "out") == []


def test_a_clock_that_is_set_back_gives_no_speed(tmp_path, tiny_bundle, capsys, monkeypatch):
    (tmp_path / "in.txt").write_text("the bank of the river\n")
    straight, calls = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: straight() - 60 * next(calls))
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    assert "\n0.0 s: the clock was set back meanwhile (" in capsys.readouterr().out
    numbers = record(tmp_path / "out")
    assert (numbers["elapsed_seconds"], numbers["tokens_per_second"]) == (0, None)
