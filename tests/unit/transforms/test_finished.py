"""Finished blocks: what an earlier attempt left is found by one listing, wherever it is read."""

import dataclasses

from bert_embed.storage.local import FileInfo
from bert_embed.transforms import ledger
from bert_embed.transforms.ledger import (
    BlockRecord,
    begun_blocks,
    block_record_bytes,
    finished_blocks,
)
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BlockSpec, Slice

RUN = "a" * 32


def finished(folder, blocks):
    """A folder with the block records of so many blocks, which have no further files."""
    (folder / "_state" / "blocks").mkdir(parents=True)
    for number in range(blocks):
        record = BlockRecord(number, 0, True, 0, {0: 10}, None)
        path = folder / "_state" / "blocks" / f"{number:07d}-00000.json"
        path.write_bytes(block_record_bytes(record, RUN))
    return OutputFolder(str(folder))


def specs(count):
    return [BlockSpec(number, "text", ()) for number in range(count)]


def test_only_whole_blocks_of_this_run_are_finished(tmp_path):
    output = finished(tmp_path, 6)
    (tmp_path / "_state" / "blocks" / "0000002-00000.json").write_bytes(b"{")
    other = block_record_bytes(BlockRecord(3, 0, True, 0, {}, None), "b" * 32)
    (tmp_path / "_state" / "blocks" / "0000003-00000.json").write_bytes(other)
    started = block_record_bytes(BlockRecord(4, 0, False, 0, {}, None), RUN)
    (tmp_path / "_state" / "blocks" / "0000004-00000.json").write_bytes(started)
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
