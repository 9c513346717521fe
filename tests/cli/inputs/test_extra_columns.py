"""Extra columns: what stands beside a text stands beside its vector, as what it was."""

import datetime
import decimal
import gzip
import json
from functools import partial

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_embed.transforms.blocks import take_documents
from tests.support.blocks import embedding_block, numbers
from tests.support.command import data_files, embed, record, rejected, rows, write_json

pytestmark = pytest.mark.slow

UTC = datetime.UTC
INSTANT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
TYPED = {
    "c_int": pa.array([1, None, -(2**62)], pa.int64()),
    "c_small": pa.array([1, None, 3], pa.int8()),
    "c_unsigned": pa.array([2**63, None, 3], pa.uint64()),
    "c_float": pa.array([0.5, None, -1e300], pa.float64()),
    "c_single": pa.array([0.1, None, 3], pa.float32()),
    "c_bool": pa.array([True, None, False]),
    "c_text": pa.array(["ä", None, ""], pa.large_string()),
    "c_kind": pa.array(["x", "y", None]).dictionary_encode(),
    "c_day": pa.array([INSTANT.date(), None, datetime.date(1, 1, 1)]),
    "c_instant": pa.array([INSTANT, None, INSTANT], pa.timestamp("us", "Europe/Berlin")),
    "c_seconds": pa.array([INSTANT.replace(tzinfo=None), None, None], pa.timestamp("ms")),
    "c_time": pa.array([datetime.time(1, 2, 3), None, None], pa.time64("us")),
    "c_money": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal128(10, 2)),
    "c_tags": pa.array([["a", "b"], None, []], pa.list_(pa.string())),
    "c_numbers": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
}


def typed_table():
    return pa.table({"id": [10, 11, 12], "text": ["one", "two", "three"]} | TYPED)


def written(output):
    return pa.concat_tables([pq.read_table(path) for path in data_files(output)])


def test_columns_of_parquet_keep_their_types(tmp_path, tiny_bundle):
    pq.write_table(typed_table(), tmp_path / "in.parquet")
    names = ",".join(TYPED)
    output = tmp_path / "out"
    flags = {"extra_columns": names, "limit": 3}
    assert embed(output, tiny_bundle, tmp_path / "in.parquet", **flags) == 0
    table = written(output)
    facts = ["num_tokens", "num_tokens_full", "truncated", "text_hash"]
    assert table.column_names == ["id", "embedding", *facts, *TYPED]
    for name, column in TYPED.items():
        assert table[name].to_pylist() == column.to_pylist(), name
        kind = column.type.value_type if name == "c_kind" else column.type
        assert table[name].type == pa.string() if name in ("c_text", "c_kind") else kind
    assert record(output)["input"]["extra_columns"]["c_money"] == "decimal128(10, 2)"


def test_polars_and_duckdb_read_the_same_types(tmp_path, tiny_bundle):
    """Types that Polars writes itself here, and those that are left to Arrow."""
    pq.write_table(typed_table(), tmp_path / "in.parquet")
    for number, names in enumerate([",".join(TYPED), "c_int,c_instant,c_money,c_tags,c_text"]):
        output = tmp_path / f"out{number}"
        assert embed(output, tiny_bundle, tmp_path / "in.parquet", extra_columns=names) == 0
        by_polars = pl.read_parquet(output / "embeddings")
        assert by_polars["c_instant"].dtype == pl.Datetime("us", "Europe/Berlin")
        assert by_polars["c_money"].to_list() == [decimal.Decimal("1.25"), None, None]
        sql = f"select * from '{output}/embeddings/part-*.parquet' order by id"
        found = duckdb.sql(sql)
        types = dict(zip(found.columns, map(str, found.types), strict=True))
        assert types["c_int"] == "BIGINT"
        assert types["c_money"] == "DECIMAL(10,2)"
        assert types["c_instant"] == "TIMESTAMP WITH TIME ZONE"
        assert types["c_tags"] == "VARCHAR[]"
        assert types["c_text"] == "VARCHAR"
        first = dict(zip(found.columns, found.limit(1).fetchall()[0], strict=True))
        assert (first["id"], first["c_int"], first["c_tags"]) == (10, 1, ["a", "b"])
        assert len(first["embedding"]) == 32
        ((total,),) = duckdb.sql(f"select sum(c_int) from ({sql})").fetchall()
        assert total == 1 - 2**62


