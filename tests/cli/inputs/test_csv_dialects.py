"""CSV and TSV as other programs write them: quoting, escapes, ragged rows, names of columns."""

import csv
import io
import random

import pandas as pd
import pytest
import yaml

from bert_embed.pipeline.cli import main
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from tests.support.command import record, rejected, rows

TSV = """id\ttext
1\tplain row
2\t"Rome in 48 hours
3\tthe river bank
4\tsaid he"
5\t"old" trees
"""


def read(path, columns, block_bytes=1 << 20):
    """Texts, ids and reasons of a file."""
    files = list_input([str(path)]).first(None, columns)
    blocks = [
        block
        for spec in plan_blocks(files, block_bytes)
        for block in document_blocks(spec, columns, 1000, block_bytes, {})
    ]
    texts = [text for block in blocks for text in block.texts]
    ids = [name for block in blocks for name in block.ids.to_pylist()]
    return texts, ids, [each.reason for block in blocks for each in block.part.rejected]


@pytest.mark.slow
def test_quotes_can_be_characters(tmp_path, run):
    flags = {"keep_text": True, "csv_quoting": "none"}
    output = run({"in.tsv": TSV}, **flags)
    pandas = pd.read_csv(tmp_path / "in.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    assert rows(output)["text"] == pandas["text"].to_list()
    assert record(output)["options"]["csv_quoting"] == "none"
    limited = run({"in.tsv": TSV}, "limited", limit=3, **flags)
    assert rows(limited)["text"] == pandas["text"].to_list()[:3]
    # By default it is one text over three lines, as for pandas.
    texts, _, reasons = read(tmp_path / "in.tsv", Columns())
    assert texts == pd.read_csv(tmp_path / "in.tsv", sep="\t")["text"].to_list()[:2]
    assert reasons == ["malformed CSV"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE])
@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("block_bytes", [7, 64, 1 << 20])
def test_an_escape_makes_the_next_character_one_like_others(
    tmp_path, quoting, delimiter, block_bytes
):
    pick = random.Random(block_bytes)
    letters = ["a", "b", '"', "\\", ",", "\t", " ", "\n"]
    texts = ["x" + "".join(pick.choices(letters, k=pick.randrange(9))) + "y" for _ in range(200)]
    file = io.StringIO(newline="")
    style = {"escapechar": "\\", "doublequote": False, "lineterminator": "\n"}
    writer = csv.writer(file, quoting=quoting, delimiter=delimiter, **style)
    writer.writerows([["id", "text"], *enumerate(texts)])
    path = tmp_path / ("in.tsv" if delimiter == "\t" else "in.csv")
    path.write_text(file.getvalue())
    columns = Columns(id="id", csv_quoting="dump" if quoting == csv.QUOTE_NONE else "escaped")
    assert read(path, columns, block_bytes) == (texts, list(map(str, range(200))), [])


def test_letters_for_controls_of_postgresql_are_read(tmp_path):
    """Its text format, of which COPY makes one line a row; with quotes such an n is a letter."""
    (tmp_path / "in.tsv").write_text("id\ttext\n1\tone\\ntwo\\tthree\\\\n\\r\\e\n2\tend\\\\\n")
    columns = Columns(id="id", csv_quoting="dump")
    found = read(tmp_path / "in.tsv", columns)
    assert found == (["one\ntwo\tthree\\n\re", "end\\"], ["1", "2"], [])
    (tmp_path / "in.csv").write_text('id,text\n1,"say \\"no\\" \\n"\n')
    columns = Columns(id="id", csv_quoting="escaped")
    assert read(tmp_path / "in.csv", columns)[0] == ['say "no" n']


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"csv_quoting": "all"}, "--csv_quoting must be one of minimal, none, escaped, dump, got"),
        ({"csv_escape": "x"}, "unknown flag --csv_escape; did you mean --csv_"),
        ({"csv_quoting": "none"}, "--csv_quoting is for CSV, and --input names none"),
        ({"csv_header": "a,b"}, "--csv_header is for CSV, and --input names none"),
        ({"csv_separator": "::"}, "--csv_separator must be one character, or tab or ^A"),
    ],
)
def test_other_quoting_is_refused(run, flags, message):
    run.refused({"in.txt": "one\n"}, message, **flags)


