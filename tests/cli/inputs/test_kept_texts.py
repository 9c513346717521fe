"""--keep_text: every output has the texts beside their vectors, whatever the input was."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from bert_embed.pipeline.cli import main
from tests.support.command import data_files, flags_of, rows

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


def test_the_texts_of_every_format_are_kept(run, inputs):
    output = run(inputs, keep_text=True)
    assert pq.read_table(output / "embeddings").column_names[-2:] == ["text_hash", "text"]
    assert rows(output)["text"] == TEXTS


def test_a_window_has_its_own_text(run, inputs):
    flags = {"long_text": "windows", "max_seq_length": 16, "overlap": 2}
    found = rows(run(inputs / "d.txt", keep_text=True, **flags))
    spans = list(zip(found["start"], found["stop"], strict=True))
    assert len(spans) > 4
    source = [LONG] * (len(spans) - 1) + ["seven"]
    assert found["text"] == [text[a:b] for text, (a, b) in zip(source, spans, strict=True)]
    output = run(inputs / "d.txt", "tf", keep_text=True, output_format="tfrecord", **flags)
    data = tf.data.TFRecordDataset([str(path) for path in data_files(output, "windows")])
    feature = {"text": tf.io.FixedLenFeature([], tf.string)}
    texts = [tf.io.parse_single_example(each, feature)["text"].numpy().decode() for each in data]
    assert texts == found["text"]


def test_examples_bring_their_texts_along(tmp_path, run, tiny_bundle, inputs):
    window = {"long_text": "window", "max_seq_length": 16, "max_rejected": "99%"}
    for name, flags in (("with", {"keep_text": True}), ("without", {})):
        words = flags_of(tmp_path / name, tiny_bundle, inputs, **window, **flags)
        assert main(["tokenize", *words]) == 0
    assert rows(run(tmp_path / "with", keep_text=True))["text"] == TEXTS
    message = "tokenize the texts with --keep_text"
    run.refused(tmp_path / "without", message, "none", keep_text=True)
