"""CSV: records are what Python's csv module takes for records, wherever the pieces are cut."""

import csv
import gzip
import io
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_embed.storage.files import stat
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import Slice, plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.csv import QUOTED, Dialect, RecordCutter, read_records
from tests.support.blocks import read_input, rejected_of, texts_of

BOM = b"\xef\xbb\xbf"
FIELD = st.text('ab",\n é', max_size=6)


def cut(data, delimiter, sizes, quoting=QUOTED):
    """The records of some bytes that are given to the cutter in pieces of these sizes."""
    cutter = RecordCutter(replace(quoting, separator=delimiter))
    ends, at = [], 0
    while at < len(data):
        stop = min(at + next(sizes), len(data))
        ends += (cutter.ends(data[at:stop]) + at).tolist()
        at = stop
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    return [data[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


@settings(max_examples=800)
@given(
    text=st.text('ab", \n\t', max_size=40),
    delimiter=st.sampled_from([",", "\t"]),
    sizes=st.lists(st.integers(1, 9), min_size=1),
    skips=st.booleans(),
)
@example(text='a,"b\n""c"\n"d"e"\n', delimiter=",", sizes=[1], skips=False)
@example(text='a"b\n"c\nd"\n', delimiter=",", sizes=[3], skips=False)
@example(text='"""a\n"""\n', delimiter=",", sizes=[1], skips=False)
@example(text='a""b\n"c"\n', delimiter=",", sizes=[2], skips=False)
@example(text='a,  "b\n" ,c\n  "\n"\n', delimiter=",", sizes=[2], skips=True)
def test_records_are_those_of_the_csv_module(text, delimiter, sizes, skips):
    """Whatever the bytes, quotes within fields that are not quoted and quotes left open too."""
    if not text:
        return
    every = iter([sizes[n % len(sizes)] for n in range(100)])
    records = cut(text.encode(), delimiter, every, Dialect(skips_spaces=skips))

    def parsed(part):
        file = io.StringIO(part, newline="\n")
        return list(csv.reader(file, delimiter=delimiter, skipinitialspace=skips))

    whole = parsed(text)
    single = [row for record in records for row in parsed(record.decode())]
    assert single == whole
    assert len(records) == len(whole)


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(FIELD, FIELD), max_size=12),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    mark=st.booleans(),
    closed=st.booleans(),
    block_bytes=st.integers(1, 80),
    part_docs=st.integers(1, 5),
    compressed=st.booleans(),
)
@example(  # a quoted field holds what would begin the next one, were it not quoted
    rows=[(", ", ' "'), (' "', ", ")],
    line_end="\n",
    quoting=csv.QUOTE_MINIMAL,
    mark=False,
    closed=True,
    block_bytes=80,
    part_docs=5,
    compressed=False,
)
def test_every_record_becomes_a_document_or_is_refused(
    tmp_path_factory, rows, line_end, quoting, mark, closed, block_bytes, part_docs, compressed
):
    folder = tmp_path_factory.mktemp("csv")
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=quoting, lineterminator=line_end)
    writer.writerows([["text", "id"], *rows])
    written = file.getvalue()
    data = BOM * mark + (written if closed else written.removesuffix(line_end)).encode()
    path = folder / ("in.csv.gz" if compressed else "in.csv")
    path.write_bytes(gzip.compress(data) if compressed else data)
    found = read_input(folder, Columns(id="id"), block_bytes, part_docs=part_docs)
    good = [(text, name) for text, name in rows if text.strip() and name]
    assert texts_of(found) == [text for text, _ in good]
    assert [each for block in found for each in block.ids.to_pylist()] == [n for _, n in good]
    bad = [name for text, name in rows if not (text.strip() and name)]
    reasons = ["empty text" if name else "missing id" for name in bad]
    assert [reason for _, reason in rejected_of(found)] == reasons
    assert all(len(block) <= part_docs for block in found)
    places = [each for block in found for each in block.sources.to_pylist()]
    for place, (text, _) in zip(places, good, strict=True):
        name, _, offset = place.rpartition(":")
        record = next(csv.reader(io.StringIO(data[int(offset) :].decode(), newline="")))
        assert (name, record[0]) == (str(path), text)


