"""Outputs of earlier runs that lie in a folder of the input."""

import json

import pytest

from tests.support.command import embed, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bundle):
    """A folder of texts, and in it what a run made of them."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("the bank\nthe river\n")
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    return folder


@pytest.mark.parametrize("pattern", ["", "/**", "/**/*"])
def test_they_are_no_input(folder, tmp_path, tiny_bundle, capsys, pattern):
    assert embed(tmp_path / "next", tiny_bundle, f"{folder}{pattern}") == 0
    made = record(tmp_path / "next")
    assert made["counts"]["records"] == 2
    assert made["input"]["files"] == 1
    assert made["input"]["skipped_files"]["outputs of runs"] >= 4
    assert "of a run's output and are skipped (" in capsys.readouterr().out


def test_they_change_no_finished_run(folder, tiny_bundle, capsys):
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["{}/**/*.parquet", "{}/out", "{}/out/", "{}/out/**"])
def test_nothing_else_is_named(folder, tmp_path, tiny_bundle, capsys, named):
    assert embed(tmp_path / "next", tiny_bundle, named.format(folder)) == 2
    error = capsys.readouterr().err
    assert f"names the output of a run, {folder}/" in error
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize(
    "named", ["{}/*/embeddings/*.parquet", "{}/out/embeddings", "{}/out/embeddings/*"]
)
def test_kept_texts_of_a_named_folder_are_input(folder, tmp_path, tiny_bundle, named):
    assert embed(tmp_path / "next", tiny_bundle, named.format(folder)) == 0
    assert record(tmp_path / "next")["counts"]["embedded"] == 2


OF_A_RUN = {"status": "done", "run": "a", "started": "", "versions": {}}


@pytest.mark.parametrize(
    "content",
    [{"run": "a", "status": "done"}, OF_A_RUN | {"other": "a" * (1 << 20)}],
    ids=["other keys", "large"],
)
def test_a_file_of_that_name_is_text(tmp_path, tiny_bundle, content):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "run.json").write_text(json.dumps({"text": "the bank"} | content))
    (tmp_path / "in" / "a.json").write_text('{"text": "the river"}')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 0
    assert record(tmp_path / "out")["counts"]["embedded"] == 2