def test_columns_of_text_formats_have_the_types_that_are_asked_for(tmp_path, tiny_bundle):
    asked = "name:string,n:INT64,x:float64,ok:bool,at:timestamp,day:date"
    good = {"name": "a", "n": -3, "x": 2, "ok": True, "at": "2024-05-06T07:08:09.5+02:00"}
    lines = [
        good | {"id": 1, "text": "one", "day": "2024-05-06"},
        {"id": 2, "text": "two", "n": None},
        {"id": 3, "text": "three", "n": 1.5},
        {"id": 4, "text": "four", "n": True},
        {"id": 5, "text": "five", "ok": 1},
        {"id": 6, "text": "six", "day": "2024-13-01"},
        {"id": 7, "text": "seven", "name": 7},
        {"id": 8, "text": "eight", "n": 2**63},
        {"id": 9, "text": "nine", "at": "2024-05-06"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "in.csv").write_text(
        "id,text,name,n,x,ok,at,day\n"
        "a,one,a,-3,2,True,2024-05-06T07:08:09.5+02:00,2024-05-06\n"
        "b,two,,,,,,\n"
        "c,three,,3.5,,,,\n"
        "d,four,,,1_0,,,\n"
        "e,five,,,,maybe,,\n"
        "f,six,,,nan,0,2024-05-06 01:02:03Z,\n"
    )
    output = tmp_path / "out"
    inputs = [tmp_path / "in.csv", tmp_path / "in.jsonl"]
    assert embed(output, tiny_bundle, *inputs, extra_columns=asked) == 0
    table = written(output)
    assert [str(kind) for kind in table.schema.types[6:]] == [
        "string",
        "int64",
        "double",
        "bool",
        "timestamp[us, tz=UTC]",
        "date32[day]",
    ]
    day, at = datetime.date(2024, 5, 6), datetime.datetime(2024, 5, 6, 5, 8, 9, 500000, UTC)
    found = {row.pop("id"): list(row.values())[5:] for row in table.to_pylist()}
    assert found["a"] == found["1"] == ["a", -3, 2.0, True, at, day]
    assert found["b"] == ["", None, None, None, None, None]
    assert found["2"] == found["3"] == found["4"] == found["6"] == found["8"] == [None] * 6
    assert found["c"] == found["d"] == found["e"] == found["b"]
    assert (found["5"][3], found["7"][0]) == (True, "7")
    assert found["9"][4] == datetime.datetime(2024, 5, 6, tzinfo=UTC)
    assert found["f"][2:5] == [None, False, datetime.datetime(2024, 5, 6, 1, 2, 3, tzinfo=UTC)]
    assert rejected(output) == []
    assert record(output)["unfit"] == {"day": 1, "n": 4, "ok": 1, "x": 1}


INSTANT_SECOND = INSTANT.replace(microsecond=0)
NULLS = ("NA", "NULL", "null", r"\N", "", "nan", "NaT", "<NA>")
OF_THE_FIELD = [  # type, what other programs write, what it is
    ("int64", ["123", 123.0, "2015.0", " 7 ", "1e3", *NULLS], [123, 123, 2015, 7, 1000]),
    ("float64", ["1.5", 2, "-inf", *NULLS], [1.5, 2.0, float("-inf")]),
    (
        "bool",
        ["true", "TRUE", "False", "t", "0", 1, *NULLS],
        [True, True, False, True, False, True],
    ),
    (
        "timestamp",
        [
            *("2024-05-06 07:08:09 UTC", "2024-05-06T07:08:09.000Z", "2024-05-06 07:08:09"),
            *("2024-05-06 09:08:09.000 +0200", "2024-05-06T09:08:09.000+02:00"),
            *("2024-05-06 07:08:09.000000000", "2024-05-06 07:08:09+00", "20240506T070809Z"),
            *(1714979289, 1714979289000, "1714979289000000", 1714979289000000000),
            *NULLS,
        ],
        [INSTANT_SECOND] * 12,
    ),
    (
        "date",
        [
            *("2024-05-06", "2024-05-06 00:00:00 UTC", "2024-05-06T00:00:00.000", 1714953600000),
            *(20240506, 20240506.0, "1714953600.0"),
            *NULLS,
        ],
        [INSTANT.date()] * 7,
    ),
    ("list_int64", [["1", 2.0, "NA"], []], [[1, 2, None], []]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), OF_THE_FIELD)
def test_values_as_other_programs_write_them_are_read(
    tmp_path, tiny_bundle, capfd, kind, values, expected
):
    lines = [json.dumps({"text": "one", "c": value}) + "\n" for value in [*values, {}]]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    assert (
        embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", extra_columns=f"c:{kind}") == 0
    )
    assert rows(tmp_path / "out")["c"] == expected + [None] * (len(lines) - len(expected))
    assert record(tmp_path / "out")["unfit"] == {"c": 1}
    assert "warning: extra column c: 1 value is not" in capfd.readouterr().out
    if kind.startswith("list"):
        return
    cells = "".join(f"one,{value}\n" for value in values)
    (tmp_path / "in.csv").write_text(f"text,c\n{cells}")
    assert embed(tmp_path / "csv", tiny_bundle, tmp_path / "in.csv", extra_columns=f"c:{kind}") == 0
    assert rows(tmp_path / "csv")["c"] == expected + [None] * (len(values) - len(expected))
    assert "unfit" not in record(tmp_path / "csv")


def test_types_of_mongodb_are_read(tmp_path, tiny_bundle):
    """As mongoexport writes them, relaxed and canonical."""
    day, long = "2026-01-02T03:04:05Z", {"$numberLong": "1767323045000"}
    path = write_json(
        tmp_path / "in.json",
        {"_id": {"$oid": "5f0e"}, "text": "one", "n": {"$numberLong": "5"}, "at": {"$date": day}},
        {"_id": {"$oid": "60ab"}, "text": "two", "n": 6, "at": {"$date": long}},
    )
    flags = {"id_column": "_id", "extra_columns": "n:int64,at:timestamp"}
    assert embed(tmp_path / "out", tiny_bundle, path, **flags) == 0
    found = rows(tmp_path / "out")
    assert (found["id"], found["n"]) == (["5f0e", "60ab"], [5, 6])
    assert found["at"] == [datetime.datetime.fromisoformat(day)] * 2


def test_short_numbers_are_no_seconds_since_1970(tmp_path, tiny_bundle):
    lines = [{"text": "one", "c": number} for number in (2015, 202605, 0, 20241340, -5)]
    write_json(tmp_path / "in.jsonl", *lines)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", extra_columns="c:date") == 0
    assert rows(tmp_path / "out")["c"] == [None] * 5
    assert record(tmp_path / "out")["unfit"] == {"c": 5}


def test_a_string_column_keeps_what_means_missing_elsewhere(tmp_path, tiny_bundle):
    (tmp_path / "in.csv").write_text("text,c\none,NA\ntwo,\\N\nthree,\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.csv", extra_columns="c") == 0
    assert rows(tmp_path / "out")["c"] == ["NA", r"\N", ""]


def test_an_infinite_number_is_no_string(tmp_path, tiny_bundle):
    numbers = ("1e400", "-Infinity", "1.5", "NaN", '"null"')
    lines = "".join(f'{{"text": "one", "c": {number}}}\n' for number in numbers)
    (tmp_path / "in.jsonl").write_text(lines)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", extra_columns="c") == 0
    assert rows(tmp_path / "out")["c"] == [None, None, "1.5", None, "null"]
    assert record(tmp_path / "out")["unfit"] == {"c": 2}


def test_json_lines_have_the_columns_too(tmp_path, tiny_bundle):
    pq.write_table(typed_table(), tmp_path / "in.parquet")
    output = tmp_path / "out"
    flags = {"extra_columns": ",".join(TYPED), "output_format": "jsonl", "part_docs": 2}
    assert embed(output, tiny_bundle, tmp_path / "in.parquet", **flags) == 0
    lines = [line for path in data_files(output) for line in path.open()]
    found = [json.loads(line) for line in lines]
    assert [row["id"] for row in found] == [10, 11, 12]
    assert {name: found[0][name] for name in TYPED} == {
        "c_int": 1,
        "c_small": 1,
        "c_unsigned": 2**63,
        "c_float": 0.5,
        "c_single": 0.1,
        "c_bool": True,
        "c_text": "ä",
        "c_kind": "x",
        "c_day": "2024-05-06",
        "c_instant": "2024-05-06T07:08:09.123456Z",
        "c_seconds": "2024-05-06T07:08:09.123",
        "c_time": "01:02:03.000000",
        "c_money": "1.25",
        "c_tags": ["a", "b"],
        "c_numbers": [1, 2],
    }
    assert all(found[1][name] is None for name in TYPED if name != "c_kind")


def test_types_of_other_programs_pass_through(tmp_path, tiny_bundle):
    """The first file's `author` has no value, as pandas writes an empty column."""
    table = pa.table({"id": ["a"], "text": ["one"], "author": pa.nulls(1), "n": pa.nulls(1)})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = {
        "id": ["b"],
        "text": ["two"],
        "author": pa.array(["x"], pa.string_view()),
        "n": pa.array([1.5], pa.float16()),
    }
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    instant = pa.array([INSTANT.replace(tzinfo=None)], pa.timestamp("ns"))
    pq.write_table(
        pa.table(columns | {"id": ["c"], "at": instant, "raw": [b"caf\xc3\xa9"]}),
        tmp_path / "c.parquet",
        use_deprecated_int96_timestamps=True,
    )
    for path in (tmp_path / "a.parquet", tmp_path / "b.parquet"):
        assert path.exists()
    output = tmp_path / "out"
    inputs = [tmp_path / f"{name}.parquet" for name in "ab"]
    assert embed(output, tiny_bundle, *inputs, extra_columns="author,n") == 0
    assert (rows(output)["author"], rows(output)["n"]) == ([None, "x"], [None, 1.5])
    flags = {"extra_columns": "at,raw"}
    assert embed(tmp_path / "int96", tiny_bundle, tmp_path / "c.parquet", **flags) == 0
    found = rows(tmp_path / "int96")
    assert (found["at"], found["raw"]) == ([INSTANT.replace(tzinfo=None)], ["café"])


def test_documents_whose_files_have_no_columns_get_null(tmp_path, tiny_bundle):
    (tmp_path / "a.csv").write_text("text,n\none,1\n")
    pq.write_table(pa.table({"text": ["two"], "n": [2]}), tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("three\n")
    (tmp_path / "d.jsonl").write_text('{"text": "four", "n": 4}\n{"text": "five"}\n')
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, tmp_path / "*.*", extra_columns="n") == 0
    assert rows(output)["n"] == [1, 2, None, 4, None]


def test_a_document_that_fails_in_the_model_takes_its_columns_along():
    block = embedding_block(vectors=numbers(3), extra=pa.table({"c": [1, 2, 3]}))
    kept = take_documents(block, np.array([0, 2]))
    assert kept.extra.to_pydict() == {"c": [1, 3]}


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_they_stand_beside_every_kind_of_vector_and_are_repeated_for_windows(
    tmp_path, tiny_bundle, output_format
):
    lines = [
        {"id": "a", "text": "one two three four five six seven eight nine ten", "c": 1},
        {"id": "none", "text": "\u200b", "c": 2},
        {"id": "b", "text": "one", "c": 3},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "out"
    flags = {"long_text": "windows", "max_seq_length": 8, "overlap": 2}
    flags |= {"granularity": "sentence,token,word", "extra_columns": "c:int64,text"}
    flags |= {"output_format": output_format}
    assert embed(output, tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    for kind in ("windows", "tokens", "words"):
        (path,) = output.glob(f"{kind}/part-*")
        if output_format == "jsonl":
            found = [json.loads(line) for line in path.open()]
        else:
            found = pq.read_table(path).to_pylist()
            assert pq.read_schema(path).names[-2:] == ["c", "text"]
        numbers = [row["c"] for row in found]
        if kind == "windows":
            assert len(numbers) > 2
            assert [row["id"] for row in found] == ["a" if n == 1 else "b" for n in numbers]
            assert sorted(set(numbers)) == [1, 3]
        else:
            assert numbers == [1, 3]
        assert found[-1]["text"] == "one"


def test_another_column_is_another_run(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.csv").write_text("id,text,a,b\n1,one,2,3\n")
    output = tmp_path / "out"
    flags = {"extra_columns": "a"}
    assert embed(output, tiny_bundle, tmp_path / "in.csv", **flags) == 0
    assert embed(output, tiny_bundle, tmp_path / "in.csv", **flags) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert embed(output, tiny_bundle, tmp_path / "in.csv", extra_columns="a:int64") == 2
    assert "holds another run (--extra_columns changed since)" in capsys.readouterr().err
    assert embed(output, tiny_bundle, tmp_path / "in.csv", extra_columns="b", overwrite=True) == 0
    assert rows(output)["b"] == ["3"]


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_lists_of_json_pass_through_beside_words(tmp_path, tiny_bundle, output_format):
    tags = [["NN", None, "VB"], [], None, ["ä"]]
    numbers = [[1.5, 2], [3], None, []]
    lines = [
        {"id": str(n), "text": ["the", "bank"], "tags": tags[n], "n": numbers[n]} for n in range(4)
    ]
    bad = [{"id": "4", "text": "a", "tags": "NN"}, {"id": "5", "text": "a", "tags": [1]}]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, [*lines, *bad])))
    output, flags = tmp_path / "out", {"extra_columns": "tags:list_string,n:list_float64"}
    flags |= {"granularity": "word", "output_format": output_format}
    assert embed(output, tiny_bundle, path, **flags) == 0
    (written_file,) = data_files(output, "words")
    if output_format == "parquet":
        found = pq.read_table(written_file).to_pylist()
    else:
        found = [json.loads(line) for line in written_file.read_text("utf-8").splitlines()]
    assert [row["tags"] for row in found] == [*tags, None, ["1"]]
    assert [row["n"] for row in found] == [*numbers, None, None]
    assert record(output)["unfit"] == {"tags": 1}


def test_lists_are_refused_for_csv(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.csv").write_text("text,tags\none,a\n")
    flags = {"extra_columns": "tags:list_string"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.csv", **flags) == 2
    assert "which CSV files cannot hold" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("Embedding", "--extra_columns Embedding clashes with the output's own column"),
        ("start", "--extra_columns start clashes"),
        ("n,N", "--extra_columns names N twice"),
        (":int64", "--extra_columns must be names, or name:type with one of string, int64"),
        ("n:int32", "--extra_columns n:int32: int32 is not available, types are string, int64"),
        ("n:color", "n:color: color is not available, types are string, int64, float64"),
        ("n:", "--extra_columns n:: an empty type is not available, types are string"),
        ("n,,m", "--extra_columns must be names"),
        ("m", "--extra_columns m is not in the first records of"),
        ("n", "--extra_columns n is int64 in the first records of"),
        ("l", "--extra_columns l is list_string in the first records of"),
    ],
)
def test_what_cannot_pass_through_is_said_before_work(
    tmp_path, tiny_bundle, capsys, asked, message
):
    (tmp_path / "in.jsonl").write_text(
        '{"text": "one", "n": 1, "N": 1, "l": []}\n{"text": "two", "l": ["a"]}\n'
    )
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", extra_columns=asked) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("asked", "column", "message"),
    [
        ("c", pa.array([{"a": 1}]), "--extra_columns c is struct<a: int64> in"),
        ("c", pa.array([[[1]]]), "--extra_columns c is list<"),
        ("d", pa.array([1]), "--extra_columns d is not a column of"),
    ],
)
def test_what_parquet_cannot_pass_through_is_named(
    tmp_path, tiny_bundle, capsys, asked, column, message
):
    pq.write_table(pa.table({"text": ["one"], "c": column}), tmp_path / "in.parquet")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.parquet", extra_columns=asked) == 2
    assert message in capsys.readouterr().err


