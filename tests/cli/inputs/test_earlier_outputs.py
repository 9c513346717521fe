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
def test_they_are_no_input(folder, run, pattern):
    made = record(run(f"{folder}{pattern}"))
    assert made["counts"]["records"] == 2
    assert made["input"]["files"] == 1
    assert made["input"]["skipped_files"]["outputs of runs"] >= 4
    assert "of a run's output and are skipped (" in run.out


def test_they_change_no_finished_run(folder, tiny_bundle, capsys):
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["{}/**/*.parquet", "{}/out", "{}/out/", "{}/out/**"])
def test_nothing_else_is_named(folder, run, named):
    run.refused(named.format(folder), f"names the output of a run, {folder}/")


@pytest.mark.parametrize(
    "named", ["{}/*/embeddings/*.parquet", "{}/out/embeddings", "{}/out/embeddings/*"]
)
def test_kept_texts_of_a_named_folder_are_input(folder, run, named):
    assert record(run(named.format(folder)))["counts"]["embedded"] == 2


OF_A_RUN = {"status": "done", "run": "a", "started": "", "versions": {}}


@pytest.mark.parametrize(
    "content",
    [{"run": "a", "status": "done"}, OF_A_RUN | {"other": "a" * (1 << 20)}],
    ids=["other keys", "large"],
)
def test_a_file_of_that_name_is_text(run, content):
    files = {"in/run.json": json.dumps({"text": "the bank"} | content)}
    output = run(files | {"in/a.json": '{"text": "the river"}'})
    assert record(output)["counts"]["embedded"] == 2
