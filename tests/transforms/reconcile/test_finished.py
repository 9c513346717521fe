"""Finished blocks: what an earlier attempt left is found by one listing, wherever it is read."""

import apache_beam as beam
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.plan.listing import input_files, listing_digest
from bert_embed.transforms.plan.plan import PlanBlocks, PlanRequest
from bert_embed.transforms.records.finished import complete_readers
from bert_embed.transforms.records.report import BlockReport, report_bytes
from bert_embed.transforms.records.spec import BlockSpec

RUN = "a" * 32


def finished(folder, blocks):
    """A folder with the reports of so many blocks, which have no further files."""
    (folder / "_state" / "blocks").mkdir(parents=True)
    for number in range(blocks):
        report = BlockReport(number, 0, True, 0, {0: 10}, None)
        path = folder / "_state" / "blocks" / f"{number:07d}-00000.json"
        path.write_bytes(report_bytes(report, RUN))
    return OutputFolder(str(folder))


def specs(count):
    return [BlockSpec(number, "text", ()) for number in range(count)]


def test_only_whole_blocks_of_this_run_are_finished(tmp_path):
    output = finished(tmp_path, 6)
    (tmp_path / "_state" / "blocks" / "0000002-00000.json").write_bytes(b"{")
    other = report_bytes(BlockReport(3, 0, True, 0, {}, None), "b" * 32)
    (tmp_path / "_state" / "blocks" / "0000003-00000.json").write_bytes(other)
    started = report_bytes(BlockReport(4, 0, False, 0, {}, None), RUN)
    (tmp_path / "_state" / "blocks" / "0000004-00000.json").write_bytes(started)
    found = list(complete_readers(output, RUN, iter(specs(8))))
    assert [spec.number for spec, _ in found] == list(range(8))
    assert [spec.number for spec, reports in found if reports] == [0, 1, 5]


@pytest.mark.parametrize("blocks", [20, 21])
def test_very_many_reports_are_left_to_those_who_have_the_blocks(tmp_path, monkeypatch, blocks):
    """One worker would read them all while the others wait."""
    monkeypatch.setattr("bert_embed.transforms.records.finished.MOST_READ_HERE", 20)
    output = finished(tmp_path, blocks)
    found = [bool(reports) for _, reports in complete_readers(output, RUN, specs(blocks))]
    assert found == [blocks == 20] * blocks


@pytest.mark.slow
def test_a_part_whose_examples_lie_in_another_folder_is_finished(tmp_path):
    """Else every rerun with --tfrecord_output would hand all blocks to the workers again."""
    output, kept = tmp_path / "out", str(tmp_path / "kept")
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    files = input_files([str(source)])
    request = PlanRequest(
        (str(source),), None, 1 << 20, None, listing_digest(files), output=str(output)
    )
    folder = OutputFolder(str(output), kept)
    written = folder.write("examples", 0, 0, ".tfrecord", lambda file: file.write(b"data"), 2)
    report = BlockReport(0, 0, True, 2, {0: 8}, None, embedded=2, files=written)
    folder.write_report(0, 0, report_bytes(report, RUN))
    assert (tmp_path / "kept" / "examples" / "part-0000000-00000.tfrecord").exists()
    for examples, count in ((kept, 1), (None, 0)):
        with TestPipeline(runner="FnApiRunner") as pipeline:
            plan = pipeline | PlanBlocks(request, RUN, examples)
            found = plan["finished"] | beam.combiners.Count.Globally()
            assert_that(found, equal_to([count]))
