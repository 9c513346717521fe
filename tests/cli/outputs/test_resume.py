"""Nothing lost, nothing twice, nothing again: kills, reruns, other runs, two jobs at once."""

import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import (
    Hold,
    block_records,
    embed,
    files,
    finish,
    flags_of,
    record,
    rejected,
    rows,
    say_status,
    start,
    stray,
)

pytestmark = pytest.mark.slow

LINES = 600
SMALL = {"block_bytes": 1000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    words = np.random.default_rng(7).choice(
        ["red", "river", "bank", "of", "seven", "stars"], (LINES, 6)
    )
    path.write_text("\n".join(f"{n} " + " ".join(row) for n, row in enumerate(words)))
    return path


@pytest.fixture(scope="module")
def whole(corpus, tiny_bundle, tmp_path_factory):
    """The output of a run in small blocks, which no test changes."""
    output = tmp_path_factory.mktemp("whole") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert len(rows(output)["id"]) == LINES
    return output


@pytest.fixture(scope="module")
def uninterrupted(whole):
    return files(whole)


@pytest.fixture
def output(tmp_path, whole):
    """A finished run, for a test to change."""
    return shutil.copytree(whole, tmp_path / "out")


@pytest.mark.parametrize("parts", [1, 9])
def test_a_killed_job_continues_with_the_same_command(
    tmp_path, corpus, tiny_bundle, uninterrupted, parts
):
    output = tmp_path / "out"
    Hold(tmp_path / "hold", parts).kill("embed", *flags_of(output, tiny_bundle, corpus, **SMALL))
    assert record(output)["status"] == "running"
    times = {path: path.stat().st_mtime_ns for path in output.glob("_state/blocks/0*.json")}
    assert len(times) == parts < len(uninterrupted)

    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == uninterrupted
    counts = record(output)["counts"]
    assert counts["embedded"] == LINES
    assert counts["parts_reused"] == len(times)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert stray(output) == []


def test_a_kill_between_vectors_and_report_leaves_a_block_to_do(
    output, corpus, tiny_bundle, uninterrupted
):
    """The report is the mark: vectors without one are written again, equal byte for byte."""
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000003-00000.json").unlink()
    (output / "embeddings/part-0000003-00000.parquet").write_bytes(b"half")
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == uninterrupted
    assert record(output)["counts"]["parts_reused"] == record(output)["counts"]["parts"] - 1


def test_a_file_that_was_deleted_or_cut_is_written_again(
    output, corpus, tiny_bundle, uninterrupted
):
    gone, cut = list(uninterrupted)[3:5]
    (output / gone).unlink()
    (output / cut).write_bytes(uninterrupted[cut][:100])
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == uninterrupted
    counts = record(output)["counts"]
    assert counts["parts_reused"] == counts["parts"] - 2


def test_a_finished_run_is_a_no_op(output, corpus, tiny_bundle, capsys):
    before = {p: p.stat().st_mtime_ns for p in sorted(output.rglob("*"))}
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert embed(output, tiny_bundle, corpus, **SMALL, overwrite=True) == 0
    assert {p: p.stat().st_mtime_ns for p in sorted(output.rglob("*"))} == before


@pytest.mark.parametrize(
    "other", [{"dim": 8}, {"pooling": "cls"}, {"block_bytes": 5000}, {"limit": 40}]
)
def test_another_run_in_the_folder_is_refused(output, corpus, tiny_bundle, capsys, other):
    (output / "mine.txt").write_text("keep")
    before = files(output)
    other = SMALL | other
    assert embed(output, tiny_bundle, corpus, **other) == 2
    (changed,) = other.keys() - SMALL.keys() or {"block_bytes"}
    assert f"holds another run (--{changed} changed since)" in capsys.readouterr().err
    assert files(output) == before
    assert embed(output, tiny_bundle, corpus, overwrite=True, **other) == 0
    assert len(rows(output)["id"]) == min(LINES, other.get("limit", LINES))
    assert (output / "mine.txt").read_text() == "keep"


def test_how_fast_it_ran_is_not_another_run(output, corpus, tiny_bundle, capsys):
    flags = {"batch_tokens": 64, "threads": 1, "max_rejected": "3"}
    assert embed(output, tiny_bundle, corpus, **SMALL, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_vectors_without_a_record_are_not_written_over(output, corpus, tiny_bundle, capsys):
    (output / "run.json").unlink()
    assert embed(output, tiny_bundle, corpus, dim=3) == 2
    assert "no run.json" in capsys.readouterr().err


def test_two_jobs_at_once_do_no_harm(tmp_path, corpus, tiny_bundle, uninterrupted):
    output = tmp_path / "out"
    command = ["embed", *flags_of(output, tiny_bundle, corpus, **SMALL)]
    jobs = [start(*command), start(*command)]
    for job in jobs:
        finish(job)
    assert files(output) == uninterrupted
    assert record(output)["status"] == "done"
    assert record(output)["counts"]["embedded"] == LINES
    assert stray(output) == []


def test_ctrl_c_ends_with_the_command_that_continues(tmp_path, corpus, tiny_bundle, uninterrupted):
    output = tmp_path / "out"
    code, _, errors = Hold(tmp_path / "hold", 5).interrupt(
        "embed", *flags_of(output, tiny_bundle, corpus, **SMALL)
    )
    assert code == 130
    assert "Traceback" not in errors
    command = shlex.split(errors.strip().splitlines()[-1])
    assert Path(command[0]).name == "bert-embed"
    assert command[1] == "embed"
    assert record(output)["status"] == "interrupted"
    assert main(command[1:]) == 0
    assert files(output) == uninterrupted


@pytest.mark.parametrize("suffix", ["txt", "csv"])  # a CSV file is one block of many parts
def test_ctrl_c_says_how_many_documents_are_kept(tmp_path, corpus, tiny_bundle, suffix):
    path, output = tmp_path / f"in.{suffix}", tmp_path / "out"
    header = "text\n" if suffix == "csv" else ""
    path.write_text(f"{header}{corpus.read_text('utf-8')}\n")
    _, _, errors = Hold(tmp_path / "hold", 5).interrupt(
        "embed", *flags_of(output, tiny_bundle, path, **SMALL)
    )
    reports = [json.loads(report.read_text("utf-8")) for report in block_records(output)]
    finished = sum(report["embedded"] for report in reports)
    assert 0 < finished < LINES
    (said, about) = re.findall(r"^interrupted; (\d+) of about (\d+) documents are ", errors, re.M)[
        0
    ]
    assert int(said) == finished
    assert int(about) == pytest.approx(LINES, rel=0.1)
    assert "finished and kept, the same command computes the rest:\n  " in errors


def test_old_temporary_files_are_swept(tmp_path, corpus, tiny_bundle):
    output = tmp_path / "out"
    (output / "_state" / "blocks").mkdir(parents=True)
    old = output / "_state" / ".tmp-elsewhere-12-abcdef01-0000000-00000.json"
    young = output / "_state" / ".tmp-elsewhere-12-abcdef01-part-0000000-00000.parquet"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))
    assert embed(output, tiny_bundle, corpus) == 0
    assert stray(output) == [young.name]


