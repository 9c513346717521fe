"""CSV and TSV: records are what Python's csv module takes for records, however they are quoted."""

import csv
import gzip
import io
import random
from dataclasses import replace
from itertools import repeat

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_embed.storage.files import stat
from bert_embed.transforms.parts import Slice
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.csv import QUOTED, Dialect, RecordCutter, file_records
from tests.support.blocks import ids_of, read_input, rejected_of, texts_of

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


@pytest.mark.parametrize("size", [5, 8, 64])
def test_escaped_characters_are_letters_and_an_open_quote_has_its_line(size):
    escaped = Dialect(escape="\\", skips_spaces=True)
    text = b'\\\\"a\n\\" "b\n"c\\"\nd"\n'
    assert cut(text, ",", repeat(size), escaped) == [b'\\\\"a\n', b'\\" "b\n', b'"c\\"\nd"\n']
    cutter = RecordCutter(replace(escaped, separator=","))
    text = b'a\\\n\n"b\n""\n""c'
    for at in range(0, len(text), size):
        cutter.ends(text[at : at + size])
    assert (cutter.is_open, cutter.open_line, cutter.line) == (True, 3, 5)


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
    good = [(text, name) for text, name in rows if text.strip() and name.strip()]
    assert texts_of(found) == [text for text, _ in good]
    assert ids_of(found) == [n for _, n in good]
    bad = [(text, name) for text, name in rows if not (text.strip() and name.strip())]
    no_text = [bool(name.strip()) or not (text or name) for text, name in bad]
    reasons = ["empty text" if is_one else "missing id" for is_one in no_text]
    assert [reason for _, reason in rejected_of(found)] == reasons
    assert all(len(block) <= part_docs for block in found)
    places = [each for block in found for each in block.sources.to_pylist()]
    for place, (text, _) in zip(places, good, strict=True):
        name, _, offset = place.rpartition(":")
        record = next(csv.reader(io.StringIO(data[int(offset) :].decode(), newline="")))
        assert (name, record[0]) == (str(path), text)


def test_a_bad_record_is_refused_alone(tmp_path):
    lines = [
        *(b"id,text", b"1,one", b"2,two,three", b"3,caf\xe9", b'4,"a"b', b"", b"5,", b" ,no id"),
        *(b",", b'"",', b'6,"6"" pipe"', b'7,7" pipe', b"8,a\rb", b'9,"left open', b"10,ten"),
    ]
    (tmp_path / "in.csv").write_bytes(b"\n".join(lines))
    [block] = found = read_input(tmp_path, Columns(id="id"))
    assert block.texts == ["one", '6" pipe', '7" pipe']
    assert rejected_of(found) == [
        *((None, "more fields than the header"), (None, "invalid UTF-8"), (None, "malformed CSV")),
        *((None, "empty text"), ("5", "empty text"), (None, "missing id")),
        *[(None, "empty text")] * 2,  # rows without a value
        *((None, "malformed CSV"), (None, "unterminated quote")),
    ]
    first, second, *_ = block.part.rejected
    assert first.source == f"{tmp_path}/in.csv:{len(b'id,text') + len(b'1,one') + 2}"
    assert second.record == lines[3] + b"\n"
    blank = [each.blank for each in block.part.rejected]
    assert blank == [*[False] * 3, True, *[False] * 2, *[True] * 2, *[False] * 2]
    assert block.part.records == 13


def test_small_files_share_a_block_each_with_its_own_header(tmp_path):
    for number in range(5):
        header = "id,text" if number % 2 else "text,id"
        row = f"{number},text {number}" if number % 2 else f"text {number},{number}"
        (tmp_path / f"{number}.csv").write_text(f"{header}\n{row}\n")
    (tmp_path / "5.csv").write_text("")
    (tmp_path / "6.csv").write_text("text,id")
    (tmp_path / "7.csv").write_bytes(BOM)  # an empty sheet, as Excel writes it
    (tmp_path / "8.csv").write_bytes(b"sep=;\n")
    (block,) = read_input(tmp_path, Columns(id="id"))
    assert block.texts == [f"text {number}" for number in range(5)]
    assert block.ids.to_pylist() == [str(number) for number in range(5)]
    assert [len(each) for each in read_input(tmp_path, Columns(id="id"), block_bytes=30)] != [5]
    assert texts_of(read_input(tmp_path / "7.csv", Columns(csv_header=("id", "text")))) == []


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
        (b"text,text\n", "text is in .* more than once"),
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
        list(file_records(piece, None, 1 << 20))


