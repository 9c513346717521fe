"""A feed of five days in an index of faiss and of Vertex AI is what an export of the last day is.

Run by `make test-export`.
"""

import json

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.command import Hold, embed
from tests.support.outputs import contents, export
from tests.support.power import restore, states, traced

pytestmark = pytest.mark.slow


def applied(folders):
    """The ids that an index has after the files of these exports."""
    held = set()
    for folder in folders:
        texts = [path.read_text() for path in sorted((folder / "delete").glob("*.txt"))]
        held -= {line for text in texts for line in text.splitlines()}
        for path in sorted(folder.glob("vectors_*.json")):
            held |= {json.loads(line)["id"] for line in path.read_text().splitlines()}
    return held


@pytest.mark.parametrize("parts", [["1", "2", "3", "4", "5"], ["1", "[2-5]"]])
def test_files_name_what_is_deleted(days, tmp_path, parts):
    folders = [tmp_path / str(number) for number, _ in enumerate(parts)]
    for folder, part in zip(folders, parts, strict=True):  # a day without news has no columns
        assert export(f"{days}/days/{part}", folder, "vertex", restricts="text") == 0
        before = contents(folder)
        assert export(f"{days}/days/{part}", folder, "vertex", restricts="text") == 0
        assert contents(folder) == before
    assert export(days / "fresh", tmp_path / "fresh", "vertex") == 0
    assert applied(folders) == applied([tmp_path / "fresh"])


@pytest.mark.parametrize("columns", ["", "a:float64", "a:int64,b"])
def test_an_increment_with_other_columns_is_refused(tmp_path, tiny_bundle, columns, capsys):
    for day, extra, code in ((1, "a:int64", 0), (2, columns, 2)):
        record = {"id": "d", "text": f"river {day}", "a": day, "b": "x"}
        (tmp_path / "in.jsonl").write_text(json.dumps(record))
        more = {"extra_columns": extra} if extra else {}
        more |= {"skip_existing": tmp_path / "1"} if day == 2 else {}
        assert embed(tmp_path / str(day), tiny_bundle, tmp_path / "in.jsonl", **more) == 0
        assert export(tmp_path / str(day), tmp_path / "dest", "faiss") == code
    assert "has the columns id" in capsys.readouterr().err


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, (text, vector) in wanted.items():
        assert found[name][0] == text
        np.testing.assert_allclose(found[name][1], vector, atol=1e-4)


def index_rows(folder):
    """The rows of a faiss index: text and vector."""
    index = faiss.read_index(str(folder / "knn.index"))
    rows = pq.read_table(folder / "ids.parquet").to_pylist()
    vectors = index.reconstruct_n(0, index.ntotal)
    names = [(row["id"], row.get("chunk")) for row in rows]
    assert len(set(names)) == len(names) == index.ntotal
    return {
        name: (row["text"], vector) for name, row, vector in zip(names, rows, vectors, strict=True)
    }


@pytest.mark.parametrize("index", ["flat", "ivf"])
def test_an_index_follows_the_feed(days, tmp_path, capsys, index):
    for part in ("1", "2", "[1-4]", "5"):
        assert export(f"{days}/days/{part}", tmp_path / "dest", "faiss", index=index) == 0
        before = contents(tmp_path / "dest")
        capsys.readouterr()
        assert export(f"{days}/days/{part}", tmp_path / "dest", "faiss", index=index) == 0
        assert "nothing to do" in capsys.readouterr().out
        assert contents(tmp_path / "dest") == before
    assert export(days / "fresh", tmp_path / "fresh", "faiss", index="flat") == 0
    assert_same(index_rows(tmp_path / "dest"), index_rows(tmp_path / "fresh"))


def test_an_index_does_not_begin_with_a_day_without_documents(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.jsonl").write_text('{"id": "d", "text": "river"}')
    assert embed(tmp_path / "1", tiny_bundle, tmp_path / "in.jsonl") == 0
    earlier = {"skip_existing": tmp_path / "1"}
    assert embed(tmp_path / "2", tiny_bundle, tmp_path / "in.jsonl", **earlier) == 0
    assert export(tmp_path / "2", tmp_path / "dest", "faiss") == 2
    assert "export it with the outputs that it continues" in capsys.readouterr().err
    assert export(f"{tmp_path}/[12]", tmp_path / "dest", "faiss") == 0
    assert faiss.read_index(str(tmp_path / "dest" / "knn.index")).ntotal == 1


def test_what_comes_too_late_for_an_index_is_refused_with_a_way_out(days, tmp_path, capsys):
    assert export(days / "days" / "2", tmp_path / "dest", "faiss") == 0
    assert export(days / "days" / "3", tmp_path / "dest", "faiss") == 2
    said = capsys.readouterr().err
    assert "days/1, which" in said
    assert "continues: export it and all that continues it into another DEST" in said
    assert export(f"{days}/days/[1-3]", tmp_path / "other", "faiss") == 0


# A file of the two has its name; the journal names the day, and none or one file its place.
@pytest.mark.parametrize(
    ("renamed", "then"), [(1, "1"), (3, "1"), (4, "1"), (3, "4"), (4, "[1-3]")]
)
def test_a_killed_increment_of_an_index_is_there_whole_or_not_at_all(
    days, tmp_path, capsys, renamed, then
):
    def export_day(day, dest="dest"):
        return export(days / "days" / day, tmp_path / dest, "faiss")

    assert [export_day(day, dest) for day in "12" for dest in ("dest", "other")] == [0] * 4
    if renamed > 1:
        assert export_day("3", "other") == 0
    hold = Hold(tmp_path / "hold", renamed, "os||replace")
    words = ["export", str(days / "days" / "3"), str(tmp_path / "dest"), "--to", "faiss"]
    killed = hold.start(*words)
    assert export_day("3") == 1
    assert "another export writes to" in capsys.readouterr().err
    killed.kill()
    killed.communicate()
    (tmp_path / "dest" / ".next-of-another-day-knn.index").touch()  # which was killed, too
    assert [export_day(then, dest) for dest in ("dest", "other")] == [0, 0]
    assert contents(tmp_path / "dest").items() >= contents(tmp_path / "other").items()
    assert [export_day(day) for day in "345"] == [0, 0, 0]
    assert export(days / "fresh", tmp_path / "fresh", "faiss") == 0
    assert_same(index_rows(tmp_path / "dest"), index_rows(tmp_path / "fresh"))
    assert not list((tmp_path / "dest").glob(".next-*"))


def test_a_power_cut_takes_no_day_from_an_index(days, tmp_path):
    def exported(dest):
        return [export(days / "days" / day, dest, "faiss") for day in "12"]

    with traced(tmp_path / "dest") as moments:
        assert exported(tmp_path / "dest") == [0, 0]
    wanted = index_rows(tmp_path / "dest")
    for what, tree in moments[-1].cuts():
        assert_same(index_rows(restore(tree, tmp_path / what)), wanted)
    for number, (what, tree) in enumerate(states(moments, every=3)):
        dest = restore(tree, tmp_path / str(number))
        assert exported(dest) == [0, 0], what
        assert_same(index_rows(dest), wanted)
