"""Which field holds the ids: all that is looked at decides, and nobody's id becomes a place."""

import re
import shutil

import pytest

import bert_embed
from bert_embed.transforms.listing import folder_above, list_input
from tests.support.command import record, rejected, rows, write_table

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


def test_an_id_in_a_file_that_was_not_looked_at_is_told(run, monkeypatch):
    monkeypatch.setattr("bert_embed.pipeline.run.columns._MOST_LOOKED", 10)
    files = {f"in/{number:02}.jsonl": [{"text": "red"}] for number in range(11)}
    output = run(files | {"in/09.jsonl": [{"text": "blue", "id": "a"}]})
    assert record(output)["unfit"] == {"id": 1}
    assert "warning: 1 document has an id, which the first records lack" in run.out
    assert len(rows(output)["id"]) == 11


KINDS = ["csv", "parquet", "jsonl"]


@pytest.mark.parametrize(("kind", "other"), zip(KINDS, [*KINDS[1:], KINDS[0]], strict=True))
def test_a_file_without_ids_among_others_is_named(tmp_path, run, kind, other):
    for first, second in ("ab", "ba"):
        folder = tmp_path / first
        write_table(folder / f"{first}.{kind}", WITHOUT[:2])
        write_table(folder / f"{second}.{other}", DOCUMENTS[:2])
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


def test_documents_whose_text_is_in_an_object_have_their_ids(run):
    """As Label Studio writes them, with lists of records that are not the documents."""
    notes = {"annotations": [{"id": 1, "result": []}, {"id": 2, "result": []}]}
    records = [{"id": each["id"], "data": {"text": each["text"]}} | notes for each in DOCUMENTS]
    for number in (1, 150):
        output = run({f"{number}.json": records[:number]}, f"{number}", text_column="data.text")
        assert rows(output)["id"] == IDS[:number]


def test_ids_of_another_form_delete_nothing(run):
    first = run({"a.jsonl": [{"id": n, "text": f"river {n}"} for n in range(20)]}, "out/1")
    second = {"b.jsonl": [{"id": f"doc-{n}", "text": f"river {n}"} for n in range(21)]}
    flags = {"skip_existing": first, "max_deleted": "100%"}
    output = run(second, "out/2", **flags)
    assert "20 documents that the input lacks are kept, as most ids of the input are new" in run.out
    assert "--max_deleted 20 says so" not in run.out
    assert not (output / "deleted").exists()
    assert record(output)["changes"]["withheld"].startswith("most ids of the input are new")
    assert len(bert_embed.read(output.parent)[0]) == 41
    run(second, "out/2", **flags)
    assert "nothing to do" in run.out


def test_the_plan_names_a_field_that_may_hold_the_ids(tmp_path, run):
    for kind, fields, named in (
        ("jsonl", {"_id": "d1", "title": "a"}, "_id"),  # BEIR's corpora
        ("csv", {"uuid": "u", "docno": "d1"}, "docno"),
        ("parquet", {"ID": "d1", "user_id": "u"}, "ID"),
        ("jsonl", {"doc-id": "d1"}, "doc-id"),
        ("csv", {"user_id": "u", "width": "1"}, None),
        ("parquet", {"id": "d1", "_id": "u"}, None),
    ):
        write_table(tmp_path / f"in.{kind}", [{**fields, "text": "the river"}])
        for flags in ({}, {"id_column": ""}, {"id_column": named or next(iter(fields))}):
            run(tmp_path / f"in.{kind}", dry_run=True, **flags)
            found = re.findall(r"no field is named id, .* --id_column '(.*)'", run.said)
            assert found == ([named] if named and not flags else [])


PLACES = {"document": ["a.md", "sub/b.txt"], "line": ["a.md:0", "sub/b.txt:0", "sub/b.txt:4"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_a_moved_folder_is_the_same_corpus(run, tmp_path, kind, command):
    flags = {"id_column": "./"} | ({"input_format": "files"} if kind == "document" else {})
    before = run({"notes/a.md": "one two", "notes/sub/b.txt": "red\nbank\n"}, "before", **flags)
    assert bert_embed.read(before)[0] == PLACES[kind]
    shutil.move(tmp_path / "notes", tmp_path / "moved")
    flags["skip_existing"] = str(before)
    after = run(tmp_path / "moved", "after", **flags)
    changes = record(after)["changes"]
    assert (changes["new"], changes["changed"], changes["gone"]) == (0, 0, 0)
    (tmp_path / "moved" / "a.md").write_text("seven stars")
    shutil.move(tmp_path / "moved", tmp_path / "there")
    again = run(tmp_path / "there", "again", **flags)
    assert bert_embed.read(again)[0] == PLACES[kind][:1]
    assert "seven stars" in command("search", again, "stars").out  # read from the folder again


def test_rejected_documents_have_relative_ids_too(run):
    output = run({"notes/a.jsonl": '{"text": "one"}\n{"text": 3}\n'}, id_column="./")
    (rejected,) = (output / "rejected").iterdir()
    assert '"id":"a.jsonl:16"' in rejected.read_text()
    assert f'"source":"{output.parent}/notes/a.jsonl:16"' in rejected.read_text()


@pytest.mark.parametrize(
    ("patterns", "base"),
    [
        (["notes"], "notes/"),
        (["notes/a.md"], "notes/"),
        (["notes/*.md"], "notes/"),
        (["notes", "other/*"], ""),
        (["notes/sub", "notes/a.md"], "notes/"),
    ],
)
def test_the_folder_is_that_of_all_inputs(tmp_path, patterns, base):
    for name in ("notes/a.md", "notes/sub/b.md", "other/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    places = [str(tmp_path / pattern) for pattern in patterns]
    assert folder_above(places, list_input(places).files) == f"{tmp_path}/{base}"
    assert folder_above(["gs://a/b", "gs://a/c/*.txt"], []) == "gs://a/"
    assert folder_above(["gs://a/b", "gs://d/b"], []) == ""
