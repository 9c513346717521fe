"""Whatever happens to the files of an output, it is found, named, and can be repaired."""

import json
import os
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import (
    block_records,
    data_files,
    embed,
    files,
    flags_of,
    record,
    rejected,
    say_status,
    write_json,
)

LINES = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    path.write_text("".join(f"{n} the bank of the river\n" for n in range(LINES - 1)) + "\n")
    return path


SMALL = {"block_bytes": 300}


@pytest.fixture(scope="module")
def written(corpus, tiny_bundle, tmp_path_factory):
    """The output of a run, which no test changes."""
    output = tmp_path_factory.mktemp("written") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


@pytest.fixture
def output(tmp_path, written):
    return shutil.copytree(written, tmp_path / "out")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_rows(path):
    report = json.loads(path.read_text())
    report["files"][next(iter(report["files"]))]["rows"] += 1
    path.write_text(json.dumps(report))


def extra(path):
    path.with_name("part-0000900-00000.parquet").write_bytes(path.read_bytes())


FIRST = "embeddings/part-0000000-00000.parquet"
FAULTS = {
    "missing": (FIRST, os.remove, f"{FIRST}: missing"),
    "size": (FIRST, cut, f"{FIRST}: has "),
    "checksum": (FIRST, flip, f"{FIRST}: has crc32c "),
    "extra": (FIRST, extra, "embeddings/part-0000900-00000.parquet: no block record names it"),
    "rows": ("_state/blocks/0000000-00000.json", change_rows, f"{FIRST}: has "),
    "report": ("_state/blocks/0000001-00000.json", os.remove, "_state/blocks/0000001-00000.json"),
    "report damaged": ("_state/blocks/0000001-00000.json", halve, "0000001-00000.json: is damaged"),
}


def test_an_output_that_is_as_it_was_written_passes(output, capsys):
    assert len(block_records(output)) > 2
    assert main(["verify", str(output)]) == 0
    said = capsys.readouterr()
    assert "all as written" in said.out
    assert said.err == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_repaired(output, capsys, fault):
    whole = files(output)
    name, damage, said = FAULTS[fault]
    damage(output / name)
    assert main(["verify", str(output)]) == 1
    told = capsys.readouterr()
    assert said in told.out
    assert "--repair" in told.err
    assert main(["verify", str(output), "--repair"]) == 0
    assert files(output) == whole
    assert main(["verify", str(output)]) == 0


def test_counts_that_do_not_add_up_are_named(output, capsys):
    changed = record(output)
    changed["counts"]["embedded"] += 1
    (output / "run.json").write_text(json.dumps(changed))
    assert main(["verify", str(output)]) == 1
    said = f"run.json: counts {LINES} embedded, the block records {LINES - 1}"
    assert said in capsys.readouterr().out


def test_a_file_of_somebody_else_is_named_and_left_alone(output, capsys):
    (output / "embeddings" / "notes.parquet").write_bytes(b"mine")
    assert main(["verify", str(output), "--repair"]) == 1
    said = "embeddings/notes.parquet: does not belong there: no run wrote it, and it may be removed"
    assert said in capsys.readouterr().out
    assert (output / "embeddings" / "notes.parquet").read_bytes() == b"mine"


def test_a_changed_input_is_never_repaired_into_another_run(output, corpus, capsys):
    kept, times = corpus.read_text(), (corpus.stat().st_atime_ns, corpus.stat().st_mtime_ns)
    (output / FIRST).unlink()
    try:
        corpus.write_text(kept + "more\n")
        assert main(["verify", str(output), "--repair"]) == 2
        assert "cannot be repaired: its input" in capsys.readouterr().err
    finally:
        corpus.write_text(kept)
        os.utime(corpus, ns=times)
    assert len(data_files(output)) == len(block_records(output)) - 1


@pytest.mark.parametrize("fault", ["missing", "size", "checksum", "extra"])
def test_no_reader_takes_files_that_are_not_those_of_the_run(output, tiny_bundle, capsys, fault):
    name, damage, _ = FAULTS[fault]
    damage(output / name)
    with pytest.raises(ValueError, match="bert-embed verify"):
        bert_embed.read(output)
    assert main(["search", str(output), "river", f"--model={tiny_bundle}"]) == 2
    assert "bert-embed verify" in capsys.readouterr().err


def test_an_unfinished_run_is_read_only_on_request(output):
    say_status(output, "running")
    whole = len(bert_embed.read(output, partial=True)[0])
    assert whole == LINES - 1
    block_records(output)[1].unlink()
    with pytest.raises(
        ValueError, match=r"the run is not complete \(status running\).*partial=True"
    ):
        bert_embed.read(output)
    ids, vectors = bert_embed.read(output, partial=True)
    assert 0 < len(ids) == len(vectors) < whole