def test_ragged_rows(tmp_path):
    """Short ones are filled with nulls, as pandas does; long ones rejected unless empty there."""
    (tmp_path / "in.csv").write_text(
        "id,text,note,more\n1,one\n2,two,y,z\n3,three,,,,,\n4,four,a,b,c\n5\n"
    )
    texts, ids, reasons = read(tmp_path / "in.csv", Columns(id="id"))
    assert (texts, ids) == (["one", "two", "three"], ["1", "2", "3"])
    assert reasons == ["more fields than the header", "missing text"]


def test_columns_that_nobody_asks_for_may_occur_twice(tmp_path):
    (tmp_path / "in.csv").write_text("Unnamed: 0,,id,text,note,note,\n0,9,1,one,a,b,\n")
    assert read(tmp_path / "in.csv", Columns(id="id")) == (["one"], ["1"], [])
    with pytest.raises(ValueError, match="has two columns of the name note"):
        read(tmp_path / "in.csv", Columns(id="note"))


@pytest.mark.slow
def test_names_with_commas_and_colons_are_found_whole(tmp_path, run, tiny_bundle):
    named = {"id": 1, "Title, full": "one", "Body\nlong": "two", "a, b:c": "x", "dc:year": 2015}
    pd.DataFrame([named]).to_csv(tmp_path / "in.csv", index=False)
    pd.DataFrame([named]).to_parquet(tmp_path / "in.parquet")
    run.written({"in.jsonl": [named]})
    typed = "a, b:c,dc:year"
    for number, (name, text, extra) in enumerate(
        [
            ("in.csv", "Title, full", f"{typed}:int64"),
            ("in.csv", "Title, full,Body\nlong", typed),
            ("in.jsonl", "Title, full", f"{typed}:int64"),
            ("in.parquet", '"Title, full"', typed),
            ("in.parquet", "Title, full", typed),
        ]
    ):
        flags = {"text_column": text, "extra_columns": extra, "keep_text": True}
        found = rows(run(tmp_path / name, str(number), **flags))
        assert found["text"] == ["one two" if "Body" in text else "one"]
        assert (found["a, b:c"], list(map(int, found["dc:year"]))) == (["x"], [2015])
    config = {"text_column": ["Title, full", "Body\nlong"], "keep_text": True}
    config |= {"extra_columns": ["a, b:c", "dc:year:int64"], "model": tiny_bundle}
    config |= {"input": str(tmp_path / "in.csv"), "output": str(tmp_path / "yaml")}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert main(["embed", "--config", str(tmp_path / "c.yaml")]) == 0
    found = rows(tmp_path / "yaml")
    assert (found["text"], found["dc:year"]) == (["one two"], [2015])


ESCAPE = {"csv_quoting": "escaped"}
BAD = "malformed CSV"


