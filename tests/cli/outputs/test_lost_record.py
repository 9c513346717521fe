"""What commands do with a record that a power cut left empty or cut, or that is no run's."""

import json
import re
import shutil
from functools import reduce
from operator import getitem

import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.results.run_record import read_record
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import files, record, rows
from tests.support.golden import GOLDEN, RUNS
from tests.support.outputs import contents, whole_record

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
def test_the_same_command_continues(output, corpus, run, whole, torn):
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
def test_before_a_part_was_finished(output, corpus, run, whole, left):
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


def test_it_is_overwritten_by_another_command_on_request_alone(output, corpus, run):
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
