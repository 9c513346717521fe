"""A feed of five days: what Vertex AI has of it is what an export of the last day is.

Run by `make test-export`.
"""

import json

import faiss
import pytest

from tests.support.command import embed
from tests.support.outputs import contents, export

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


def test_an_index_has_all_days_at_once(tmp_path, tiny_bundle, capsys):
    """A day without documents has none, and a DEST that holds another one is refused."""
    (tmp_path / "in.jsonl").write_text('{"id": "d", "text": "river"}')
    assert embed(tmp_path / "1", tiny_bundle, tmp_path / "in.jsonl") == 0
    earlier = {"skip_existing": tmp_path / "1"}
    assert embed(tmp_path / "2", tiny_bundle, tmp_path / "in.jsonl", **earlier) == 0
    assert export(tmp_path / "2", tmp_path / "dest", "faiss") == 2
    assert "holds no vectors to export" in capsys.readouterr().err
    assert export(tmp_path / "1", tmp_path / "first", "faiss") == 0
    assert export(f"{tmp_path}/[12]", tmp_path / "first", "faiss") == 2
    assert "holds another export, as" in capsys.readouterr().err
    assert export(f"{tmp_path}/[12]", tmp_path / "dest", "faiss") == 0
    assert faiss.read_index(str(tmp_path / "dest" / "knn.index")).ntotal == 1
