"""Flags that contradict each other are named before any work."""

import pytest

from tests.support.command import embed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {"document": "file", "query": "SELECT 1"},
            "--document file is for text files, not for tables",
        ),
        (
            {"chunk": "sentence", "text_b_column": "b"},
            "--chunk is for single texts and conflicts with pairs",
        ),
        (
            {"output_format": "tfrecord", "extra_columns": "n"},
            "--extra_columns are for Parquet and JSON lines, not for TFRecord files",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_named(tmp_path, tiny_bundle, capsys, flags, said):
    (tmp_path / "in.txt").write_text("red river\n")
    inputs = [] if "query" in flags else [tmp_path / "in.txt"]
    assert embed(tmp_path / "out", tiny_bundle, *inputs, **flags) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
