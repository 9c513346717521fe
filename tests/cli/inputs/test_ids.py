"""Which field holds the ids: all that is looked at decides, and nobody's id becomes a place."""

import json
import re

import pandas as pd
import pytest

import bert_embed
from tests.support.command import embed, record, rejected, rows, write_json

DOCUMENTS = [{"id": f"d{number}", "text": f"the river {number}"} for number in range(150)]
HEADER = {"type": "dump", "version": 2}


def lines(path, records):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records))


@pytest.mark.parametrize("before", [0, 1, 50])
def test_a_record_that_describes_the_others_is_rejected(tmp_path, tiny_bundle, before):
    """Wherever it stands, in the first file or in a later one."""
    lines(tmp_path / "in" / "a.jsonl", DOCUMENTS[:before])
    lines(tmp_path / "in" / "b.jsonl", [HEADER, *DOCUMENTS[before:]])
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 0
    assert rows(tmp_path / "out")["id"] == [each["id"] for each in DOCUMENTS]
    assert len(rejected(tmp_path / "out")) == 1


def test_documents_without_an_id_among_others_are_rejected(tmp_path, tiny_bundle):
    records = [{"text": "without"}, {"id": None, "text": "null"}, *DOCUMENTS]
    lines(tmp_path / "in.jsonl", records)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", max_rejected=2) == 0
    assert [each["reason"] for each in rejected(tmp_path / "out")] == ["missing id"] * 2
    assert rows(tmp_path / "out")["id"] == [each["id"] for each in DOCUMENTS]


def write_csv(path, with_id):
    pd.DataFrame(DOCUMENTS[:2])[["id", "text"] if with_id else ["text"]].to_csv(path, index=False)


def write_parquet(path, with_id):
    pd.DataFrame(DOCUMENTS[:2])[["id", "text"] if with_id else ["text"]].to_parquet(path)


def write_lines(path, with_id):
    lines(path, DOCUMENTS[:2] if with_id else [{"text": each["text"]} for each in DOCUMENTS[:2]])


WRITERS = {"csv": write_csv, "parquet": write_parquet, "jsonl": write_lines}


@pytest.mark.parametrize("other", WRITERS)
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_file_without_ids_among_others_is_named(
    tmp_path, tiny_bundle, kind, other, names, capsys
):
    without, with_id = f"{names[0]}.{kind}", f"{names[1]}.{other}"
    (tmp_path / "in").mkdir()
    WRITERS[kind](tmp_path / "in" / without, False)
    WRITERS[other](tmp_path / "in" / with_id, True)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 2
    message = capsys.readouterr().err
    assert f"{without} has no id, but {tmp_path}/in/{with_id} has one; embed them in two" in message
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in", id_column="") == 0
    assert all(str(tmp_path) in place for place in rows(tmp_path / "out")["id"])


def test_ids_of_a_few_documents_are_refused_before_work(tmp_path, tiny_bundle, capsys):
    lines(tmp_path / "in.jsonl", [DOCUMENTS[0], *({"text": each["text"]} for each in DOCUMENTS)])
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 2
    assert "of its first 100 records with a text 1 has an id; name the" in capsys.readouterr().err


def test_rows_of_a_table_have_no_place(tiny_bundle, tmp_path, capsys):
    table = "project:dataset.table"
    assert embed(tmp_path / "out", tiny_bundle, table, id_column="") == 2
    assert "--id_column must be a column: rows of a table have no place" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["100%", "1000"])
def test_ids_of_another_form_delete_nothing(tmp_path, tiny_bundle, capsys, limit):
    first, second, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out"
    write_json(first, [{"id": number, "text": f"river {number}"} for number in range(20)])
    write_json(second, [{"id": f"doc-{number}", "text": f"river {number}"} for number in range(21)])
    assert embed(out / "1", tiny_bundle, first) == 0
    flags = {"skip_existing": out / "1", "max_deleted": limit}
    assert embed(out / "2", tiny_bundle, second, **flags) == 0
    printed = capsys.readouterr().out
    assert "20 documents not in the input kept, as most ids of the input are new" in printed
    assert "--max_deleted 20 says so" not in printed
    assert not (out / "2" / "deleted").exists()
    assert record(out / "2")["changes"]["withheld"].startswith("most ids of the input are new")
    assert len(bert_embed.read(out)[0]) == 41
    assert embed(out / "2", tiny_bundle, second, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out


def write_table(path, record):
    table = pd.DataFrame([record])
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"_id": "d1", "title": "a"}, "_id"),  # BEIR's corpora
        ({"uuid": "u", "docno": "d1"}, "docno"),
        ({"ID": "d1", "user_id": "u"}, "ID"),
        ({"doc-id": "d1"}, "doc-id"),
        ({"user_id": "u", "width": "1"}, None),
        ({"id": "d1", "_id": "u"}, None),
    ],
)
def test_the_plan_names_a_field_that_may_hold_the_ids(
    tmp_path, tiny_bundle, kind, fields, named, capsys
):
    source, record = tmp_path / f"in.{kind}", {**fields, "text": "the river"}
    write_json(source, record) if kind == "jsonl" else write_table(source, record)
    places, theirs = {"id_column": ""}, {"id_column": named or next(iter(fields))}
    for flags in ({}, places, theirs):
        assert embed(tmp_path / "out", tiny_bundle, source, dry_run=True, **flags) == 0
        said = capsys.readouterr()
        found = re.findall(r"no field is named id, .* --id_column '(.*)'", said.out + said.err)
        assert found == ([named] if named and not flags else [])