def test_the_limit_of_the_callers_csv_module_stays(tmp_path):
    """It is one for the whole process; fields over Python's own are read all the same."""
    before = csv.field_size_limit(1234)
    try:
        (tmp_path / "in.csv").write_text(f"id,text\n1,{'river ' * 40_000}\n2,x\n")
        assert [len(text) for text in texts_of(read_input(tmp_path))] == [240_000, 1]
        assert csv.field_size_limit() == 1234
    finally:
        csv.field_size_limit(before)


BAD = "malformed CSV"


def test_quotes_can_be_characters(tmp_path, read):
    rows = ["plain row", '"Rome in 48 hours', "the river bank", 'said he"', '"old" trees']
    table = "id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(rows))
    for limit in (None, 3):
        _, reasons, found = read(table, "in.tsv", csv_quoting="none", limit=limit)
        pandas = pd.read_csv(tmp_path / "in.tsv", sep="\t", quoting=csv.QUOTE_NONE)
        assert texts_of(found) == pandas["text"].to_list()[:limit]
        assert reasons == []
    # To pandas it is one text over three lines, each of which has the fields of a record.
    _, reasons, found = read(table, "in.tsv")
    assert (texts_of(found), reasons) == (rows[:1], [BAD] * 2)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE])
@pytest.mark.parametrize("name", ["in.csv", "in.tsv"])
@pytest.mark.parametrize("block_bytes", [7, 64, 1 << 20])
def test_an_escape_makes_the_next_character_one_like_others(read, quoting, name, block_bytes):
    pick = random.Random(block_bytes)
    letters = ["a", "b", '"', "\\", ",", "\t", " ", "\n"]
    texts = ["x" + "".join(pick.choices(letters, k=pick.randrange(9))) + "y" for _ in range(200)]
    file = io.StringIO(newline="")
    style = {"escapechar": "\\", "doublequote": False, "lineterminator": "\n"}
    writer = csv.writer(file, quoting=quoting, delimiter="\t" if "tsv" in name else ",", **style)
    writer.writerows([["id", "text"], *enumerate(texts)])
    kind = "dump" if quoting == csv.QUOTE_NONE else "escaped"
    ids, reasons, found = read(file.getvalue(), name, csv_quoting=kind, block_bytes=block_bytes)
    assert (ids, reasons) == (list(map(str, range(200))), [])
    assert texts_of(found) == texts


def test_columns_that_nobody_asks_for_may_occur_twice(read):
    table = "Unnamed: 0,,id,text,note,note,\n0,9,1,one,a,b,\n"
    assert read(table, "in.csv")[:2] == (["1"], [])
    with pytest.raises(ValueError, match=r"note is in .* more than once"):
        read(table, "in.csv", id="note")


ESCAPED, DUMP = {"csv_quoting": "escaped"}, {"csv_quoting": "dump"}
HEADER = {"csv_header": ("id", "text")}


@pytest.mark.parametrize(
    ("text", "how", "texts", "reasons"),
    [
        # An escape in the last record.
        ("text\none\ntwo\\\nlines", DUMP, ["one", "two\nlines"], []),
        ("text\none\ntwo\\\n", DUMP, ["one", "two\n"], []),
        ("text\none\ntwo\\", DUMP, ["one"], [BAD]),
        # PostgreSQL writes letters for controls; with quotes such an n is a letter.
        ("text\none\\n2\\t3\\\\n\\r\\e\nend\\\\\n", DUMP, ["one\n2\t3\\n\re", "end\\"], []),
        ('text\n"say \\"no\\" \\n"\n', ESCAPED, ['say "no" n'], []),
        # Spark escapes what it quotes alone.
        (
            'id,text\n1,a\\b\\\n2,\\N\n3,"a\\\\, \\"b\\""\n',
            ESCAPED,
            ["a\\b\\", 'a\\, "b"'],
            ["missing text"],
        ),
        ("id;text\n1;one\\ttwo\n", DUMP | {"csv_separator": ";"}, ["one\ttwo"], []),
        ("1|one\\ttwo\n", DUMP | {"csv_separator": "|"} | HEADER, ["one\ttwo"], []),
        # As with skipinitialspace of Python's csv module and of pandas, where the header has it.
        (
            'id, text\n1, "a, b"\n2, c\n3, "two\nlines"\n4,   "a ""b"" "\n5,"d"\n',
            {"block_bytes": 8},
            ["a, b", "c", "two\nlines", 'a "b" ', "d"],
            [],
        ),
        ('id; text\n1; "a; b"\n', {"csv_separator": ";"}, ["a; b"], []),
        # Lines of one text are no records.
        ('id\ttext\n1\t"a:\n\tb"\n2\t"c\nd\te\tf"\n', {}, ["a:\n\tb", "c\nd\te\tf"], []),
        # Elsewhere such quotes are characters, or rejected where it would cut a field in two.
        (
            'id,text,more\n1, "a, b"\n2, "a b"\n3,c,"d"\n4,"e ""f"", g",h\n5,x, "two\n',
            {},
            [' "a b"', "c", 'e "f", g'],
            [BAD, BAD],
        ),
        # Single quotes within fields are letters.
        ('"text"\n"it\'s"\n"\'a, b\', he said"\n', {}, ["it's", "'a, b', he said"], []),
        # The end of a copy of PostgreSQL counts as blank.
        ("text\none\n\\.\n", {}, ["one"], ["empty text"]),
        ("text\none\n\\.\n", {"csv_quoting": "none"}, ["one"], ["empty text"]),
        # Short rows are filled with nulls, as pandas does; long ones rejected unless empty there.
        (
            "id,text,note,more\n1,one\n2,two,y,z\n3,three,,,,,\n4,four,a,b,c\n5\n",
            {},
            ["one", "two", "three"],
            ["more fields than the header", "missing text"],
        ),
    ],
)
def test_quotes_and_escapes(read, text, how, texts, reasons):
    _, why, found = read(text, "in.csv", **{"id": None} | how)
    assert (texts_of(found), why) == (texts, reasons)
    places = [each.detail for block in found for each in block.part.rejected if each.reason == BAD]
    if len(places) == 2:
        for number, place in zip((2, 3), places, strict=True):
            assert place.startswith(f"field {number} begins with a space and a quote,")


