"""The account: what was lost or doubled is found, what is finished stays, one holds the output."""

import builtins
import dataclasses
import os

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from bert_embed.results.run_record import read_record
from bert_embed.storage.local import FileInfo
from bert_embed.transforms import ledger
from bert_embed.transforms.ledger import (
    BlockRecord,
    ReconcileError,
    Totals,
    begun_blocks,
    block_record,
    block_record_bytes,
    finished_blocks,
    finished_parts,
    most_allowed,
    read_block_record,
    verdict,
)
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.output_folder import OutputFile, OutputFolder, lock_held
from bert_embed.transforms.parts import (
    BlockSpec,
    CutPart,
    PlannedWork,
    ReadPart,
    Slice,
    plan_blocks,
)
from bert_embed.transforms.plan import planned_work
from bert_embed.transforms.reconcile import finish, reconcile
from tests.support.blocks import read_blocks
from tests.support.outputs import finished_run

PLANNED = PlannedWork(3, (30, None), ("/in/a.txt", "/in/b.gz"))
BLOCK_RECORDS = [
    BlockRecord(0, 0, False, 2, {0: 7}, None, embedded=2),
    BlockRecord(0, 1, True, 1, {0: 8}, None, embedded=1),
    BlockRecord(1, 0, True, 2, {0: 15}, None, embedded=1, rejected={"empty text": 1}),
    BlockRecord(2, 0, False, 4, {}, None, embedded=4),
    BlockRecord(2, 1, True, 0, {}, 4),
]


def without(number):
    return BLOCK_RECORDS[:number] + BLOCK_RECORDS[number + 1 :]


def changed(number, **values):
    made = dataclasses.replace(BLOCK_RECORDS[number], **values)
    return [*BLOCK_RECORDS[:number], made, *BLOCK_RECORDS[number + 1 :]]


def judged(block_records, planned=PLANNED):
    totals = Totals()
    for record in block_records:
        bundle = Totals()
        bundle.add(record)
        totals.add(bundle)
    return verdict(planned, totals)


def test_a_complete_run_has_no_problem():
    found = judged(BLOCK_RECORDS)
    assert found.problems == ()
    assert found.totals.counts["records"] == 9
    assert found.totals.counts["embedded"] == 8
    assert found.totals.rejected == {"empty text": 1}


@pytest.mark.parametrize(
    ("block_records", "message"),
    [
        (BLOCK_RECORDS[1:], "block 0000000 has parts missing or doubled"),
        (without(1), "2 blocks reported their last part, 3 were planned"),
        ([*BLOCK_RECORDS, BLOCK_RECORDS[2]], "block 0000001 has parts missing or doubled"),
        (without(2), "1 of 3 planned blocks have no block record"),
        (without(2), "/in/a.txt: its blocks covered 15 bytes of 30"),
        (without(4), "2 blocks reported their last part, 3 were planned"),
        (changed(4, end_of_file=5), "block 0000002: 4 records in its parts, its file has 5"),
        (changed(0, covered={0: 6}), "/in/a.txt: its blocks covered 29 bytes of 30"),
    ],
    ids=["part", "last", "twice", "block", "bytes", "no-end", "records", "line"],
)
def test_what_does_not_add_up_is_named(block_records, message):
    assert message in judged(block_records).problems


def test_a_part_that_loses_a_record_cannot_be_reported():
    with pytest.raises(ReconcileError, match="part 0000004-00000: 3 records read, but 2 embedded"):
        BlockRecord(4, 0, True, 3, {0: 9}, None, embedded=2)


def test_many_problems_of_a_kind_are_counted():
    planned = PlannedWork(0, (1,) * 20, tuple(f"/in/{n}" for n in range(20)))
    problems = judged([], planned).problems
    assert len(problems) == 6
    assert problems[-1] == "and 15 further files"


def test_a_share_is_exact():
    assert most_allowed("28.99%", 100) < most_allowed("29%", 100) == most_allowed("29", 100) == 29


def test_a_run_that_an_equal_job_finished_stays_done(tmp_path):
    output = finished_run(tmp_path / "out", [1])
    before = (output / "run.json").read_bytes()
    assert finish(str(output), read_record(str(output)), judged(without(2)), 0.0).is_done
    assert (output / "run.json").read_bytes() == before


def test_a_block_that_the_runner_lost_fails_the_account(tmp_path):
    """A planted fault: the graph with one BlockSpec dropped behind the plan."""
    (tmp_path / "in.txt").write_text("line\n" * 100)
    files = list_input([str(tmp_path / "in.txt")]).files
    specs = list(plan_blocks(files, 100))
    kept = [spec for spec in specs if spec.number != 2]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        planned = pipeline | "Planned" >> beam.Create([planned_work(files, specs)])
        kept = pipeline | beam.Create(kept).with_output_types(BlockSpec)
        documents, _ = read_blocks(kept, tmp_path / "out", 1000, 100)
        judged_run = reconcile([documents | beam.Map(_as_if_embedded)], planned)
        wanted = [
            "1 of 5 planned blocks have no block record",
            "4 blocks reported their last part, 5 were planned",
            f"{tmp_path}/in.txt: its blocks covered 400 bytes of 500",
        ]
        assert_that(judged_run | beam.FlatMap(lambda found: found.problems), equal_to(wanted))


