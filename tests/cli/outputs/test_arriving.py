"""Input that arrives, changes or is gone for a while, and an output that becomes read-only.

The listing that the command line saw is what is embedded; what is said is right, and the same
command goes on.
"""

import errno
import os
import re
import subprocess

import pytest

from bert_embed.pipeline import job
from tests.support.command import embed, record, rows, say_status

RUN_JOB = job.run_job
SMALL = {"block_bytes": 300}


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a.txt", "c.txt"):
        (source / name).write_text(f"red river {name}\nseven stars {name}\n")
    return source


@pytest.fixture
def long_files(folder):
    """Three files of several blocks each."""
    for name in "abc":
        lines = [f"{name} {n} the river bank\n" for n in range(40)]
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


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


@pytest.mark.parametrize("ends", ["stopped", "done"])
def test_a_touched_file_of_a_disk_is_refused_with_the_way_to_go_on(
    tmp_path, folder, tiny_bundle, before_the_job, capsys, ends
):
    """Only a second read of the input would tell that its bytes are the same."""
    output = tmp_path / "out"
    if ends == "stopped":
        before_the_job(stop)
    assert embed(output, tiny_bundle, folder) == (1 if ends == "stopped" else 0)
    before_the_job(lambda: None)
    begun = record(output)["run"]
    for path in folder.iterdir():
        os.utime(path, (0, 1e9))
    capsys.readouterr()
    assert embed(output, tiny_bundle, folder) == 2
    said = capsys.readouterr().err
    assert "2 files of the input have another time than when it began" in said
    (folder / "c.txt").write_text("red river c.txt\nseven STARS c.txt\n")
    os.utime(folder / "c.txt", (0, 1e9))
    [command] = re.findall(r"touch -d \S+ \S+[ac].txt", said)
    subprocess.run(command, shell=True, check=True)
    assert embed(output, tiny_bundle, folder) == 2
    [command] = re.findall(r"touch -d \S+ \S+[ac].txt", capsys.readouterr().err)
    subprocess.run(command, shell=True, check=True)
    assert embed(output, tiny_bundle, folder) == 0
    assert record(output)["run"] == begun


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["stopped", "done"])
def test_an_object_that_was_written_again_with_the_same_bytes_is_the_same(
    tmp_path, gcs, tiny_bundle, before_the_job, capsys, ends
):
    bucket = gcs.client.create_bucket(f"again-{ends}")
    bucket.blob("in/a.txt").upload_from_string("the bank\nmoney\n")
    source, output = f"gs://again-{ends}/in/*.txt", tmp_path / "out"
    if ends == "stopped":
        before_the_job(stop)
    assert embed(output, tiny_bundle, source) == (1 if ends == "stopped" else 0)
    before_the_job(lambda: None)
    begun = record(output)["run"]
    for _ in range(2):  # the second finds what the first command kept
        bucket.blob("in/a.txt").upload_from_string("the bank\nmoney\n")
        assert embed(output, tiny_bundle, source) == 0
        assert record(output)["run"] == begun
    bucket.blob("in/a.txt").upload_from_string("the bank\nMONEY\n")
    assert embed(output, tiny_bundle, source) == 2
    assert "(the input changed since)" in capsys.readouterr().err


