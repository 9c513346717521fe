"""--id_column ./ names documents by their places below the input's folder, wherever it lies."""

import shutil

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.transforms.listing import folder_above, list_input
from tests.support.command import record

PLACES = {"document": ["a.md", "sub/b.txt"], "line": ["a.md:0", "sub/b.txt:0", "sub/b.txt:4"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_a_moved_folder_is_the_same_corpus(run, tmp_path, kind, tiny_bundle, capsys):
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
    capsys.readouterr()
    assert main(["search", str(again), "stars", f"--model={tiny_bundle}"]) == 0
    assert "seven stars" in capsys.readouterr().out  # read from the folder again


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
