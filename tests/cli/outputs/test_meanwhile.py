"""Input that arrives, changes or is gone for a while, an output that vanishes or is read-only.

The listing that the command line saw is what is embedded; what is said is right, in one sentence,
and the same command goes on.
"""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import block_records, embed, record, rows, say_status

RUN_JOB = job.run_job


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

    def happen(event=lambda: None):
        def run_job(run, record):
            event()
            RUN_JOB(run, record)

        monkeypatch.setattr(job, "run_job", run_job)

    return happen


def stop():
    raise RuntimeError("the machine was switched off")


def paths(output):
    return sorted({each.rpartition(":")[0].rpartition("/")[2] for each in rows(output)["id"]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "is gone since"),
        (lambda text: "other\n", "changed after the job started: listed with 34 bytes, now 6;"),
        (str.upper, "listed with 34 bytes, now as many, but written anew;"),
    ],
    ids=["gone", "other size", "same size"],
)
def test_a_vanished_or_changed_file_is_named(tmp_path, run, folder, before_the_job, change, said):
    """What is said to do then works: to put it back, or to overwrite; what came is not read."""
    path = folder / "c.txt"

    def happen():
        (folder / "b.parquet").write_bytes(b"no such file\n")
        if change is None:
            return path.rename(tmp_path / "c.txt")
        path.write_text(change(path.read_text()))
        os.utime(path, (0, 0))  # clocks of file systems are coarse

    before_the_job(happen)
    output = run(folder, code=1)
    assert f"{path} " in run.err
    assert said in run.err
    assert ("run again with --overwrite, or into another --output" in run.err) == bool(change)
    assert ("the same command continues" in run.err) != bool(change)
    assert record(output)["status"] == "failed"
    (folder / "b.parquet").unlink()
    before_the_job()
    if change is None:
        (tmp_path / "c.txt").rename(path)
    run(folder, overwrite=bool(change))
    assert len(rows(output)["id"]) == 2 + len(path.read_text().splitlines())


def test_an_unfinished_run_goes_on_with_the_files_that_it_listed(run, folder, before_the_job):
    before_the_job(stop)
    output = run(folder, code=1)
    begun = record(output)["run"]
    (folder / "b.txt").write_text("money\n")
    before_the_job()
    run.refused(folder, "holds another run", pooling="cls")
    path, kept, time = folder / "a.txt", (folder / "a.txt").read_text(), os.stat(folder / "a.txt")
    # Of a file with another time, only a second read would tell that its bytes are the same.
    for text in ("other\n", kept):
        path.write_text(text)
        run.refused(folder, "holds another run (the input changed since)")
    os.utime(path, ns=(time.st_atime_ns, time.st_mtime_ns))
    run(folder)
    assert "1 file arrived since this run began, which goes on without" in run.err
    assert paths(output) == ["a.txt", "c.txt"]
    assert record(output)["run"] == begun
    # It is complete now: a command that would embed more is another run.
    run.refused(folder, "the input changed since")
    assert paths(run(folder, "more", skip_existing=output)) == ["b.txt"]
    (folder / "b.txt").unlink()
    run(folder)
    os.utime(path, (0, 1e9))
    run.refused(folder, "the input changed since")


@pytest.mark.slow
def test_an_object_written_again_with_the_same_bytes_is_the_same(
    gcs, run, before_the_job, tmp_path
):
    bucket = gcs.client.create_bucket(tmp_path.name.replace("_", "-").lower())
    source = f"gs://{bucket.name}/in/*.txt"

    def write(text):
        bucket.blob("in/a.txt").upload_from_string(text)

    write("the bank\nmoney\n")
    before_the_job(stop)
    output = run(source, code=1)
    begun = record(output)["run"]
    before_the_job()
    for _ in range(3):  # the run was stopped, is done, and what the second command kept is found
        write("the bank\nMONEY\n")
        run.refused(source, "(the input changed since)")
        write("the bank\nmoney\n")
        run(source)
        assert record(output)["run"] == begun


def test_an_increment_without_files_deletes_nothing_of_them(tmp_path, folder, run, before_the_job):
    """They are in the input again, and another output has seen that they are not gone."""
    first = run(folder, "first")
    (folder / "c.txt").rename(tmp_path / "c.txt")
    (folder / "d.txt").write_text("money\n")
    earlier = {"skip_existing": first, "max_deleted": "100%"}
    before_the_job(stop)
    second = run(folder, "second", code=1, **earlier)
    (tmp_path / "c.txt").rename(folder / "c.txt")
    before_the_job()
    run(folder, "second", **earlier)
    assert record(second)["changes"]["gone"] == 2
    assert "2 documents that the input lacks are kept" in run.out
    assert not (second / "deleted").exists()
    third = run(folder, "third", max_deleted="100%", skip_existing=f"{tmp_path}/*")
    assert record(third)["changes"]["gone"] == 0


