"""--keep_text: every output has the texts beside their vectors, whatever the input was."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from bert_embed.pipeline.cli import main
from tests.support.command import data_files, embed, flags_of, rows

pytestmark = pytest.mark.slow

LONG = "the river bank " * 20


@pytest.fixture
def inputs(tmp_path):
    """A file of each format; in the order of their names."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text('text,n\n"the ""bank""\nof a river",1\n')
    words = {"text": ["river", "bank"], "n": "2"}
    (folder / "b.jsonl").write_text(json.dumps(words) + "\n" + json.dumps({"text": "ümläut"}))
    pq.write_table(pa.table({"text": ["money", ""], "n": ["3", "4"]}), folder / "c.parquet")
    (folder / "d.txt").write_text(f"{LONG}\n\nseven\r\n", encoding="utf-8")
    return folder


TEXTS = ['the "bank"\nof a river', "river bank", "ümläut", "money", LONG, "seven"]


def test_the_texts_of_every_format_are_kept(tmp_path, tiny_bundle, inputs):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, inputs, keep_text=True) == 0
    table = pq.read_table(output / "embeddings")
    assert table.column_names[-2:] == ["text_hash", "text"]
    assert rows(output)["text"] == TEXTS


def test_the_texts_stand_before_the_extra_columns(tmp_path, tiny_bundle, inputs, capsys):
    output, flags = tmp_path / "out", {"keep_text": True, "granularity": "sentence,token"}
    source = inputs / "b.jsonl"
    flags |= {"output_format": "jsonl", "extra_columns": "n"}
    assert embed(output, tiny_bundle, source, **flags) == 0
    for kind in ("embeddings", "tokens"):
        (path,) = data_files(output, kind)
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert [list(line)[-2:] for line in lines] == [["text", "n"]] * 2
        assert [line["text"] for line in lines] == ["river bank", "ümläut"]
    clash = {"keep_text": True, "extra_columns": "Text"}
    assert embed(tmp_path / "other", tiny_bundle, source, **clash) == 2
    assert (
        "--extra_columns Text clashes with the output's own column Text" in capsys.readouterr().err
    )


def test_a_window_has_its_own_text(tmp_path, tiny_bundle, inputs):
    flags = {"long_text": "windows", "max_seq_length": 16, "overlap": 2}
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, inputs / "d.txt", keep_text=True, **flags) == 0
    found = rows(output)
    spans = list(zip(found["start"], found["stop"], strict=True))
    assert len(spans) > 4
    source = [LONG] * (len(spans) - 1) + ["seven"]
    assert found["text"] == [text[a:b] for text, (a, b) in zip(source, spans, strict=True)]
    tfrecord = tmp_path / "tfrecord"
    flags |= {"output_format": "tfrecord", "keep_text": True}
    assert embed(tfrecord, tiny_bundle, inputs / "d.txt", **flags) == 0
    data = tf.data.TFRecordDataset([str(path) for path in data_files(tfrecord, "windows")])
    feature = {"text": tf.io.FixedLenFeature([], tf.string)}
    texts = [tf.io.parse_single_example(each, feature)["text"].numpy().decode() for each in data]
    assert texts == found["text"]


def test_examples_bring_their_texts_along(tmp_path, tiny_bundle, inputs, capsys):
    window = {"long_text": "window", "max_seq_length": 16, "max_rejected": "99%"}
    without = tmp_path / "without"
    for folder, flags in ((tmp_path / "with", {"keep_text": True}), (without, {})):
        assert main(["tokenize", *flags_of(folder, tiny_bundle, inputs, **window, **flags)]) == 0
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, tmp_path / "with", keep_text=True) == 0
    assert rows(output)["text"] == TEXTS
    assert embed(tmp_path / "none", tiny_bundle, without, keep_text=True) == 2
    assert "tokenize the texts with --keep_text" in capsys.readouterr().err
