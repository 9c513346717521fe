"""Nothing lost, nothing twice, nothing again: kills, reruns, other runs, two jobs at once."""

import json
import os
import re
import shlex
import time
from pathlib import Path

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import (
    Hold,
    block_records,
    files,
    finish,
    flags_of,
    record,
    rows,
    say_status,
    start,
    stray,
)

pytestmark = pytest.mark.slow


def test_a_block_without_its_report_or_its_whole_file_is_to_do(output, corpus, run, whole):
    """The report is the mark: vectors without one are written again, equal byte for byte.

    Temporary files that nobody will finish are swept.
    """
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000003-00000.json").unlink()
    (output / "embeddings/part-0000003-00000.parquet").write_bytes(b"half")
    old, young = (output / "_state" / f".tmp-elsewhere-12-abcdef01-{name}" for name in "ab")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))
    run(corpus, **SMALL)
    assert files(output) == files(whole)
    assert stray(output) == [young.name]
    counts = record(output)["counts"]
    assert counts["parts_reused"] == counts["parts"] - 1
    gone, cut = list(files(whole))[3:5]
    (output / gone).unlink()
    (output / cut).write_bytes((whole / cut).read_bytes()[:100])
    run(corpus, **SMALL)
    assert files(output) == files(whole)
    assert record(output)["counts"]["parts_reused"] == counts["parts"] - 2


def test_a_finished_run_is_a_no_op(output, corpus, run):
    """How fast it ran is not another run; vectors without a record are not written over."""
    before = {p: p.stat().st_mtime_ns for p in sorted(output.rglob("*"))}
    fast = {"batch_tokens": 64, "threads": 1, "max_rejected": "3"}
    for flags in ({}, fast, {"overwrite": True}):
        run(corpus, **SMALL, **flags)
        assert "nothing to do" in run.out
        assert {p: p.stat().st_mtime_ns for p in sorted(output.rglob("*"))} == before
    (output / "run.json").unlink()
    run.refused(corpus, "no run.json", dim=3)


def test_another_run_in_the_folder_is_refused(output, corpus, run):
    (output / "mine.txt").write_text("keep")
    before = files(output)
    for other in ({"dim": 8}, {"pooling": "cls"}, {"block_bytes": 5000}, {"limit": 40}):
        message = f"holds another run (--{next(iter(other))} changed since)"
        run.refused(corpus, message, **SMALL | other)
        assert files(output) == before
    run(corpus, overwrite=True, **SMALL | other)
    assert len(rows(output)["id"]) == 40
    assert (output / "mine.txt").read_text() == "keep"


def test_two_jobs_at_once_do_no_harm(tmp_path, corpus, tiny_bundle, whole):
    output = tmp_path / "out"
    command = ["embed", *flags_of(output, tiny_bundle, corpus, **SMALL)]
    for process in [start(*command), start(*command)]:
        finish(process)
    assert files(output) == files(whole)
    assert record(output)["status"] == "done"
    assert record(output)["counts"]["embedded"] == LINES - 1
    assert stray(output) == []


@pytest.mark.parametrize("suffix", ["txt", "csv"])  # a CSV file is one block of many parts
def test_ctrl_c_says_how_to_go_on(tmp_path, corpus, tiny_bundle, whole, suffix):
    path, output = corpus, tmp_path / "out"
    if suffix == "csv":
        path = tmp_path / "in.csv"
        path.write_text(f"text\n{corpus.read_text('utf-8')}\n")
    code, _, errors = Hold(tmp_path / "hold", 5).interrupt(
        "embed", *flags_of(output, tiny_bundle, path, **SMALL)
    )
    assert code == 130
    assert "Traceback" not in errors
    assert record(output)["status"] == "interrupted"
    reports = [json.loads(report.read_text("utf-8")) for report in block_records(output)]
    finished = sum(report["embedded"] for report in reports)
    assert 0 < finished < LINES
    [told] = re.findall(r"^interrupted; (\d+) of about (\d+) documents are ", errors, re.M)
    assert int(told[0]) == finished
    assert int(told[1]) == pytest.approx(LINES, rel=0.1)
    assert "finished and kept, the same command computes the rest:\n  " in errors
    command = shlex.split(errors.strip().splitlines()[-1])
    assert (Path(command[0]).name, command[1]) == ("bert-embed", "embed")
    assert main(command[1:]) == 0
    assert record(output)["counts"]["embedded"] == LINES - 1
    assert suffix == "csv" or files(output) == files(whole)


def test_overwrite_waits_for_no_run_that_writes_there(tmp_path, run):
    text, other = {"in.txt": "the bank\n"}, {"other.txt": "a river\n"}
    with OutputFolder(str(tmp_path / "out")).held():
        run(text, code=1, overwrite=True)
        assert "another command writes to" in run.err
        run(text)
    with OutputFolder(str(tmp_path / "new")).held(alone=True):
        run(other, "new", code=1)
        assert "another command writes to" in run.err
    assert not (tmp_path / "new" / "_state").exists()
    output = run(other, overwrite=True)
    assert len(rows(output)["id"]) == 1
    assert not (output / "_state" / "lock").exists()
    # A complete run that lost a file is locked, too, before it is changed.
    next((output / "embeddings").iterdir()).unlink()
    before = (output / "run.json").read_bytes()
    with OutputFolder(str(output)).held(alone=True):
        run(other, code=1)
    assert "another command writes to" in run.err
    assert (output / "run.json").read_bytes() == before
    run(other)
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize("place", ["here", pytest.param("gs", marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["embed", "tokenize"])
def test_one_is_refused_the_other_is_whole(
    tmp_path, tiny_bundle, monkeypatch, capsys, request, command, place
):
    """The second saw a free folder before the first claimed it."""
    output = tmp_path / "out"
    if place == "gs":
        request.getfixturevalue("gcs").client.create_bucket(f"claim-{command}")
        output = f"gs://claim-{command}/out"
    commands = []
    for name, length in (("a", 32), ("b", 16)):
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"the river {name} {n}\n" for n in range(20)))
        flags = flags_of(output, tiny_bundle, path, max_seq_length=length)
        commands.append([command, *flags])
    prepare, codes = OutputFolder.prepare, []

    def prepare_late(folder):
        monkeypatch.setattr(OutputFolder, "prepare", prepare)
        codes.append(main(commands[0]))
        prepare(folder)

    monkeypatch.setattr(OutputFolder, "prepare", prepare_late)
    codes.append(main(commands[1]))
    assert codes == [0, 2]
    assert "holds another run" in capsys.readouterr().err
    assert main(["verify", str(output)]) == 0
    if command == "tokenize":  # the settings of the examples are those of the run that wrote them
        vectors = flags_of(tmp_path / "vectors", tiny_bundle, f"{output}/examples")
        assert main(["embed", *vectors]) == 0
        assert record(tmp_path / "vectors")["vectors"]["max_seq_length"] == 32
