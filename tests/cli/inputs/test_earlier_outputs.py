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


def test_they_are_no_input_and_change_no_finished_run(folder, run, tiny_bundle, capsys):
    for number, pattern in enumerate(("", "/**", "/**/*")):
        made = record(run(f"{folder}{pattern}", f"out{number}"))
        assert made["counts"]["records"] == 2
        assert made["input"]["files"] == 1
        assert made["input"]["skipped_files"]["outputs of runs"] >= 4
        assert "of a run's output and are skipped (" in run.out
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_what_names_an_output_alone_is_refused_unless_it_names_its_texts(folder, run):
    for named in ("{}/**/*.parquet", "{}/out", "{}/out/", "{}/out/**"):
        run.refused(named.format(folder), f"names the output of a run, {folder}/")
    texts = ("{}/*/embeddings/*.parquet", "{}/out/embeddings", "{}/out/embeddings/*")
    for number, named in enumerate(texts):
        output = run(named.format(folder), f"texts{number}")
        assert record(output)["counts"]["embedded"] == 2


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