def test_a_bad_record_is_refused_alone(tmp_path):
    lines = [
        *(b"id,text", b"1,one", b"2,two,three", b"3,caf\xe9", b'4,"a"b', b"", b"5,", b",no id"),
        *(b'6,"6"" pipe"', b'7,7" pipe', b"8,a\rb", b'9,"left open', b"10,ten"),
    ]
    (tmp_path / "in.csv").write_bytes(b"\n".join(lines))
    [block] = found = read_input(tmp_path, Columns(id="id"))
    assert block.texts == ["one", '6" pipe', '7" pipe']
    assert rejected_of(found) == [
        *((None, "more fields than the header"), (None, "invalid UTF-8"), (None, "malformed CSV")),
        *((None, "empty text"), ("5", "empty text"), (None, "missing id")),
        *((None, "malformed CSV"), (None, "unterminated quote")),
    ]
    first, second, *_ = block.part.rejected
    assert first.source == f"{tmp_path}/in.csv:{len(b'id,text') + len(b'1,one') + 2}"
    assert second.record == lines[3] + b"\n"
    assert [each.blank for each in block.part.rejected] == [False] * 3 + [True] + [False] * 4
    assert block.part.records == 11


def test_small_files_share_a_block_each_with_its_own_header(tmp_path):
    for number in range(5):
        header = "id,text" if number % 2 else "text,id"
        row = f"{number},text {number}" if number % 2 else f"text {number},{number}"
        (tmp_path / f"{number}.csv").write_text(f"{header}\n{row}\n")
    (tmp_path / "5.csv").write_text("")
    (tmp_path / "6.csv").write_text("text,id")
    (block,) = read_input(tmp_path, Columns(id="id"))
    assert block.texts == [f"text {number}" for number in range(5)]
    assert block.ids.to_pylist() == [str(number) for number in range(5)]
    assert [len(each) for each in read_input(tmp_path, Columns(id="id"), block_bytes=30)] != [5]


def test_a_large_file_is_one_block_of_many_parts(tmp_path):
    rows = [f'"text\n{number}",{number}\n' for number in range(300)]
    (tmp_path / "in.csv").write_text("text,id\n" + "".join(rows))
    [spec] = plan_blocks(list_input([str(tmp_path)]).first(None), 200)
    assert (spec.number, spec.spread) == (0, True)
    found = read_input(tmp_path, block_bytes=200)
    assert texts_of(found) == [f"text\n{number}" for number in range(300)]
    assert {each.part.end_of_file for each in found} - {None} == {300}


@pytest.mark.parametrize("limit", [1, 7, 299, 300, 5000])
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_a_limit_keeps_the_first_records(tmp_path, limit, name):
    data = ("text\n" + "".join(f'"a\n{number}"\n' for number in range(300))).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (tmp_path / "z.csv").write_text("text\nlast\n")
    every = [f"a\n{number}" for number in range(300)] + ["last"]
    assert texts_of(read_input(tmp_path, limit=limit, block_bytes=100)) == every[:limit]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\ntext\n", "does not begin with a header"),
        (b"text,text\n", "has two columns of the name text"),
        (b"te\xffxt\n", "header that is not UTF-8"),
        (b'text,"b\n', "malformed header"),
        (b'id,text\r1,"a\nb"\r2,c\r', r"a carriage return outside quotes.* tr '\\r' '\\n'"),
        (b"\xff\xfet\x00", "is UTF-16"),
        (b"id,body\n1,one\n", "text_column text is not a column of .*, which has id, body"),
    ],
)
def test_a_file_without_a_good_header_is_refused_by_name(read, data, message):
    with pytest.raises(ValueError, match=message):
        read(data, "in.csv.gz", id=None)


def test_a_quote_left_open_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b'text\n"' + b"a\n" * (33 << 20))
    piece = Slice(0, stat(str(path)), 0, path.stat().st_size)
    said = r"in\.csv ends within a record of over 64 MiB: is a quote left open in line 2"
    with pytest.raises(ValueError, match=said):
        list(read_records(piece, None, 1 << 20))


def test_the_limit_of_the_callers_csv_module_stays(tmp_path):
    """It is one for the whole process; fields over Python's own are read all the same."""
    before = csv.field_size_limit(1234)
    try:
        (tmp_path / "in.csv").write_text(f"id,text\n1,{'river ' * 40_000}\n2,x\n")
        assert [len(text) for text in texts_of(read_input(tmp_path))] == [240_000, 1]
        assert csv.field_size_limit() == 1234
    finally:
        csv.field_size_limit(before)
