"""Lines: every line of a file belongs to exactly one part, wherever the blocks are cut."""

import gzip

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.lines import first_lines, parse_text
from bert_embed.transforms.read.reader import parts_of


def read_all(files, block_bytes, part_docs):
    """The lines of all blocks with their places, in order, as `(file, offset, line)`."""
    for spec in plan_blocks(files, block_bytes):
        parts = list(parts_of(spec, part_docs, block_bytes))
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
        for part in parts:
            assert sum(lines.count for lines in part.contents) <= part_docs
            for lines in part.contents:
                offset = lines.offset
                for line in lines.data.split(b"\n")[: lines.count]:
                    yield lines.file, offset, line
                    offset += len(line) + 1


def lines_in(content):
    return content.removesuffix(b"\n").split(b"\n") if content else []


@settings(max_examples=150)
@given(
    contents=st.lists(st.text("ab\n", max_size=60).map(str.encode), min_size=1, max_size=4),
    block_bytes=st.integers(1, 40),
    part_docs=st.integers(1, 9),
)
def test_any_cutting_gives_each_line_once_in_order(
    tmp_path_factory, contents, block_bytes, part_docs
):
    folder = tmp_path_factory.mktemp("lines")
    for number, content in enumerate(contents):
        (folder / f"{number}.txt").write_bytes(content)
    files = list_input([str(folder)]).files
    expected = []
    for number, content in enumerate(contents):
        offset = 0
        for line in lines_in(content):
            expected.append((number, offset, line))
            offset += len(line) + 1
    assert list(read_all(files, block_bytes, part_docs)) == expected


@settings(max_examples=60)
@given(
    content=st.text("ab\n", max_size=300).map(str.encode),
    block_bytes=st.integers(1, 40),
    part_docs=st.integers(1, 9),
    kind=st.sampled_from(["gzip", "zstd"]),
)
def test_a_compressed_file_is_read_to_its_end(
    tmp_path_factory, content, block_bytes, part_docs, kind
):
    folder = tmp_path_factory.mktemp("whole")
    compress, suffix = (gzip.compress, "gz") if kind == "gzip" else (zstandard.compress, "zst")
    (folder / f"in.txt.{suffix}").write_bytes(compress(content))
    spec = next(plan_blocks(list_input([str(folder)]).files, 1 << 20))
    parts = list(parts_of(spec, part_docs, block_bytes))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].end_of_file == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))
    assert [part.number for part in parts] == list(range(len(parts)))
    assert b"".join(lines.data for part in parts for lines in part.contents) == content


@given(content=st.text("ab\n", max_size=60).map(str.encode), limit=st.integers(1, 12))
@settings(max_examples=80)
def test_a_limit_keeps_the_first_records(tmp_path_factory, content, limit):
    folder = tmp_path_factory.mktemp("limit")
    (folder / "a.txt").write_bytes(content)
    (folder / "b.txt.gz").write_bytes(gzip.compress(content))
    files = list_input([str(folder)]).first(limit)
    found = [line for _, _, line in read_all(files, 7, 3)]
    assert found == (lines_in(content) * 2)[:limit]


def test_a_file_that_changed_is_refused(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    spec = next(plan_blocks(list_input([str(path)]).files, 100))
    path.write_text("one\ntwo\nthree\n")
    with pytest.raises(ValueError, match=r"in\.txt changed after the job started: listed with 8"):
        list(parts_of(spec, 10, 100))
    path.unlink()
    with pytest.raises(ValueError, match="is gone since the job started; put it back"):
        list(parts_of(spec, 10, 100))


def test_documents_carry_the_place_where_their_line_begins(tmp_path):
    data = "\ufeffeins\r\n\nzwei ü\n drei".encode()
    (tmp_path / "in.txt").write_bytes(data)
    lines = first_lines(list_input([str(tmp_path)]).files[0])
    found = parse_text(lines, Columns())
    path = f"{tmp_path}/in.txt"
    assert found.ids.to_pylist() == [f"{path}:0", f"{path}:10", f"{path}:18"]
    assert found.texts == ["eins", "zwei ü", " drei"]
    assert [each.source for each in found.rejected] == [f"{path}:9"]
