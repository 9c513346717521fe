"""The listing that the command line saw is the listing that is embedded, whatever arrives later."""

import pytest

from bert_embed.pipeline import job
from tests.support.command import embed, record, rows

RUN_JOB = job.run_job


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a.txt", "c.txt"):
        (source / name).write_text(f"red river {name}\nseven stars {name}\n")
    return source


@pytest.fixture
def before_the_job(monkeypatch):
    """Has something happen after the command line listed the input, and before workers plan."""

    def happen(event):
        def run_job(run, record):
            event()
            RUN_JOB(run, record)

        monkeypatch.setattr(job, "run_job", run_job)

    return happen


def paths(output):
    return sorted({each.rpartition(":")[0].rpartition("/")[2] for each in rows(output)["id"]})


@pytest.mark.parametrize("suffix", ["b.txt", "b.parquet", "b.txt.gz"])
def test_a_file_that_arrives_after_submission_is_left_out(
    tmp_path, folder, tiny_bundle, before_the_job, suffix
):
    before_the_job(lambda: (folder / suffix).write_bytes(b"no such file\n"))
    assert embed(tmp_path / "out", tiny_bundle, folder) == 0
    assert paths(tmp_path / "out") == ["a.txt", "c.txt"]
    assert record(tmp_path / "out")["counts"]["records"] == 4


@pytest.mark.parametrize("change", ["removed", "changed"])
def test_a_file_that_vanished_or_changed_fails_by_name(
    tmp_path, folder, tiny_bundle, before_the_job, change, capsys
):
    path = folder / "c.txt"
    before_the_job(path.unlink if change == "removed" else lambda: path.write_text("other\n"))
    assert embed(tmp_path / "out", tiny_bundle, folder) == 1
    shown = capsys.readouterr().err
    assert f"{path} is gone since" in shown or f"{path} changed after the job started" in shown


def stop():
    raise RuntimeError("the machine was switched off")


def test_an_unfinished_run_goes_on_with_the_files_that_it_listed(
    tmp_path, folder, tiny_bundle, before_the_job, capsys
):
    output = tmp_path / "out"
    before_the_job(stop)
    assert embed(output, tiny_bundle, folder) == 1
    begun = record(output)["run"]
    (folder / "b.txt").write_text("money\n")
    before_the_job(lambda: None)
    assert embed(output, tiny_bundle, folder) == 0
    assert "1 file arrived since this run began, which goes on without" in capsys.readouterr().err
    assert paths(output) == ["a.txt", "c.txt"]
    assert record(output)["run"] == begun
    # It is complete now: a command that would embed more is another run.
    assert embed(output, tiny_bundle, folder) == 2
    assert "the input changed since" in capsys.readouterr().err
    assert embed(tmp_path / "more", tiny_bundle, folder, skip_existing=output) == 0
    assert paths(tmp_path / "more") == ["b.txt"]


@pytest.mark.parametrize("flags", [{}, {"pooling": "cls"}])
def test_an_unfinished_run_of_other_files_or_settings_is_another_run(
    tmp_path, folder, tiny_bundle, before_the_job, capsys, flags
):
    output = tmp_path / "out"
    before_the_job(stop)
    assert embed(output, tiny_bundle, folder) == 1
    (folder / "b.txt").write_text("money\n")
    if not flags:
        (folder / "a.txt").write_text("other\n")
    before_the_job(lambda: None)
    assert embed(output, tiny_bundle, folder, **flags) == 2
    assert "holds another run" in capsys.readouterr().err
