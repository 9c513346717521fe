"""Which field holds the ids: all that is looked at decides, and nobody's id becomes a place."""

import itertools
import re

import pandas as pd
import pytest

import bert_embed
from tests.support.command import record, rejected, rows, write_json

DOCUMENTS = [{"id": f"d{number}", "text": f"the river {number}"} for number in range(150)]
IDS = [each["id"] for each in DOCUMENTS]
WITHOUT = [{"text": each["text"]} for each in DOCUMENTS]
HEADER = {"type": "dump", "version": 2}


@pytest.mark.parametrize("before", [0, 1, 50])
def test_a_record_that_describes_the_others_is_rejected(run, before):
    """Wherever it stands, in the first file or in a later one."""
    later = [HEADER, *DOCUMENTS[before:]]
    output = run({"in/a.jsonl": DOCUMENTS[:before], "in/b.jsonl": later})
    assert rows(output)["id"] == IDS
    assert len(rejected(output)) == 1


def test_documents_without_an_id_among_others_are_rejected_or_refused(run):
    records = [{"text": "without"}, {"id": None, "text": "null"}, *DOCUMENTS]
    output = run({"in.jsonl": records}, max_rejected=2)
    assert [each["reason"] for each in rejected(output)] == ["missing id"] * 2
    assert rows(output)["id"] == IDS
    message = "of its first 100 records with a text 1 has an id; name the"
    run.refused({"few.jsonl": [DOCUMENTS[0], *WITHOUT]}, message, "few")
    late = [*({"about": {"id": 1}} | each for each in WITHOUT * 2), DOCUMENTS[0]]
    run({"none.jsonl": late[:-1]}, "none")
    message = "its first records have no id, but later ones do; name"
    run.refused({"late.jsonl": late}, message, "late")
    run({"late.jsonl": late}, "places", id_column="")
    message = "--id_column must be a column: rows of a table have no place"
    run.refused("project:dataset.table", message, "table", id_column="")


KINDS = ["csv", "parquet", "jsonl"]


@pytest.mark.parametrize(("kind", "other"), itertools.product(KINDS, KINDS))
def test_a_file_without_ids_among_others_is_named(tmp_path, run, kind, other):
    for first, second in ("ab", "ba"):
        folder = tmp_path / first
        write(folder / f"{first}.{kind}", WITHOUT[:2])
        write(folder / f"{second}.{other}", DOCUMENTS[:2])
        message = f"{first}.{kind} has no id, but {folder}/{second}.{other} has one; embed them in"
        run.refused(folder, message)
    assert all(str(folder) in place for place in rows(run(folder, id_column=""))["id"])


def test_what_records_decide_is_no_flag_that_changed(run):
    run({"in.jsonl": ""})
    message = "holds another run (the input changed since); choose"
    run.refused({"in.jsonl": [{"id": 1, "text": "a river"}]}, message)
    texts = {"b.jsonl": [{"id": 1, "text": "a river"}]}
    run(texts, "two")
    run.refused(texts, "holds another run (--id_column changed since)", "two", id_column="")


@pytest.mark.parametrize("limit", ["100%", "1000"])
def test_ids_of_another_form_delete_nothing(run, limit):
    first = run({"a.jsonl": [{"id": n, "text": f"river {n}"} for n in range(20)]}, "out/1")
    second = {"b.jsonl": [{"id": f"doc-{n}", "text": f"river {n}"} for n in range(21)]}
    flags = {"skip_existing": first, "max_deleted": limit}
    output = run(second, "out/2", **flags)
    assert "20 documents that the input lacks are kept, as most ids of the input are new" in run.out
    assert "--max_deleted 20 says so" not in run.out
    assert not (output / "deleted").exists()
    assert record(output)["changes"]["withheld"].startswith("most ids of the input are new")
    assert len(bert_embed.read(output.parent)[0]) == 41
    run(second, "out/2", **flags)
    assert "nothing to do" in run.out


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_names_a_field_that_may_hold_the_ids(tmp_path, run, kind):
    for fields, named in (
        ({"_id": "d1", "title": "a"}, "_id"),  # BEIR's corpora
        ({"uuid": "u", "docno": "d1"}, "docno"),
        ({"ID": "d1", "user_id": "u"}, "ID"),
        ({"doc-id": "d1"}, "doc-id"),
        ({"user_id": "u", "width": "1"}, None),
        ({"id": "d1", "_id": "u"}, None),
    ):
        write(tmp_path / f"in.{kind}", [{**fields, "text": "the river"}])
        for flags in ({}, {"id_column": ""}, {"id_column": named or next(iter(fields))}):
            run(tmp_path / f"in.{kind}", dry_run=True, **flags)
            found = re.findall(r"no field is named id, .* --id_column '(.*)'", run.said)
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