@pytest.mark.parametrize(
    ("text", "now"),
    [("one\ntwo\nthree\n", "14;"), ("one\nten\n", "as many, but written anew;")],
)
def test_a_changed_file_fails_the_job_by_name(
    tmp_path, tiny_bundle, capsys, monkeypatch, text, now
):
    """The file changes after the command line has listed it."""
    from bert_embed.pipeline import job

    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    straight = job.run_job

    def later(run, record):
        path.write_text(text)
        os.utime(path, (0, 0))  # clocks of file systems are coarse
        straight(run, record)

    monkeypatch.setattr(job, "run_job", later)
    assert embed(tmp_path / "out", tiny_bundle, path) == 1
    message = capsys.readouterr().err
    assert f"{path} changed after the job started: listed with 8 bytes, now {now}" in message
    assert "run again with --overwrite, or into another --output" in message
    assert record(tmp_path / "out")["status"] == "failed"


def test_damaged_compressed_input_fails_by_name_and_keeps_what_is_done(
    tmp_path, tiny_bundle, capsys
):
    import gzip

    lines = b"".join(b"line %d\n" % n for n in range(40_000))
    whole = gzip.compress(lines)
    (tmp_path / "a.txt").write_text("the bank of the river\n")
    (tmp_path / "in.txt.gz").write_bytes(whole[: len(whole) * 2 // 3])
    texts = tmp_path / "a.txt", tmp_path / "in.txt.gz"
    assert embed(tmp_path / "out", tiny_bundle, *texts, block_bytes=100_000) == 1
    message = capsys.readouterr().err
    assert f"{tmp_path}/in.txt.gz is damaged gzip data" in message
    assert "Traceback" not in message
    assert "while running" not in message + record(tmp_path / "out")["error"]
    assert record(tmp_path / "out")["status"] == "failed"
    # A file that is written again is another input: the message says what takes it.
    assert "into another --output, with --skip_existing for this one, or with --over" in message
    (tmp_path / "in.txt.gz").write_bytes(whole)
    assert embed(tmp_path / "out", tiny_bundle, *texts, block_bytes=100_000) == 2
    flags = {"skip_existing": tmp_path / "out", "block_bytes": 100_000}
    assert embed(tmp_path / "new", tiny_bundle, *texts, **flags) == 0
    counts = record(tmp_path / "new")["counts"]
    assert counts["skipped"] + counts["embedded"] == 40_001


def test_skipped_blocks_of_a_run_that_is_written_stay(tmp_path, tiny_bundle, capsys):
    text, output = tmp_path / "in.txt", tmp_path / "out"
    text.write_text("the bank of the river\n" * 100)
    small = {"block_bytes": 1000}
    assert embed(output, tiny_bundle, text, **small, skip_blocks="1") == 0
    before = files(output)
    with OutputFolder(str(output)).held():
        assert embed(output, tiny_bundle, text, **small) == 1
    assert "another command writes to" in capsys.readouterr().err
    assert files(output) == before
    assert embed(output, tiny_bundle, text, **small) == 0
    assert rejected(output) == []


def test_overwrite_waits_for_no_run_that_writes_there(tmp_path, tiny_bundle, capsys):
    text = tmp_path / "in.txt"
    text.write_text("the bank\n")
    folder = OutputFolder(str(tmp_path / "out"))
    with folder.held():
        assert embed(tmp_path / "out", tiny_bundle, text, overwrite=True) == 1
        assert "another command writes to" in capsys.readouterr().err
        assert embed(tmp_path / "out", tiny_bundle, text) == 0
    (tmp_path / "other.txt").write_text("a river\n")
    with OutputFolder(str(tmp_path / "new")).held(alone=True):
        assert embed(tmp_path / "new", tiny_bundle, tmp_path / "other.txt") == 1
        assert "another command writes to" in capsys.readouterr().err
    assert not (tmp_path / "new" / "_state").exists()
    assert embed(tmp_path / "new", tiny_bundle, tmp_path / "other.txt") == 0
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "other.txt", overwrite=True) == 0
    assert len(rows(tmp_path / "out")["id"]) == 1
    assert not (tmp_path / "out" / "_state" / "lock").exists()
