"""Finished blocks: what an earlier attempt left is found by one listing, wherever it is read."""

import pytest

from transforms.accounting import BlockReport, report_bytes
from transforms.block_spec import BlockSpec
from transforms.finished import complete_readers

RUN = "a" * 32


def finished(folder, blocks):
    """A folder with the reports of so many blocks, which have no further files."""
    (folder / "blocks").mkdir()
    for number in range(blocks):
        report = BlockReport(number, 0, True, 0, {0: 10}, None)
        path = folder / "blocks" / f"{number:07d}-00000.json"
        path.write_bytes(report_bytes(report, RUN))
    return str(folder)


def specs(count):
    return [BlockSpec(number, "text", ()) for number in range(count)]


def test_only_whole_blocks_of_this_run_are_finished(tmp_path):
    output = finished(tmp_path, 6)
    (tmp_path / "blocks" / "0000002-00000.json").write_bytes(b"{")
    other = report_bytes(BlockReport(3, 0, True, 0, {}, None), "b" * 32)
    (tmp_path / "blocks" / "0000003-00000.json").write_bytes(other)
    started = report_bytes(BlockReport(4, 0, False, 0, {}, None), RUN)
    (tmp_path / "blocks" / "0000004-00000.json").write_bytes(started)
    found = list(complete_readers(output, RUN, iter(specs(8))))
    assert [spec.number for spec, _ in found] == list(range(8))
    assert [spec.number for spec, reports in found if reports] == [0, 1, 5]


@pytest.mark.parametrize("blocks", [20_000, 20_001])
def test_very_many_reports_are_left_to_those_who_have_the_blocks(tmp_path, blocks):
    """One worker would read them all while the others wait."""
    output = finished(tmp_path, blocks)
    found = [bool(reports) for _, reports in complete_readers(output, RUN, specs(blocks))]
    assert found == [blocks == 20_000] * blocks