def write_parquet(path, *columns):
    """A file for each column, whose rows follow one another."""
    path.mkdir()
    for number, column in enumerate(columns):
        texts = [f"the river {row}" for row in range(len(column))]
        pq.write_table(pa.table({"text": texts, "c": column}), path / f"{number}.parquet")
    return path


VIEWS = pa.array([["x"], ["y", "z"], None], pa.list_(pa.string_view()))
BOOLS = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
ZONED = pa.array([datetime.datetime(2024, 1, 2, 3)], pa.timestamp("us", "Europe/Berlin"))
PRICES = [decimal.Decimal("1.5"), decimal.Decimal("12345.25")]
NUMBERS = pa.array([2004, None], pa.float64())


@pytest.mark.parametrize(
    ("asked", "columns", "values", "kind"),
    [
        ("c", [pa.array([2001], pa.int32()), NUMBERS], [2001, 2004, None], "double"),
        ("c", [pa.array([1], pa.int32()), pa.array([2])], [1, 2], "int64"),
        ("c", [pa.array([2**53 + 1]), pa.array([0.5])], [None, 0.5], "double"),
        (
            "c",
            [pa.array([decimal.Decimal("1.5")]), pa.array([decimal.Decimal("12345.25")])],
            [decimal.Decimal("1.50"), decimal.Decimal("12345.25")],
            None,
        ),
        ("c", [pa.nulls(1), pa.array(["x"])], [None, "x"], "string"),
        ("c:string", [pa.array([7]), pa.array(["007"])], ["7", "007"], "string"),
        ("c:int64", [pa.array(["1", "A-7", "2.0"])], [1, None, 2], "int64"),
        ("c:int64", [pa.array([1.0, 2.5])], [1, None], "int64"),
        ("c:string", [pa.array([{"a": 1, "b": ["x"]}])], ['{"a":1,"b":["x"]}'], "string"),
        ("c:timestamp", [ZONED], [ZONED[0].as_py()], "timestamp[us, tz=UTC]"),
        ("c", [VIEWS], [["x"], ["y", "z"], None], None),
        ("c", [VIEWS, VIEWS[:1]], [["x"]], None),
        ("c", [pa.array(['{"n": 1}'], pa.json_())], ['{"n": 1}'], "string"),
        ("c", [BOOLS], [1, None], "int8"),
        ("c.year", [pa.array([{"year": 2024}, None])], [2024, None], "int64"),
    ],
)
def test_columns_of_parquet_keep_their_values(
    tmp_path, tiny_bundle, asked, columns, values, kind, capsys
):
    source = write_parquet(tmp_path / "in", *columns)
    assert embed(tmp_path / "out", tiny_bundle, source, extra_columns=asked) == 0
    table = pa.concat_tables(map(pq.read_table, sorted(tmp_path.glob("out/embeddings/*"))))
    column = table[asked.partition(":")[0]]
    assert column.to_pylist()[-len(values) :] == values
    assert kind in (None, str(column.type))
    lost = values.count(None) - sum(each.null_count for each in columns)
    assert (f"{lost} value" in capsys.readouterr().out) == (lost > 0)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_partitions_are_columns(tmp_path, tiny_bundle, kind):
    """What a file's own column says counts, and a partition of null is null."""
    for number, folder in enumerate(
        ["lang=de/year=2024", "lang=__HIVE_DEFAULT_PARTITION__/year=x"]
    ):
        path = tmp_path / "in" / folder / f"a.{kind}"
        path.parent.mkdir(parents=True)
        table = pd.DataFrame({"id": [f"d{number}"], "text": ["the river"]})
        table = table.assign(year=[7]) if number else table
        if kind == "jsonl":
            table.to_json(path, orient="records", lines=True)
        else:
            (table.to_parquet if kind == "parquet" else partial(table.to_csv, index=False))(path)
    asked = "lang,year:int64"
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in", extra_columns=asked) == 0
    found = rows(tmp_path / "out")
    by_id = dict(zip(found["id"], zip(found["lang"], found["year"], strict=True), strict=True))
    assert by_id == {"d0": ("de", 2024), "d1": (None, 7)}