def _as_if_embedded(block):
    documents = len(block)
    return block_record(block.part, np.ones(documents, int), np.zeros(documents, bool), {})


def test_block_records_come_back_from_their_files(tmp_path):
    folder = OutputFolder(str(tmp_path))
    record = dataclasses.replace(
        BLOCK_RECORDS[2],
        seconds={"read": 0.5},
        length_bins=[1],
        files={"rejected/part-0000001-00000.jsonl": OutputFile(3, "AAAAAA==", 1)},
    )
    folder.write_block_record(1, 0, block_record_bytes(record, "run"))
    assert read_block_record(folder, 1, 0, "run") == dataclasses.replace(record, reused=True)
    assert read_block_record(folder, 1, 0, "another run") is None
    assert read_block_record(folder, 2, 0, "run") is None


def test_parts_that_were_finished_meanwhile_are_found(tmp_path):
    """A bundle that is retried looks for what the attempt before wrote."""
    folder = OutputFolder(str(tmp_path))
    for number, last in [(0, False), (1, False), (3, False), (4, True)]:
        record = BlockRecord(0, number, last, 0, {}, 0 if last else None)
        folder.write_block_record(0, number, block_record_bytes(record, "run"))
    spec = BlockSpec(0, "text", (), "gzip", read_through=True)
    assert sorted(finished_parts(folder, "run", spec)) == [0, 1]
    planned = dataclasses.replace(spec, done=(0, 2, 3))
    assert sorted(finished_parts(folder, "run", planned)) == [1, 4]
    cut = dataclasses.replace(spec, cut=CutPart(ReadPart(3, (), False), 0))
    assert sorted(finished_parts(folder, "run", cut)) == [3]


RUN = "a" * 32


def finished(folder, blocks):
    """A folder with the block records of so many blocks, which have no further files."""
    output = OutputFolder(str(folder))
    for number in range(blocks):
        record = BlockRecord(number, 0, True, 0, {0: 10}, None)
        output.write_block_record(number, 0, block_record_bytes(record, RUN))
    return output


def specs(count):
    return [BlockSpec(number, "text", ()) for number in range(count)]


def test_only_whole_blocks_of_this_run_are_finished(tmp_path):
    output = finished(tmp_path, 6)
    other = block_record_bytes(BlockRecord(3, 0, True, 0, {}, None), "b" * 32)
    started = block_record_bytes(BlockRecord(4, 0, False, 0, {}, None), RUN)
    for number, data in ((2, b"{"), (3, other), (4, started)):
        output.write_block_record(number, 0, data)
    *fresh, begun = begun_blocks(output, specs(8))
    assert [spec.number for spec in fresh] == [6, 7]
    found = {spec.number: spec for spec, _ in finished_blocks(output, RUN, begun)}
    assert [number for number, spec in found.items() if spec.complete] == [0, 1, 5]
    assert {number: spec.done for number, spec in found.items()} == {
        **dict.fromkeys((0, 1, 4, 5), (0,)),
        **dict.fromkeys((2, 3), ()),
    }


def test_many_begun_blocks_are_spread_over_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "_MOST_SLICES", 10)  # a thousand are
    output = finished(tmp_path, 25)
    piece = Slice(0, FileInfo("/in/a.txt", 1, 0.0), 0, 1)
    planned = [dataclasses.replace(spec, slices=(piece,)) for spec in specs(25)]
    begun = list(begun_blocks(output, planned))
    assert [len(some.specs) for some in begun] == [10, 10, 5]
    found = [spec for some in begun for spec, _ in finished_blocks(output, RUN, some)]
    assert [spec.number for spec in found] == list(range(25))
    assert all(spec.complete for spec in found)


def test_one_alone_keeps_others_out(tmp_path):
    path = str(tmp_path / "state" / "lock")
    with lock_held(path, alone=True) as first, lock_held(path, alone=False) as second:
        assert (first, second, os.path.exists(path)) == (True, False, True)
    with lock_held(path, alone=False) as first, lock_held(path, alone=False) as second:
        assert (first, second) == (True, True)
    assert not os.path.exists(path)


def test_a_file_that_the_last_holder_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    path, opened, removed = str(tmp_path / "lock"), builtins.open, []

    def opened_too_early(place, *mode):
        file = opened(place, *mode)
        if place == path and not removed:
            removed.append(os.remove(place))
        return file

    monkeypatch.setattr(builtins, "open", opened_too_early)
    with lock_held(path, alone=True) as first, lock_held(path, alone=True) as second:
        assert (first, second) == (True, False)