def test_an_increment_that_goes_on_without_files_deletes_none_of_their_documents(
    tmp_path, folder, tiny_bundle, before_the_job, capsys
):
    """They are in the input again, and another output has seen that they are not gone."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert embed(first, tiny_bundle, folder) == 0
    (folder / "c.txt").rename(tmp_path / "c.txt")
    (folder / "d.txt").write_text("money\n")
    earlier = {"skip_existing": first, "max_deleted": "100%"}
    before_the_job(stop)
    assert embed(second, tiny_bundle, folder, **earlier) == 1
    (tmp_path / "c.txt").rename(folder / "c.txt")
    before_the_job(lambda: None)
    assert embed(second, tiny_bundle, folder, **earlier) == 0
    assert record(second)["changes"]["gone"] == 2
    assert "2 documents not in the input kept" in capsys.readouterr().out
    assert not (second / "deleted").exists()
    flags = {"max_deleted": "100%", "skip_existing": f"{tmp_path}/*"}
    assert embed(third, tiny_bundle, folder, **flags) == 0
    assert record(third)["changes"]["gone"] == 0


def test_an_earlier_run_that_goes_on_meanwhile_makes_another_run(
    tmp_path, long_files, tiny_bundle, before_the_job, capsys
):
    """No command continues what failed: what is said to do must work."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert embed(first, tiny_bundle, long_files, **SMALL) == 0
    last = max((first / "_state" / "blocks").iterdir())
    finished = last.read_bytes()
    last.unlink()
    say_status(first, "running")
    before_the_job(lambda: last.write_bytes(finished))
    earlier = {"skip_existing": first}
    assert embed(second, tiny_bundle, long_files, **SMALL, **earlier) == 1
    said = capsys.readouterr().err
    assert f"--skip_existing {first} changed while the job was being started" in said
    assert "run again with --overwrite, or into another --output" in said
    assert "the same command" not in said
    before_the_job(lambda: None)
    assert embed(second, tiny_bundle, long_files, **SMALL, **earlier) == 2
    assert embed(second, tiny_bundle, long_files, **SMALL, **earlier, overwrite=True) == 0
    assert record(second)["counts"]["embedded"] == 0


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


def at_file(monkeypatch, number, do):
    """Has something happen when the given file is made safe on the disk."""
    straight, seen = os.fsync, []

    def fsync(descriptor):
        seen.append(descriptor)
        if len(seen) >= number:
            do()
        straight(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return straight


def test_an_output_that_becomes_read_only(tmp_path, tiny_bundle, long_files, capsys, monkeypatch):
    def refuse():
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    output = tmp_path / "out"
    straight = at_file(monkeypatch, 9, refuse)
    assert embed(output, tiny_bundle, long_files, **SMALL) == 1
    said = capsys.readouterr().err
    assert "cannot be written: Read-only file system" in said
    assert f"note: {output}/run.json still says running, it cannot be written:" in said
    assert "once this is fixed, the same command continues" in said
    assert record(output)["status"] == "running"
    monkeypatch.setattr(os, "fsync", straight)
    assert embed(output, tiny_bundle, long_files, **SMALL) == 0
    assert record(output)["counts"]["parts_reused"] > 0
    assert len(rows(output)["id"]) == 120


@pytest.mark.slow
def test_an_output_that_becomes_read_only_at_the_very_end(tmp_path, tiny_bundle, folder, capsys):
    """Only run.json is missing; the second start computes nothing, and says no speed of 0."""
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, folder) == 0
    say_status(output, "running")
    capsys.readouterr()
    assert embed(output, tiny_bundle, folder) == 0
    assert "earlier attempts had computed everything" in capsys.readouterr().out
    assert record(output)["documents_per_second"] is None


def test_an_input_that_is_gone_for_a_while(tmp_path, tiny_bundle, long_files, capsys, monkeypatch):
    away = tmp_path / "c.txt"

    def take_away():
        if not away.exists():
            (long_files / "c.txt").rename(away)

    output = tmp_path / "out"
    straight = at_file(monkeypatch, 3, take_away)
    assert embed(output, tiny_bundle, long_files, **SMALL) == 1
    said = capsys.readouterr().err
    assert f"{long_files}/c.txt is gone since the job started; put it back" in said
    assert "once this is fixed, the same command continues" in said
    assert "--overwrite" not in said
    monkeypatch.setattr(os, "fsync", straight)
    away.rename(long_files / "c.txt")
    assert embed(output, tiny_bundle, long_files, **SMALL) == 0
    assert len(rows(output)["id"]) == 120


def test_an_input_that_changed_needs_overwrite(
    tmp_path, tiny_bundle, long_files, capsys, monkeypatch
):
    output = tmp_path / "out"
    straight = at_file(monkeypatch, 3, lambda: (long_files / "c.txt").write_text("another\n"))
    assert embed(output, tiny_bundle, long_files, **SMALL) == 1
    said = capsys.readouterr().err
    assert f"{long_files}/c.txt changed after the job started" in said
    assert "run again with --overwrite" in said
    assert "the same command" not in said
    monkeypatch.setattr(os, "fsync", straight)
    assert embed(output, tiny_bundle, long_files, **SMALL, overwrite=True) == 0
    assert len(rows(output)["id"]) == 81
