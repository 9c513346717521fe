"""Files read through: each document says in which line it stood, however the input is cut."""

import bz2
import dataclasses
import gzip
import json

import apache_beam as beam
import numpy as np
import pytest
import zstandard
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.transforms.plan.cut import plan_blocks
from bert_embed.transforms.plan.listing import input_files, limit_files, listing_digest
from bert_embed.transforms.plan.plan import PlanBlocks, PlanRequest, planned_work
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from bert_embed.transforms.read.steps import CutFiles, ReadBlocks
from bert_embed.transforms.reconcile.verdict import ReconcileBlocks
from bert_embed.transforms.records.report import BlockReport, part_report

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}


def read(files, block_bytes, part_docs, columns=None):
    """All blocks of a plan that numbers lines, sorted by their names."""
    specs = plan_blocks(files, block_bytes, read_through=True)
    found = [
        block
        for spec in specs
        for block in document_blocks(spec, columns or Columns(), part_docs, block_bytes, {})
    ]
    return sorted(found, key=lambda block: block.part.name)


def numbered(blocks):
    """File, line number and text of each document."""
    return [
        (place.rsplit(":", 1)[0], number, text)
        for block in blocks
        for place, number, text in zip(
            block.sources.to_pylist(), block.line_numbers.tolist(), block.texts, strict=True
        )
    ]


def enumerated(path, content):
    """File, line number and text of each line that is not blank."""
    return [
        (path, number, line)
        for number, line in enumerate(content.split("\n"))
        if line and not line.isspace()
    ]


@settings(max_examples=150)
@given(
    contents=st.lists(
        st.tuples(st.text("aé \n", max_size=120), st.sampled_from(sorted(COMPRESS))),
        min_size=1,
        max_size=4,
    ),
    block_bytes=st.integers(1, 60),
    part_docs=st.integers(1, 9),
)
def test_line_numbers_are_those_of_a_plain_enumeration(
    tmp_path_factory, contents, block_bytes, part_docs
):
    folder = tmp_path_factory.mktemp("numbered")
    expected = []
    for n, (content, suffix) in enumerate(contents):
        path = folder / f"{n}.txt{suffix}"
        path.write_bytes(COMPRESS[suffix](content.encode()))
        expected += enumerated(str(path), content)
    blocks = read(input_files([str(folder)]), block_bytes, part_docs)
    assert numbered(blocks) == expected
    assert all(block.line_numbers.dtype == "int64" for block in blocks)
    assert all(block.part.records <= part_docs for block in blocks)


@settings(max_examples=60)
@given(
    content=st.text("a \n", max_size=60),
    limit=st.integers(1, 30),
    block_bytes=st.integers(1, 30),
)
def test_a_limit_keeps_the_first_lines(tmp_path_factory, content, limit, block_bytes):
    folder = tmp_path_factory.mktemp("limit")
    (folder / "a.txt").write_text(content)
    (folder / "b.txt.gz").write_bytes(gzip.compress(content.encode()))
    lines = content.split("\n")[: content.count("\n") + (content[-1:] not in ("", "\n"))]
    kept = min(limit, len(lines))
    expected = enumerated(f"{folder}/a.txt", "\n".join(lines[:kept]))
    expected += enumerated(f"{folder}/b.txt.gz", "\n".join(lines[: limit - kept]))
    files = limit_files(input_files([str(folder)]), limit)
    assert numbered(read(files, block_bytes, 4)) == expected


def test_rejected_records_of_json_lines_count_as_lines(tmp_path):
    lines = ['{"text": "a"}', "", "no JSON", '{"text": ""}', '{"text": ["b", "c"]}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    for block_bytes in (10, 1 << 20):
        blocks = read(input_files([str(tmp_path)]), block_bytes, 2)
        assert numbered(blocks) == [
            (f"{tmp_path}/in.jsonl", 0, "a"),
            (f"{tmp_path}/in.jsonl", 4, "b c"),
        ]


def test_small_files_share_a_block_and_a_large_one_has_readers(tmp_path):
    """The small ones keep their bytes as witness; the large one has its count of records."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three\n")
    (tmp_path / "c.txt").write_text("four four four\n" * 9)
    files = input_files([str(tmp_path)])
    specs = list(plan_blocks(files, 64, read_through=True))
    assert [spec.number for spec in specs] == [0] + [1] * 16
    assert [spec.read_through for spec in specs] == [False] + [True] * 16
    assert all(spec.numbered for spec in specs)
    assert planned_work(files, specs).stops == (8, 6, None)
    shared, *striped = read(files, 64, 100)
    assert shared.line_numbers.tolist() == [0, 1, 0]
    assert shared.part.covered == {0: 8, 1: 6}
    assert {each.part.end_of_file for each in striped if each.part.last} == {9}
    assert all(each.part.covered == {} for each in striped)


def test_line_numbers_are_given_only_where_they_are_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"two\n"))
    for spec in plan_blocks(input_files([str(tmp_path)]), 100):
        for block in document_blocks(spec, Columns(), 10, 100, {}):
            assert block.line_numbers is None


def test_parts_that_are_done_are_not_given_again(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(100)))
    spec = next(plan_blocks(input_files([str(tmp_path)]), 64, read_through=True))
    whole = dataclasses.replace(spec, stripes=1)
    blocks = list(document_blocks(whole, Columns(), 4, 64, {}))
    assert len(blocks) > 20
    done = {n: BlockReport(0, n, False, 0, {}, None) for n in range(0, len(blocks), 2)}
    rest = list(document_blocks(whole, Columns(), 4, 64, done))
    assert [each.part.number for each in rest] == list(range(1, len(blocks), 2))
    assert numbered(rest) == numbered(blocks[1::2])


@pytest.mark.parametrize(
    ("lost", "problems"),
    [
        (None, []),
        (
            2,
            [
                "block 0000000 has parts missing or doubled",
                "block 0000000: 55 records in its parts, its readers saw 60",
            ],
        ),
        (
            17,
            [
                "15 readers reported their last part, 16 were planned",
                "block 0000000 has parts missing or doubled",
            ],
        ),
    ],
)
def test_the_account_holds_the_records_against_what_each_reader_saw(tmp_path, lost, problems):
    """A planted fault: the part of that number is lost behind the readers."""
    text = "".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(60))
    (tmp_path / "in.jsonl").write_text(text)
    files = input_files([str(tmp_path)])
    digest = listing_digest(files)
    request = PlanRequest((str(tmp_path),), None, 100, None, digest, read_through=True)
    folder = str(tmp_path / "out")
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        plan = pipeline | PlanBlocks(request)
        cut = plan["shared"] | CutFiles(folder, "run", 50, 100)
        specs = (plan["specs"], cut) | beam.Flatten()
        documents = (specs | ReadBlocks(folder, "run", Columns(), 50, 100))["documents"]
        kept = documents | beam.Filter(lambda block: block.part.number != lost)
        reports = kept | beam.Map(_as_if_embedded)
        judged = reports | ReconcileBlocks(plan["planned"])
        assert_that(judged | beam.FlatMap(lambda found: found.problems), equal_to(problems))


def _as_if_embedded(block):
    documents = len(block)
    return part_report(block.part, np.ones(documents, int), np.zeros(documents, bool), {})