@pytest.mark.parametrize(
    ("name", "text", "flags", "texts", "reasons"),
    [
        # An escape in the last record.
        ("in.csv", "text\none\ntwo\\\nlines", ESCAPE, ["one", "two\nlines"], []),
        ("in.csv", "text\none\ntwo\\\n", ESCAPE, ["one", "two\n"], []),
        ("in.csv", "text\none\ntwo\\", ESCAPE, ["one"], [BAD]),
        # As with skipinitialspace of Python's csv module and of pandas, where the header has it.
        (
            "in.csv",
            'id, text\n1, "a, b"\n2, c\n3, "two\nlines"\n4,   "a ""b"" "\n5,"d"\n',
            {"block_bytes": 8},
            ["a, b", "c", "two\nlines", 'a "b" ', "d"],
            [],
        ),
        # Elsewhere such quotes are characters, or rejected where they would cut a field in two.
        (
            "in.csv",
            'id,text,more\n1, "a, b"\n2, "a b"\n3,c,"d"\n4,"e ""f"", g",h\n5,x, "two\n',
            {"max_rejected": "100%"},
            [' "a b"', "c", 'e "f", g'],
            [BAD, BAD],
        ),
        # Carriage returns alone, as pandas and Python read them.
        ("in.csv", 'text\rfour\r"five\rsix"\r', {}, ["four", "five\nsix"], []),
    ],
)
def test_quotes_and_escapes(run, name, text, flags, texts, reasons):
    output = run({name: text}, keep_text=True, **flags)
    assert rows(output)["text"] == texts
    assert [each["reason"] for each in rejected(output)] == reasons
    places = [each["detail"].split(",")[0] for each in rejected(output)]
    if len(places) == 2:
        wanted = [f"field {number} begins with a space and a quote" for number in (2, 3)]
        assert places == wanted


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("in.tsv", "a\tone\nb\ttwo\n", {"csv_header": "id,text"}),
        ("in.csv", "\ufeffa,one\nb,two\n", {"csv_header": "id,text"}),
        ("in.csv", "sep=;\nid;text\na;one\nb;two\n", {}),
        ("in.csv", '\ufeff"sep=|"\r\nid|text\r\na|one\r\nb|two\r\n', {}),
        ("in.csv", "id\x01text\na\x01one\nb\x01two\n", {}),
        ("in.csv", "a\x01one\nb\x01two\n", {"csv_separator": "^A", "csv_header": "id,text"}),
        ("in.csv", "id;text;a,b,c\na;one;1\nb;two;2\n", {"csv_separator": ";"}),
        ("in.csv", "id~text\na~one\nb~two\n", {"csv_separator": "~"}),
        ("in.csv", "id,text\na,one\n\ufeffid,text\nb,two\n", {}),
        ("in.csv", "text, id , year\none, a, 2015\ntwo, b,\n", {}),
        ("in.jsonl", '\ufeff{"id": "a", "text": "one"}\n\ufeff{"id": "b", "text": "two"}\n', {}),
    ],
)
def test_separators_headers_and_marks(tmp_path, run, name, text, flags):
    flags = flags | {"keep_text": True, "part_docs": 1}
    output = run({name: text.encode()}, **flags)
    found = rows(output)
    assert (found["id"], found["text"]) == (["a", "b"], ["one", "two"])
    reasons = [each["reason"] for each in rejected(output)]
    assert reasons == ["a header again"] * text.count("\n\ufeffid")
    if "csv_header" in flags:  # without ids a document is named by where it is
        output = run({name: text.encode()}, "places", **flags | {"id_column": ""})
        first = len(text.encode()[: text.encode().index(b"a")])
        assert rows(output)["id"][0] == f"{tmp_path / name}:{first}"


def test_nulls_of_mysql_are_missing(run):
    table = "id\ttext\tn\tname\n1\tone\\\ttwo\t\\N\t\\N\n2\t\\N\t3\tx\n"
    flags = {"csv_quoting": "dump", "extra_columns": "n:int64,name"}
    output = run({"in.tsv": table}, keep_text=True, max_rejected="100%", **flags)
    found = rows(output)
    assert (found["text"], found["n"], found["name"]) == (["one\ttwo"], [None], [None])
    assert [each["reason"] for each in rejected(output)] == ["missing text"]


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("a,one\nb,two\n", "--csv_header names the"),
        ("id~text\n1~a\n", "--csv_separator says"),
        ("# of today\nid,text\na,one\n", "grep -v '^#' FILE"),
        ("# of, today\nid,text\na,one\n", "grep -v '^#' FILE"),
        ("id,text\na,'one, two'\nb,two\nc,three\nd,four\n", "single quotes around fields"),
        ("id;text\na;'it''s; one'\n", "single quotes around fields"),
        ("'id','text'\n'a','one'\n", "single quotes around fields"),
        ("id\ttext\na\t'one two'\nb\ttwo\n", "single quotes around fields"),
    ],
)
def test_what_a_csv_lacks_is_said(run, text, cure):
    run.refused({"in.csv": text}, cure)


def test_single_quotes_within_fields_are_letters(run):
    texts = ["it's", "'tis the season", "'a, b', he said", "five"]
    output = run({"in.csv": "".join(f'"{text}"\n' for text in ["text", *texts])}, keep_text=True)
    assert rows(output)["text"] == texts


@pytest.mark.parametrize("flags", [{}, {"csv_quoting": "none"}])
def test_the_end_of_a_copy_of_postgresql_counts_as_blank(run, flags):
    assert rows(run({"in.tsv": "id\ttext\na\tone\n\\.\n"}, **flags))["id"] == ["a"]
