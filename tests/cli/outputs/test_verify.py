"""Whatever happens to the files of an output, it is found, named, and can be repaired."""

import json
import os
import shutil
import stat

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import (
    block_records,
    data_files,
    files,
    flags_of,
    flip,
    record,
    rejected,
    say_status,
)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def change_rows(path):
    report = json.loads(path.read_text())
    report["files"][next(iter(report["files"]))]["rows"] += 1
    path.write_text(json.dumps(report))


def extra(path):
    path.with_name("part-0000900-00000.parquet").write_bytes(path.read_bytes())


FIRST = "embeddings/part-0000000-00000.parquet"
FAULTS = {
    "missing": (FIRST, os.remove, f"{FIRST}: missing"),
    "size": (FIRST, cut, " bytes, "),
    "checksum": (FIRST, flip, f"{FIRST}: has crc32c "),
    "extra": (FIRST, extra, "embeddings/part-0000900-00000.parquet: no block record names it"),
    "rows": ("_state/blocks/0000000-00000.json", change_rows, f"{FIRST}: has "),
    "report": ("_state/blocks/0000001-00000.json", os.remove, "_state/blocks/0000001-00000.json"),
    "report damaged": ("_state/blocks/0000001-00000.json", halve, "0000001-00000.json: is damaged"),
}


@pytest.fixture
def verify(command):
    """Verifies an output with these flags; what it says."""
    return lambda *words, code=0: "".join(command("verify", *words, code=code))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_repaired_and_no_reader_takes_such_files(output, verify, fault):
    whole = files(output)
    assert len(block_records(output)) > 2
    assert "all as written" in verify(output)
    name, damage, said = FAULTS[fault]
    damage(output / name)
    told = verify(output, code=1)
    assert said in told
    assert "--repair" in told
    if name == FIRST:
        with pytest.raises(ValueError, match="bert-embed verify"):
            bert_embed.read(output)
        assert main(["search", str(output), "river"]) == 2
    verify(output, "--repair")
    assert files(output) == whole
    verify(output)


def test_a_file_of_somebody_else_and_wrong_counts_are_named(output, verify):
    (output / "embeddings" / ".DS_Store").touch()  # as Finder leaves it where it looks
    verify(output)
    (output / "embeddings" / "notes.parquet").write_bytes(b"mine")
    said = "embeddings/notes.parquet: does not belong there: no run wrote it, and it may be removed"
    assert said in verify(output, "--repair", code=1)
    assert (output / "embeddings" / "notes.parquet").read_bytes() == b"mine"
    changed = record(output)
    changed["counts"]["embedded"] += 1
    (output / "run.json").write_text(json.dumps(changed))
    said = f"run.json: counts {LINES} embedded, the block records {LINES - 1}"
    assert said in verify(output, code=1)


def test_a_changed_input_is_never_repaired_into_another_run(output, corpus, verify):
    kept, times = corpus.read_text(), (corpus.stat().st_atime_ns, corpus.stat().st_mtime_ns)
    (output / FIRST).unlink()
    try:
        corpus.write_text(kept + "more\n")
        assert "cannot be repaired: its input" in verify(output, "--repair", code=2)
    finally:
        corpus.write_text(kept)
        os.utime(corpus, ns=times)
    assert len(data_files(output)) == len(block_records(output)) - 1


def test_an_unfinished_run_has_no_problems_and_is_read_only_on_request(output, verify):
    say_status(output, "running")
    assert len(bert_embed.read(output, partial=True)[0]) == LINES - 1
    block_records(output)[1].unlink()
    unfinished = r"the run is not complete \(status running\).*partial=True"
    with pytest.raises(ValueError, match=unfinished):
        bert_embed.read(output)
    ids, vectors = bert_embed.read(output, partial=True)
    assert 0 < len(ids) == len(vectors) < LINES - 1
    left = len(block_records(output))
    said = verify(output, code=1)
    unfinished = f"its run is running, or was killed; {left} parts finished so far: wait for"
    assert unfinished in said.splitlines()[0]
    assert "repair" not in said
    verify(output, "--repair")


@pytest.mark.slow
def test_files_that_change_while_a_run_goes_on_fail_it(output, corpus, run, monkeypatch):
    """An earlier attempt wrote all but one part; a file of it is cut while that one is written."""
    whole = files(output)
    say_status(output, "failed")
    block_records(output)[-1].unlink()
    straight = os.fsync

    def cutting(descriptor):
        os.truncate(output / FIRST, 9)
        straight(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", cutting)
        run(corpus, code=1, **SMALL)
    assert f"{FIRST}: has 9 " in run.err
    assert record(output)["status"] == "failed"
    run(corpus, **SMALL)
    assert files(output) == whole


def test_what_a_dead_attempt_left_beside_its_part_is_removed(output, corpus, run, verify):
    say_status(output, "failed")
    left = output / "rejected" / "part-0000000-00000.jsonl"
    left.parent.mkdir(exist_ok=True)
    left.write_text("{}\n")
    run(corpus, **SMALL)
    assert not left.exists()
    assert len(rejected(output)) == 1
    (path,) = data_files(output, "rejected")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # for its owner only
    verify(output)


def test_a_copy_of_examples_is_repaired_in_its_place(tmp_path, corpus, tiny_bundle, verify, capsys):
    output, copy = tmp_path / "out", tmp_path / "copy"
    assert main(["tokenize", *flags_of(output, tiny_bundle, corpus, **SMALL)]) == 0
    original = files(output)
    damaged = data_files(shutil.copytree(output, copy), "examples")
    damaged[0].unlink()
    flip(damaged[1])
    told = verify(copy, code=1)
    assert "examples/part-0000000-00000.tfrecord: missing" in told
    assert "examples/part-0000001-00000.tfrecord: has crc32c" in told
    verify(copy, "--repair")
    assert files(copy) == files(output) == original
    moved = copy.rename(tmp_path / "moved")
    verify(moved)
    assert main(["tokenize", *flags_of(moved, tiny_bundle, corpus, **SMALL)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_an_increment_is_repaired_against_the_runs_of_its_day(tmp_path, run, verify):
    for day, lines in enumerate((10, 20, 30)):
        earlier = {"skip_existing": tmp_path / "runs"} if day else {}
        texts = [{"id": n, "text": f"text {n}"} for n in range(lines)]
        run({f"in{day}.jsonl": texts}, f"runs/day{day}", **earlier)
    for runs in (tmp_path / "runs", tmp_path / "moved"):
        (tmp_path / "runs").rename(runs)
        (file,) = (runs / "day1" / "embeddings").glob("part-*")
        kept = file.read_bytes()
        file.unlink()
        verify(runs / "day1", "--repair")
        assert file.read_bytes() == kept