def test_an_earlier_run_that_goes_on_meanwhile_makes_another_run(run, long_files, before_the_job):
    """No command continues what failed: what is said to do must work."""
    first = run(long_files, "first", **SMALL)
    last = max((first / "_state" / "blocks").iterdir())
    finished = last.read_bytes()
    last.unlink()
    say_status(first, "running")
    before_the_job(lambda: last.write_bytes(finished))
    flags = SMALL | {"skip_existing": first}
    run(long_files, "second", code=1, **flags)
    assert f"--skip_existing {first} changed while the job was being started" in run.err
    assert "run again with --overwrite, or into another --output" in run.err
    assert "the same command" not in run.err
    before_the_job()
    run(long_files, "second", code=2, **flags)
    second = run(long_files, "second", **flags, overwrite=True)
    assert record(second)["counts"]["embedded"] == 0


def test_an_output_that_becomes_read_only(run, long_files):
    straight, seen = os.fsync, []

    def fsync(descriptor):
        seen.append(descriptor)
        if len(seen) >= 9:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        straight(descriptor)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(os, "fsync", fsync)
        output = run(long_files, code=1, **SMALL)
    assert "cannot be written: Read-only file system" in run.err
    assert f"note: {output}/run.json still says running, it cannot be written:" in run.err
    assert "once this is fixed, the same command continues" in run.err
    assert record(output)["status"] == "running"
    run(long_files, **SMALL)
    assert record(output)["counts"]["parts_reused"] > 0
    assert len(rows(output)["id"]) == 120
    # At the very end: run.json alone is missing, nothing is computed, and no speed of 0 is said.
    say_status(output, "running")
    run(long_files, **SMALL)
    assert "earlier attempts had computed everything" in run.out
    assert record(output)["documents_per_second"] is None


PARTS = 10
FLAGS = SMALL | {"max_rejected": 1}


def after_parts(monkeypatch, parts, fault):
    """Does something to the output once so many block records are written."""
    write, done = OutputFolder.write_block_record, []

    def write_and_break(folder, block, part, data):
        write(folder, block, part, data)
        done.append(block)
        if len(done) == parts:
            fault(Path(folder.path))

    monkeypatch.setattr(OutputFolder, "write_block_record", write_and_break)


def move(output):
    return output.rename(output.with_name("moved"))


def replace_by_copy(output):
    """The folder as it was with its run.json, but for one file that was lost on the way."""
    shutil.copytree(move(output), output)
    next((output / "embeddings").iterdir()).unlink()


def replace_without_records(output):
    """Block records of some parts and their files are both gone: what is there fits together."""
    first = block_records(output)[0]
    for path in output.rglob(f"*{first.stem}*"):
        path.unlink()


FAULTS = {
    "moved": move,
    "replaced by an empty folder": lambda output: move(output) and output.mkdir(),
    "replaced by a copy": replace_by_copy,
    "a part and its record removed": replace_without_records,
    "embeddings removed": lambda output: shutil.rmtree(output / "embeddings"),
    "block records removed": lambda output: shutil.rmtree(output / "_state" / "blocks"),
    "a file removed": lambda output: next((output / "embeddings").iterdir()).unlink(),
    "a file cut": lambda output: next((output / "embeddings").iterdir()).write_bytes(b""),
    "a block record removed": lambda output: block_records(output)[0].unlink(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "parts"), [*((fault, 5) for fault in FAULTS), ("moved", PARTS), ("a file cut", PARTS)]
)
def test_the_job_fails_in_one_sentence(run, corpus, monkeypatch, fault, parts):
    after_parts(monkeypatch, parts, FAULTS[fault])
    output = run(corpus, code=1, **FLAGS)
    check_one_sentence(run.err)
    if (output / "run.json").exists():
        assert record(output)["status"] == "failed"
        monkeypatch.undo()
        run(corpus, **FLAGS)
        assert len(rows(output)["id"]) == LINES - 1
        assert main(["verify", str(output)]) == 0


def check_one_sentence(said):
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert line.startswith("error: the job failed: ")


@pytest.mark.slow
def test_of_a_bucket_too(tiny_bundle, corpus, monkeypatch, capsys, gcs):
    """Objects are gone that an earlier part of the run wrote, with their block record."""
    gcs.client.create_bucket("vanished")
    address, folder = "gs://vanished/out", gcs.root / "vanished" / "out"
    with monkeypatch.context() as patches:
        after_parts(patches, 5, lambda _: replace_without_records(folder))
        assert embed(address, tiny_bundle, corpus, **FLAGS) == 1
    check_one_sentence(capsys.readouterr().err)
    assert record(folder)["status"] == "failed"
    assert embed(address, tiny_bundle, corpus, **FLAGS) == 0
    assert len(rows(folder)["id"]) == LINES - 1


def test_another_run_in_the_folder_is_not_overwritten(run, corpus, monkeypatch):
    """Whoever gave the folder to another run had --overwrite and no lock, as on a store."""

    def give_away(folder):
        data = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(data | {"run": "0" * 32}))

    after_parts(monkeypatch, 5, give_away)
    output = run(corpus, code=1, **SMALL)
    check_one_sentence(run.err)
    assert record(output)["run"] == "0" * 32
