"""What the plan makes of CSV: flags, names of columns, and what a file lacks."""

import pandas as pd
import pytest
import yaml

from bert_embed.pipeline.cli import main
from tests.support.command import record, rows


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"csv_quoting": "all"}, "--csv_quoting must be one of minimal, none, escaped, dump, got"),
        ({"csv_escape": "x"}, "unknown flag --csv_escape; did you mean --csv_"),
        ({"csv_quoting": "none"}, "--csv_quoting is for CSV, and --input names none"),
        ({"csv_header": "a,b"}, "--csv_header is for CSV, and --input names none"),
        ({"csv_separator": "::"}, "--csv_separator must be one character, or tab or ^A"),
    ],
)
def test_other_quoting_is_refused(run, flags, message):
    run.refused({"in.txt": "one\n"}, message, **flags)


def test_dialects_are_flags(run):
    flags = {"csv_quoting": "none", "csv_separator": "^A", "csv_header": "id,text"}
    output = run({"in.csv": 'a\x01"one\nb\x01two\n'}, keep_text=True, **flags)
    assert (rows(output)["id"], rows(output)["text"]) == (["a", "b"], ['"one', "two"])
    assert record(output)["options"]["csv_quoting"] == "none"


@pytest.mark.slow
def test_names_with_commas_and_colons_are_found_whole(tmp_path, run, tiny_bundle):
    named = {"id": 1, "Title, full": "one", "Body\nlong": "two", "a, b:c": "x", "dc:year": 2015}
    pd.DataFrame([named]).to_csv(tmp_path / "in.csv", index=False)
    pd.DataFrame([named]).to_parquet(tmp_path / "in.parquet")
    run.written({"in.jsonl": [named]})
    typed = "a, b:c,dc:year"
    for number, (name, text, extra) in enumerate(
        [
            ("in.csv", "Title, full,Body\nlong", typed),
            ("in.jsonl", "Title, full", f"{typed}:int64"),
            ("in.parquet", '"Title, full"', typed),
        ]
    ):
        flags = {"text_column": text, "extra_columns": extra, "keep_text": True}
        found = rows(run(tmp_path / name, str(number), **flags))
        assert found["text"] == ["one two" if "Body" in text else "one"]
        assert (found["a, b:c"], list(map(int, found["dc:year"]))) == (["x"], [2015])
    config = {"text_column": ["Title, full", "Body\nlong"], "keep_text": True}
    config |= {"extra_columns": ["a, b:c", "dc:year:int64"], "model": tiny_bundle}
    config |= {"input": str(tmp_path / "in.csv"), "output": str(tmp_path / "yaml")}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert main(["embed", "--config", str(tmp_path / "c.yaml")]) == 0
    found = rows(tmp_path / "yaml")
    assert (found["text"], found["dc:year"]) == (["one two"], [2015])


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("a,one\nb,two\n", "--csv_header names the"),
        ("id~text\n1~a\n", "--csv_separator says"),
        ("# of today\nid,text\na,one\n", "grep -v '^#' FILE"),
        ("# of, today\nid,text\na,one\n", "grep -v '^#' FILE"),
        ("id,text\na,'one, two'\nb,two\nc,three\nd,four\n", "single quotes around fields"),
        ("id;text\na;'it''s; one'\n", "single quotes around fields"),
        ("'id','text'\n'a','one'\n", "single quotes around fields"),
        ("id\ttext\na\t'one two'\nb\ttwo\n", "single quotes around fields"),
    ],
)
def test_what_a_csv_lacks_is_said(run, text, cure):
    run.refused({"in.csv": text}, cure)