@pytest.mark.parametrize(
    ("name", "text", "how"),
    [
        ("in.tsv", "a\tone\nb\ttwo\n", HEADER),
        ("in.csv", "\ufeffa,one\nb,two\n", HEADER),
        ("in.csv", "sep=;\nid;text\na;one\nb;two\n", {}),
        ("in.csv", "sep=;\nid;text\na;one\nb;two\n", {"csv_separator": ";"}),
        ("in.tsv", "sep=\t\nid\ttext\na\tone\nb\ttwo\n", {}),
        ("in.tsv", "sep=;\nid;text\na;one\nb;two\n", {}),
        ("in.csv", '\ufeff"sep=|"\r\nid|text\r\na|one\r\nb|two\r\n', {}),
        ("in.csv", "id\x01text\na\x01one\nb\x01two\n", {}),
        ("in.csv", "a\x01one\nb\x01two\n", {"csv_separator": "\x01"} | HEADER),
        ("in.csv", "id;text;a,b,c\na;one;1\nb;two;2\n", {"csv_separator": ";"}),
        ("in.csv", "id~text\na~one\nb~two\n", {"csv_separator": "~"}),
        ("in.csv", 'id\ttext\t"a, b, c"\na\tone\t1\nb\ttwo\t2\n', {}),
        ("in.csv", 'id,"a;b;c",text,;\na,"x;y;z;",one,\nb,,two,1\n', {}),
        ("in.csv", "id,text\na,one\n\ufeffid,text\nb,two\n", {}),
        ("in.csv", "text, id , year\none, a, 2015\ntwo, b,\n", {}),
        ("in.csv", " id | text  \n a  | one   \n b  | two\n", {}),  # as psql draws it
        ("in.jsonl", '\ufeff{"id": "a", "text": "one"}\n\ufeff{"id": "b", "text": "two"}\n', {}),
    ],
)
def test_separators_headers_and_marks(tmp_path, read, name, text, how):
    ids, reasons, found = read(text, name, part_docs=1, **how)
    assert (ids, texts_of(found)) == (["a", "b"], ["one", "two"])
    assert reasons == ["a header again"] * text.count("\n\ufeffid")
    if "csv_header" in how:  # without ids a document is named by where it is
        first = text.encode().index(b"a")
        assert read(text, name, **how | {"id": None})[0][0] == f"{tmp_path / name}:{first}"


def test_nulls_of_mysql_are_missing(read):
    table = "id\ttext\tn\tname\n1\tone\\\ttwo\t\\N\t\\N\n2\t\\N\t3\tx\n"
    extra = pa.schema([("n", pa.int64()), ("name", pa.string())])
    _, reasons, [block] = read(table, "in.tsv", csv_quoting="dump", extra=extra)
    assert block.texts == ["one\ttwo"]
    assert block.extra.to_pylist() == [{"n": None, "name": None}]
    assert reasons == ["missing text"]