def test_a_run_that_is_running_has_no_problems(output, capsys):
    say_status(output, "running")
    block_records(output)[1].unlink()
    left = len(block_records(output))
    assert main(["verify", str(output)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"its run is running, or was killed; {left} parts finished so far: wait for" in said.err
    assert "repair" not in said.err
    assert main(["verify", str(output), "--repair"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (partial(Path.unlink, missing_ok=True), "missing"),
        (partial(os.truncate, length=9), "has 9 "),
    ],
    ids=["lost", "cut"],
)
def test_files_that_change_while_a_run_goes_on_fail_it(
    output, corpus, tiny_bundle, capsys, monkeypatch, change, problem
):
    """An earlier attempt wrote all but one part; a file of it changes while that one is written."""
    whole = files(output)
    say_status(output, "failed")
    block_records(output)[-1].unlink()
    straight = os.fsync

    def changing(descriptor):
        change(output / FIRST)
        straight(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", changing)
        assert embed(output, tiny_bundle, corpus, **SMALL) == 1
    assert f"{FIRST}: {problem}" in capsys.readouterr().err
    assert record(output)["status"] == "failed"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == whole


def test_what_a_dead_attempt_left_beside_its_part_is_removed(output, corpus, tiny_bundle):
    say_status(output, "failed")
    left = output / "rejected" / "part-0000000-00000.jsonl"
    left.parent.mkdir(exist_ok=True)
    left.write_text("{}\n")
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert not left.exists()
    assert len(rejected(output)) == 1
    assert main(["verify", str(output)]) == 0


def test_rejected_records_are_for_their_owner_only(output):
    (path,) = data_files(output, "rejected")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.fixture(scope="module")
def tokenized(corpus, tiny_bundle, tmp_path_factory):
    """The output of `tokenize`, which no test changes."""
    output = tmp_path_factory.mktemp("tokenized") / "out"
    assert main(["tokenize", *flags_of(output, tiny_bundle, corpus, **SMALL)]) == 0
    return output


def test_a_copy_of_examples_is_checked_and_repaired_in_its_own_place(tmp_path, tokenized, capsys):
    original = files(tokenized)
    copy = shutil.copytree(tokenized, tmp_path / "copy")
    damaged = data_files(copy, "examples")
    damaged[0].unlink()
    flip(damaged[1])
    assert main(["verify", str(copy)]) == 1
    told = capsys.readouterr().out
    assert "examples/part-0000000-00000.tfrecord: missing" in told
    assert "examples/part-0000001-00000.tfrecord: has crc32c" in told
    assert main(["verify", str(copy), "--repair"]) == 0
    assert files(copy) == files(tokenized) == original


def test_examples_that_were_moved_are_whole_in_the_new_place(
    tmp_path, tokenized, corpus, tiny_bundle, capsys
):
    copy = shutil.copytree(tokenized, tmp_path / "copy")
    moved = copy.rename(tmp_path / "moved")
    assert main(["verify", str(moved)]) == 0
    capsys.readouterr()
    assert main(["tokenize", *flags_of(moved, tiny_bundle, corpus, **SMALL)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_an_output_of_bytes_on_cloud_storage_is_verified_there(gcs, corpus, tiny_bundle, capsys):
    bucket = gcs.client.create_bucket("verify")
    assert embed("gs://verify/out", tiny_bundle, corpus, **SMALL) == 0
    assert main(["verify", "gs://verify/out"]) == 0
    blob = bucket.blob(f"out/{FIRST}")
    data = bytearray(blob.download_as_bytes())
    data[100] ^= 1
    blob.upload_from_string(bytes(data))
    assert main(["verify", "gs://verify/out"]) == 1
    assert f"gs://verify/out: {FIRST}: has crc32c" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is damaged"):
        bert_embed.read("gs://verify/out")


def test_what_is_no_output_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    no_run, no_folder = "is not the output of a run", "is a file; give the output folder of a run"
    for command, place, told in (
        ("verify", "", no_run),
        ("verify", "file", no_folder),
    ):
        assert main([command, str(tmp_path / place)]) == 2
        assert told in capsys.readouterr().err


def test_an_increment_is_repaired_against_the_runs_of_its_day(corpus, tiny_bundle, tmp_path):
    runs = tmp_path / "runs"
    for day, lines in enumerate((10, 20, 30)):
        path = tmp_path / f"in{day}.jsonl"
        rows = [{"id": n, "text": f"text {n}"} for n in range(lines)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        earlier = {"skip_existing": runs} if day else {}
        assert embed(runs / f"day{day}", tiny_bundle, path, **earlier) == 0
    (file,) = (runs / "day1" / "embeddings").glob("part-*")
    kept = file.read_bytes()
    file.unlink()
    assert main(["verify", str(runs / "day1"), "--repair"]) == 0
    assert file.read_bytes() == kept


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Path.unlink, "deleted: holds 0 files of 0 bytes and 0 rows, the run wrote 1 file of "),
        (flip, "deleted/part-0000000-00000.parquet: is damaged"),
    ],
)
def test_a_fault_of_deleted_ids_is_one_problem(tmp_path, tiny_bundle, capsys, fault, said):
    source = write_json(tmp_path / "in.jsonl", *({"id": n, "text": "a bank"} for n in range(9)))
    assert embed(tmp_path / "1", tiny_bundle, source) == 0
    write_json(tmp_path / "fewer.jsonl", *({"id": n, "text": "a bank"} for n in range(8)))
    earlier = {"skip_existing": tmp_path / "1"}
    assert embed(tmp_path / "2", tiny_bundle, tmp_path / "fewer.jsonl", **earlier) == 0
    (file,) = (tmp_path / "2" / "deleted").iterdir()
    kept = file.read_bytes()
    fault(file)
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "2")]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1
    assert said in shown.out
    assert "error: 1 problem in" in shown.err
    assert main(["verify", str(tmp_path / "2"), "--repair"]) == 0
    assert file.read_bytes() == kept
