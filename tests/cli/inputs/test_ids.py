"""Which field holds the ids: all that is looked at decides, and nobody's id becomes a place."""

import re

import pandas as pd
import pytest

import bert_embed
from tests.support.command import record, rejected, rows, write_json

DOCUMENTS = [{"id": f"d{number}", "text": f"the river {number}"} for number in range(150)]
HEADER = {"type": "dump", "version": 2}


@pytest.mark.parametrize("before", [0, 1, 50])
def test_a_record_that_describes_the_others_is_rejected(run, before):
    """Wherever it stands, in the first file or in a later one."""
    later = [HEADER, *DOCUMENTS[before:]]
    output = run({"in/a.jsonl": DOCUMENTS[:before], "in/b.jsonl": later})
    assert rows(output)["id"] == [each["id"] for each in DOCUMENTS]
    assert len(rejected(output)) == 1


def test_documents_without_an_id_among_others_are_rejected(run):
    records = [{"text": "without"}, {"id": None, "text": "null"}, *DOCUMENTS]
    output = run({"in.jsonl": records}, max_rejected=2)
    assert [each["reason"] for each in rejected(output)] == ["missing id"] * 2
    assert rows(output)["id"] == [each["id"] for each in DOCUMENTS]


KINDS = ["csv", "parquet", "jsonl"]


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_file_without_ids_among_others_is_named(tmp_path, run, kind, other, names):
    without, with_id = f"{names[0]}.{kind}", f"{names[1]}.{other}"
    write(tmp_path / "in" / without, [{"text": each["text"]} for each in DOCUMENTS[:2]])
    write(tmp_path / "in" / with_id, DOCUMENTS[:2])
    message = f"{without} has no id, but {tmp_path}/in/{with_id} has one; embed them in two"
    run.refused(tmp_path / "in", message)
    found = rows(run(tmp_path / "in", id_column=""))["id"]
    assert all(str(tmp_path) in place for place in found)


def test_ids_of_a_few_documents_and_of_rows_are_refused_before_work(run):
    records = [DOCUMENTS[0], *({"text": each["text"]} for each in DOCUMENTS)]
    message = "of its first 100 records with a text 1 has an id; name the"
    run.refused({"in.jsonl": records}, message)
    message = "--id_column must be a column: rows of a table have no place"
    run.refused("project:dataset.table", message, id_column="")


def test_ids_that_only_later_records_have_are_told(run):
    texts = [{"text": each["text"], "about": {"id": 1}} for each in DOCUMENTS * 2]
    run({"in.jsonl": texts}, "none")
    late = [*texts, DOCUMENTS[0]]
    run.refused({"in.jsonl": late}, "its first records have no id, but later ones do; name")
    run({"in.jsonl": late}, "places", id_column="")


@pytest.mark.parametrize("limit", ["100%", "1000"])
def test_ids_of_another_form_delete_nothing(run, limit):
    first = run({"a.jsonl": [{"id": n, "text": f"river {n}"} for n in range(20)]}, "out/1")
    second = {"b.jsonl": [{"id": f"doc-{n}", "text": f"river {n}"} for n in range(21)]}
    flags = {"skip_existing": first, "max_deleted": limit}
    output = run(second, "out/2", **flags)
    assert "20 documents not in the input kept, as most ids of the input are new" in run.out
    assert "--max_deleted 20 says so" not in run.out
    assert not (output / "deleted").exists()
    assert record(output)["changes"]["withheld"].startswith("most ids of the input are new")
    assert len(bert_embed.read(output.parent)[0]) == 41
    run(second, "out/2", **flags)
    assert "nothing to do" in run.out


@pytest.mark.parametrize("kind", KINDS)
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
def test_the_plan_names_a_field_that_may_hold_the_ids(tmp_path, run, kind, fields, named):
    write(tmp_path / f"in.{kind}", [{**fields, "text": "the river"}])
    for flags in ({}, {"id_column": ""}, {"id_column": named or next(iter(fields))}):
        run(tmp_path / f"in.{kind}", dry_run=True, **flags)
        found = re.findall(r"no field is named id, .* --id_column '(.*)'", run.out + run.err)
        assert found == ([named] if named and not flags else [])


def write(path, records):
    """A CSV file, a Parquet file or JSON lines."""
    path.parent.mkdir(exist_ok=True)
    table = pd.DataFrame(records)
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        write_json(path, *records)
