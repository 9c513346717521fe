"""Whatever happens to the files of an output, or to its record, is found, named and repaired.

A power cut leaves records empty or cut; those of other programs stay as they are.
"""

import json
import os
import re
import shutil
import stat
from functools import reduce
from operator import getitem

import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.results.run_record import read_record
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import (
    block_records,
    data_files,
    files,
    flags_of,
    flip,
    record,
    rejected,
    rows,
    say_status,
)
from tests.support.golden import GOLDEN, RUNS
from tests.support.outputs import contents, whole_record


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


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
    "report damaged": ("_state/blocks/0000001-00000.json", cut, "0000001-00000.json: is damaged"),
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


SETTINGS = SMALL | {"report": "false"}
# What a power cut leaves of a record
TORN = {
    "empty": lambda data: b"",
    "NULs": lambda data: bytes(len(data)),
    "cut": lambda data: data[: len(data) // 2],
    "cut and NULs": lambda data: data[: len(data) // 2] + bytes(99),
    "whole and NULs": lambda data: data + bytes(99),
}
OTHERS = {
    "newer": b'{"format": 99, "run": "1", "status": "done"}',
    "damaged": b'{"format": 2, "run": "1", "status": "done"}',
    "of another program": b'{"name": "mine"}',
    "no JSON": b"\x00\x01 runs",
}


def leave(output, torn):
    """Makes run.json what a power cut leaves; None: nothing."""
    path = output / "run.json"
    if torn is None:
        path.unlink()
    else:
        path.write_bytes(TORN[torn](path.read_bytes()))


@pytest.mark.parametrize("torn", [*TORN, None])
def test_the_same_command_continues_whatever_run_json_holds(output, corpus, run, whole, torn):
    (output / "_state" / "blocks" / "0000001-00000.json").unlink()
    leave(output, torn)
    before = contents(output)
    run(corpus, **SETTINGS, dry_run=True)
    assert "unfinished attempt of this run, which would be continued" in run.out
    if torn in ("empty", "cut"):
        told = "holds embeddings/part-0000000-00000.parquet but an empty or cut run.json"
        run.refused(corpus, told, **SETTINGS, dim=8)
    assert contents(output) == before
    run(corpus, **SETTINGS)
    assert files(output) == files(whole)
    counts = record(output)["counts"]
    assert counts["parts_reused"] == counts["parts"] - 1 > 0


@pytest.mark.parametrize("left", ["one part", "no part"])
def test_it_continues_before_a_part_was_finished(output, corpus, run, whole, left):
    """The listing tells of which input files are that no block record names."""
    for path in (output / "_state" / "blocks").iterdir():
        path.unlink()
    if left == "no part":
        shutil.rmtree(output / "embeddings")
    leave(output, "empty")
    if left == "one part":
        before = contents(output)
        run({"other.jsonl": [{"id": "a", "text": "the moon"}]}, code=2, **SETTINGS)
        assert contents(output) == before
    run(corpus, **SETTINGS)
    assert files(output) == files(whole)


# What readers say of a folder with such a record; never to remove it
LOST = "{0}/run.json is empty or cut, as a power cut leaves files: run its command again"
NEWER = "{0} was written by a newer version of bert-embed (format 99, this one reads 2): update "
THEIRS = "{0} is not the output of `embed`: {0}/run.json is not the record of one"
TOLD = {
    **{torn: (TORN[torn], LOST) for torn in ("empty", "NULs", "cut")},
    "newer": (lambda data: OTHERS["newer"], f"{NEWER}bert-embed"),
    "of another program": (lambda data: OTHERS["of another program"], THEIRS),
    "a list": (lambda data: b"[1]", "{0}/run.json is damaged: it is not a JSON object"),
}


@pytest.mark.parametrize(("left", "told"), TOLD.values(), ids=TOLD)
def test_readers_say_what_a_folder_is(output, tmp_path, command, left, told):
    path, said = output / "run.json", told.format(output)
    path.write_bytes(left(path.read_bytes()))
    export = ["export", tmp_path / "npy", "--to=npy"]
    for name, *words in (["verify"], ["verify", "--repair"], ["search", "a"], ["report"], export):
        assert command(name, output, *words, code=2).err == f"error: {said}\n", name
    with pytest.raises(InputError, match=re.escape(said)):
        bert_embed.read(output)


def test_an_input_folder_is_read_without_such_an_output(output, corpus, run, tmp_path):
    leave(output, "empty")
    shutil.copy(corpus, tmp_path)
    assert record(run(tmp_path, "new", **SETTINGS))["counts"]["records"] == LINES


def test_such_an_output_is_overwritten_on_request_alone(output, corpus, run):
    (output / "mine.txt").write_text("keep")
    for content in (TORN["cut"]((output / "run.json").read_bytes()), *OTHERS.values()):
        (output / "run.json").write_bytes(content)
        run.refused(corpus, "choose another folder", **SETTINGS, dim=3)
        assert (output / "run.json").read_bytes() == content
        run(corpus, **SETTINGS, dim=8, overwrite=True)
        assert len(rows(output)["embedding"][0]) == 8
        assert main(["verify", str(output)]) == 0
    assert (output / "mine.txt").read_text() == "keep"


def test_the_folder_of_another_program_stays_as_it_is(tmp_path, corpus, run):
    theirs = tmp_path / "theirs"
    for name in ("of another program", "no JSON"):
        run.written({"theirs/run.json": OTHERS[name], "theirs/logs/a.txt": "theirs"})
        before = contents(theirs)
        run.refused(corpus, "choose another folder", "theirs", **SETTINGS, overwrite=True)
        assert contents(theirs) == before


@pytest.mark.parametrize("left", ["empty", "NULs"])
def test_a_block_record_that_is_lost_is_written_again(output, corpus, run, whole, left):
    path = output / "_state" / "blocks" / "0000001-00000.json"
    path.write_bytes(TORN[left](path.read_bytes()))
    if left == "NULs":  # which nobody reads of a run that is complete
        leave(output, "empty")
    run(corpus, **SETTINGS)
    assert files(output) == files(whole)
    assert main(["verify", str(output)]) == 0


def test_an_export_whose_journal_is_lost_is_written_again(whole, tmp_path, command):
    words = ["export", whole, tmp_path / "npy", "--to=npy"]
    command(*words)
    expected = contents(tmp_path / "npy")
    for torn in TORN.values():
        journal = tmp_path / "npy" / "export.json"
        journal.write_bytes(torn(journal.read_bytes()))
        (tmp_path / "npy" / "emb_0000.npy").write_bytes(b"of another export")
        command(*words)
        assert contents(tmp_path / "npy") == expected
    journal.write_bytes(b'{"name": "mine"}')
    assert "holds another export, as " in command(*words, code=2).err


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        ("counts.embedded", ..., "it has no counts.embedded"),
        ("vectors", ..., "it must have vectors or examples"),
        ("vectors.granularity", ["a", 1], "vectors.granularity[1] must be a text, got 1"),
        ("written.embeddings", {"files": 1, "bytes": 1}, "it has no written.embeddings.rows"),
        ("plan.blocks", "3", 'plan.blocks must be a whole number, got "3"'),
        ("plan.blocks", True, "plan.blocks must be a whole number, got true"),
        ("input.patterns", "x" * 99, f'input.patterns must be a list, got "{"x" * 39}…'),
        (
            "status",
            "well",
            "status must be planned or running or done or refused or failed or interrupted, "
            'got "well"',
        ),
    ],
)
def test_a_damaged_record_is_named_with_its_key(tmp_path, keys, value, told):
    record = whole_record({})
    *above, last = keys.split(".")
    place = reduce(getitem, above, record)
    place[last] = value
    if value is ...:
        del place[last]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/run.json is damaged: {told}")):
        bert_embed.read(tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_read_is_written_again_word_for_word(name):
    record = read_record(str(GOLDEN / name))
    assert json.loads(record.to_json()) == json.loads((GOLDEN / name / "run.json").read_text())
