"""CSV and TSV as other programs write them: quoting, escapes, ragged rows, names of columns."""

import csv
import io
import random

import pandas as pd
import pyarrow as pa
import pytest

from tests.support.blocks import texts_of

BAD = "malformed CSV"


def test_quotes_can_be_characters(tmp_path, read):
    rows = ["plain row", '"Rome in 48 hours', "the river bank", 'said he"', '"old" trees']
    table = "id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(rows))
    for limit in (None, 3):
        _, reasons, found = read(table, "in.tsv", csv_quoting="none", limit=limit)
        pandas = pd.read_csv(tmp_path / "in.tsv", sep="\t", quoting=csv.QUOTE_NONE)
        assert texts_of(found) == pandas["text"].to_list()[:limit]
        assert reasons == []
    # By default it is one text over three lines, as for pandas.
    _, reasons, found = read(table, "in.tsv")
    assert texts_of(found) == pd.read_csv(tmp_path / "in.tsv", sep="\t")["text"].to_list()[:2]
    assert reasons == [BAD]


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
    with pytest.raises(ValueError, match="has two columns of the name note"):
        read(table, "in.csv", id="note")


ESCAPED, DUMP = {"csv_quoting": "escaped"}, {"csv_quoting": "dump"}


@pytest.mark.parametrize(
    ("text", "how", "texts", "reasons"),
    [
        # An escape in the last record.
        ("text\none\ntwo\\\nlines", ESCAPED, ["one", "two\nlines"], []),
        ("text\none\ntwo\\\n", ESCAPED, ["one", "two\n"], []),
        ("text\none\ntwo\\", ESCAPED, ["one"], [BAD]),
        # PostgreSQL writes letters for controls; with quotes such an n is a letter.
        ("text\none\\n2\\t3\\\\n\\r\\e\nend\\\\\n", DUMP, ["one\n2\t3\\n\re", "end\\"], []),
        ('text\n"say \\"no\\" \\n"\n', ESCAPED, ['say "no" n'], []),
        # As with skipinitialspace of Python's csv module and of pandas, where the header has it.
        (
            'id, text\n1, "a, b"\n2, c\n3, "two\nlines"\n4,   "a ""b"" "\n5,"d"\n',
            {"block_bytes": 8},
            ["a, b", "c", "two\nlines", 'a "b" ', "d"],
            [],
        ),
        ('id; text\n1; "a; b"\n', {"csv_separator": ";"}, ["a; b"], []),
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
        ("in.tsv", "a\tone\nb\ttwo\n", {"csv_header": ("id", "text")}),
        ("in.csv", "\ufeffa,one\nb,two\n", {"csv_header": ("id", "text")}),
        ("in.csv", "sep=;\nid;text\na;one\nb;two\n", {}),
        ("in.csv", '\ufeff"sep=|"\r\nid|text\r\na|one\r\nb|two\r\n', {}),
        ("in.csv", "id\x01text\na\x01one\nb\x01two\n", {}),
        ("in.csv", "a\x01one\nb\x01two\n", {"csv_separator": "\x01", "csv_header": ("id", "text")}),
        ("in.csv", "id;text;a,b,c\na;one;1\nb;two;2\n", {"csv_separator": ";"}),
        ("in.csv", "id~text\na~one\nb~two\n", {"csv_separator": "~"}),
        ("in.csv", 'id\ttext\t"a, b, c"\na\tone\t1\nb\ttwo\t2\n', {}),
        ("in.csv", 'id,"a;b;c",text,;\na,"x;y;z;",one,\nb,,two,1\n', {}),
        ("in.csv", "id,text\na,one\n\ufeffid,text\nb,two\n", {}),
        ("in.csv", "text, id , year\none, a, 2015\ntwo, b,\n", {}),
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


def test_letters_of_a_dump_are_read_whatever_else_is_said_of_the_file(read):
    table, dump = "1;one\\ttwo\n", {"csv_quoting": "dump", "csv_separator": ";"}
    assert texts_of(read(f"id;text\n{table}", "in.csv", **dump)[2]) == ["one\ttwo"]
    assert texts_of(read(table, "in.csv", csv_header=("id", "text"), **dump)[2]) == ["one\ttwo"]


def test_nulls_of_mysql_are_missing(read):
    table = "id\ttext\tn\tname\n1\tone\\\ttwo\t\\N\t\\N\n2\t\\N\t3\tx\n"
    extra = pa.schema([("n", pa.int64()), ("name", pa.string())])
    _, reasons, [block] = read(table, "in.tsv", csv_quoting="dump", extra=extra)
    assert block.texts == ["one\ttwo"]
    assert block.extra.to_pylist() == [{"n": None, "name": None}]
    assert reasons == ["missing text"]