OBJECTS = [
    {"_id": {"$oid": "5f"}, "_source": {"text": "the bank", "meta": {"year": 1, "tags": ["x"]}}},
    {"_id": {"$oid": "60"}, "_source": {"text": "the river", "meta": None}, "late": {"a": 1}},
]


def test_fields_of_objects_have_dotted_names(tmp_path, tiny_bundle, capsys):
    path = write_json(tmp_path / "in.jsonl", *OBJECTS)
    flags = {"text_column": "_source.text", "id_column": "_id", "keep_text": True}
    asked = "_source.meta,_source.meta.year:int64,late"
    assert embed(tmp_path / "out", tiny_bundle, path, extra_columns=asked, **flags) == 0
    found = rows(tmp_path / "out")
    assert (found["id"], found["text"]) == (["5f", "60"], ["the bank", "the river"])
    assert found["_source.meta"] == ['{"year":1,"tags":["x"]}', None]
    assert found["_source.meta.year"] == [1, None]
    assert found["late"] == [None, '{"a":1}']
    assert embed(tmp_path / "none", tiny_bundle, path) == 2
    assert "did you mean text_column _source.text?" in capsys.readouterr().err.replace("--", "")


@pytest.mark.parametrize("packed", [False, True])
def test_columns_may_come_late(tmp_path, tiny_bundle, packed, capsys):
    records = [
        {"id": n, "text": "the river"} | ({"doi": f"10/{n}"} if n > 150 else {}) for n in range(160)
    ]
    text = "".join(json.dumps(each) + "\n" for each in records).encode()
    path = tmp_path / ("in.jsonl.gz" if packed else "in.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert embed(tmp_path / "out", tiny_bundle, path, extra_columns="doi") == 0
    assert rows(tmp_path / "out")["doi"] == [each.get("doi") for each in records]
    assert embed(tmp_path / "typo", tiny_bundle, path, extra_columns="dio") == 2
    assert "extra_columns dio is not in the first records" in capsys.readouterr().err


def test_an_explicit_type_wins(tmp_path, tiny_bundle, capsys):
    codes = [*map(str, range(120)), "A-7", "007"]
    written = [int(code) if number < 120 else code for number, code in enumerate(codes)]
    path = write_json(tmp_path / "in.jsonl", *({"text": "a", "code": code} for code in written))
    assert embed(tmp_path / "out", tiny_bundle, path, extra_columns="code:string") == 0
    assert rows(tmp_path / "out")["code"] == codes
    assert embed(tmp_path / "implicit", tiny_bundle, path, extra_columns="code") == 2
    assert "write code:int64, or code:string for the text that" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subtype", "expected"),
    [("04", "624ad879-d338-40a1-a4ab-4964713678a0"), ("00", "YkrYedM4QKGkq0lkcTZ4oA==")],
)
def test_binary_ids_of_mongodb(tmp_path, tiny_bundle, subtype, expected):
    value = {"$binary": {"base64": "YkrYedM4QKGkq0lkcTZ4oA==", "subType": subtype}}
    path = write_json(tmp_path / "in.jsonl", {"_id": value, "text": "the river"})
    assert embed(tmp_path / "out", tiny_bundle, path, id_column="_id") == 0
    assert rows(tmp_path / "out")["id"] == [expected]
