"""Extra columns and kept texts: what stands beside a text stands beside its vector."""

import datetime
import decimal
import json

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tests.support.command import data_files, flags_of, record, rejected, rows, write_table

pytestmark = pytest.mark.slow

UTC = datetime.UTC
INSTANT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
SECONDS = INSTANT.replace(microsecond=0)
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


def written(output):
    return pa.concat_tables([pq.read_table(path) for path in data_files(output)])


def test_columns_of_parquet_keep_their_types(tmp_path, run):
    """Those that Polars writes itself, and those that are left to Arrow; as JSON, too."""
    table = {"id": [10, 11, 12], "text": ["one", "two", "three"]}
    pq.write_table(pa.table(table | TYPED), tmp_path / "in.parquet")
    output = run(tmp_path / "in.parquet", extra_columns=",".join(TYPED), limit=3)
    table = written(output)
    facts = ["num_tokens", "num_tokens_full", "truncated", "text_hash"]
    assert table.column_names == ["id", "embedding", *facts, *TYPED]
    for name, column in TYPED.items():
        assert table[name].to_pylist() == column.to_pylist(), name
        is_text = name in ("c_text", "c_kind")
        assert table[name].type == (pa.string() if is_text else column.type), name
    assert record(output)["input"]["extra_columns"]["c_money"] == "decimal128(10, 2)"
    flags = {"extra_columns": ",".join(TYPED), "output_format": "jsonl", "part_docs": 2}
    output = run(tmp_path / "in.parquet", "lines", **flags)
    found = [json.loads(line) for path in data_files(output) for line in path.open()]
    assert [row["id"] for row in found] == [10, 11, 12]
    plain = {"c_int": 1, "c_small": 1, "c_unsigned": 2**63, "c_float": 0.5, "c_single": 0.1}
    plain |= {"c_bool": True, "c_text": "ä", "c_kind": "x", "c_day": "2024-05-06"}
    plain |= {"c_instant": "2024-05-06T07:08:09.123456Z", "c_seconds": "2024-05-06T07:08:09.123"}
    plain |= {"c_time": "01:02:03.000000", "c_money": "1.25"}
    plain |= {"c_tags": ["a", "b"], "c_numbers": [1, 2]}
    assert {name: found[0][name] for name in TYPED} == plain
    assert all(found[1][name] is None for name in TYPED if name != "c_kind")


def test_columns_of_text_formats_have_the_types_that_are_asked_for(run):
    asked = "name:string,n:INT64,x:float64,ok:bool,at:timestamp,day:date"
    good = {"name": "a", "n": -3, "x": 2, "ok": True, "at": "2024-05-06T07:08:09.5+02:00"}
    values = [good | {"day": "2024-05-06"}, {"n": None}, {"n": 1.5}, {"day": "2024-13-01"}]
    lines = [{"id": number, "text": "one"} | row for number, row in enumerate(values, 1)]
    table = (
        "id,text,name,n,x,ok,at,day\n"
        "a,one,a,-3,2,True,2024-05-06T07:08:09.5+02:00,2024-05-06\n"
        "b,two,,,,,,\n"
        "c,three,,3.5,,maybe,,\n"
    )
    output = run({"in.csv": table, "in.jsonl": lines}, extra_columns=asked)
    kinds = ["string", "int64", "double", "bool", "timestamp[us, tz=UTC]", "date32[day]"]
    assert list(map(str, written(output).schema.types[6:])) == kinds
    day, at = datetime.date(2024, 5, 6), datetime.datetime(2024, 5, 6, 5, 8, 9, 500000, UTC)
    found = {row.pop("id"): list(row.values())[5:] for row in written(output).to_pylist()}
    assert found["a"] == found["1"] == ["a", -3, 2.0, True, at, day]
    assert found["b"] == found["c"] == ["", None, None, None, None, None]
    assert found["2"] == found["3"] == found["4"] == [None] * 6
    assert rejected(output) == []
    assert record(output)["unfit"] == {"day": 1, "n": 2, "ok": 1}
    assert "warning: extra column day: 1 value is not" in run.out


def test_documents_whose_files_have_no_columns_get_null(tmp_path, run):
    pq.write_table(pa.table({"text": ["two"], "n": [2]}), tmp_path / "b.parquet")
    lines = [{"text": "four", "n": 4}, {"text": "five"}]
    run.written({"a.csv": "text,n\none,1\n", "c.txt": "three\n", "d.jsonl": lines})
    assert rows(run(tmp_path / "*.*", extra_columns="n"))["n"] == [1, 2, None, 4, None]


def rows_of(output, kind):
    """The rows of the one file of a kind."""
    (path,) = data_files(output, kind)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.open()]
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_they_stand_beside_every_kind_of_vector_and_are_repeated_for_windows(run, output_format):
    lines = [
        {"id": "a", "text": "one two three four five six seven eight nine ten", "c": 1},
        {"id": "none", "text": "\u200b", "c": 2},
        {"id": "b", "text": "one", "c": 3},
    ]
    flags = {"long_text": "windows", "max_seq_length": 8, "overlap": 2}
    flags |= {"granularity": "sentence,token,word", "extra_columns": "c:int64,text"}
    output = run({"in.jsonl": lines}, output_format=output_format, **flags)
    windows = rows_of(output, "windows")
    assert [(row["id"], row["c"]) for row in windows] == [("a", 1)] * (len(windows) - 1) + [
        ("b", 3)
    ]
    assert len(windows) > 2
    for kind in ("tokens", "words"):
        assert [row["c"] for row in rows_of(output, kind)] == [1, 3]
        assert list(rows_of(output, kind)[0])[-2:] == ["c", "text"]
        assert rows_of(output, kind)[-1]["text"] == "one"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("Embedding", "--extra_columns Embedding clashes with the output's own column"),
        ("start", "--extra_columns start clashes"),
        ("n,N", "--extra_columns names N twice"),
        (":int64", "--extra_columns must be names, or name:type with one of string, int64"),
        ("n:int32", "--extra_columns n:int32: int32 is not available, types are string, int64"),
        ("n:", "--extra_columns n:: an empty type is not available, types are string"),
        ("m", "--extra_columns m is not in the first records of"),
        ("n", "--extra_columns n is int64 in the first records of"),
        ("l", "--extra_columns l is list_string in the first records of"),
    ],
)
def test_what_cannot_pass_through_is_said_before_work(run, asked, message):
    lines = [{"text": "one", "n": 1, "N": 1, "l": []}, {"text": "two", "l": ["a"]}]
    run.refused({"in.jsonl": lines}, message, extra_columns=asked)


@pytest.mark.parametrize(
    ("asked", "column", "message"),
    [
        ("c", pa.array([{"a": 1}]), "--extra_columns c is struct<a: int64> in"),
        ("c", pa.array([[[1]]]), "--extra_columns c is list<"),
        ("d", pa.array([1]), "has text, c; if only some files lack it, write it there, empty"),
        ("d", None, "has text, c; if only some files lack it, write it there, empty"),
        ("c:list_string", None, "which CSV files cannot hold"),
    ],
)
def test_what_tables_cannot_pass_through_is_named(tmp_path, run, asked, column, message):
    source = {"in.csv": "text,c\none,a\n"}
    if column is not None:
        source = tmp_path / "in.parquet"
        pq.write_table(pa.table({"text": ["one"], "c": column}), source)
    run.refused(source, message, extra_columns=asked)


VIEWS = pa.array([["x"], ["y", "z"], None], pa.list_(pa.string_view()))
JSONS = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["{}"], pa.json_()))
UUIDS = pa.array([bytes(15) + b"\5"], pa.binary(16)).cast(pa.uuid())
UUIDS = pa.ListArray.from_arrays(pa.array([None, 0, 1], pa.int32()), UUIDS)
BOOLS = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
ZONED = pa.array([datetime.datetime(2024, 1, 2, 3)], pa.timestamp("us", "Europe/Berlin"))
EPOCH = "1970-01-01 00:00:00.000000Z"
NUMBERS = pa.array([2004, None], pa.float64())
D = decimal.Decimal


# What is asked for behind a column's name, what one file or two hold, the values, and their type.
VALUES = [
    ("", [pa.array([2001], pa.int32()), NUMBERS], [2001, 2004, None], "double"),
    ("", [pa.array([1], pa.int32()), pa.array([2])], [1, 2], "int64"),
    ("", [pa.array([2**53 + 1]), pa.array([0.5])], [None, 0.5], "double"),
    ("", [pa.array([D("1.5")]), pa.array([D("12345.25")])], [D("1.50"), D("12345.25")], None),
    ("", [pa.array([D("1.5")]), pa.array([10**12])], [D("1.5"), D(10**12)], None),
    ("", [pa.array([2**63], pa.uint64()), pa.array([-1])], [D(2**63), D(-1)], None),
    ("", [pa.nulls(1), pa.array(["x"], pa.string_view())], [None, "x"], "string"),
    ("", [pa.nulls(1), pa.array([1.5], pa.float16())], [None, 1.5], None),
    ("", [pa.array(["café".encode()])], ["café"], "string"),
    (":string", [pa.array([7]), pa.array(["007"])], ["7", "007"], "string"),
    (":int64", [pa.array(["1", "A-7", "2.0", "0x1A"])], [1, None, 2, None], "int64"),
    (":int64", [pa.array([1.0, 2.5])], [1, None], "int64"),
    (":string", [pa.array([{"a": 1, "b": ["x"]}])], ['{"a":1,"b":["x"]}'], "string"),
    (":string", [pa.array([{"a": b"b"}])], ['{"a":"b"}'], "string"),
    (":string", [pa.array([[("a", 1)]], pa.map_("string", "int64"))], ['{"a":1}'], "string"),
    (":timestamp", [ZONED], [ZONED[0].as_py()], "timestamp[us, tz=UTC]"),
    (":timestamp", [pa.array([1714979289])], [SECONDS], "timestamp[us, tz=UTC]"),
    # Infinite dates and times, as DuckDB writes them, of which Arrow has no text or a wrong year.
    (":string", [pa.array([2**63 - 1, 0], pa.timestamp("us", "UTC"))], [None, EPOCH], "string"),
    (":string", [pa.array([2**31 - 1, 0], pa.date32())], [None, "1970-01-01"], "string"),
    (":date", [pa.array([20240506, 5], pa.int32())], [SECONDS.date(), None], "date32[day]"),
    (":bool", [pa.array([1, 2])], [True, None], "bool"),
    (":bool", [pa.array([D("1.25")])], [None], "bool"),
    (":int64", [pa.array([D("2.00"), D("1.25")])], [2, None], "int64"),
    ("", [VIEWS], [["x"], ["y", "z"], None], None),
    ("", [pa.array([[], None]), pa.array([[1]])], [[], None, [1]], "list<element: int64>"),
    ("", [pa.array([[], None])], [[], None], "list<element: string>"),
    (".year", [pa.nulls(1), pa.array([{"year": 2024}])], [None, 2024], "int64"),
    ("", [VIEWS, VIEWS[:1]], [["x"], ["y", "z"], None, ["x"]], None),
    ("", [pa.array([[1], None, [2, 3]], pa.list_view(pa.int64()))], [[1], None, [2, 3]], None),
    ("", [pa.array(['{"n": 1}'], pa.json_())], ['{"n": 1}'], "string"),
    ("", [BOOLS], [1, None], "int8"),
    ("", [JSONS], [["{}"]], None),
    ("", [UUIDS], [None, ["00000000-0000-0000-0000-000000000005"]], None),
    (".year", [pa.array([{"year": 2024}, None])], [2024, None], "int64"),
]


@pytest.mark.parametrize("files", [1, 2])
def test_columns_of_parquet_keep_their_values(tmp_path, run, files):
    """All at once, each behind nulls that make it as long as the others."""
    chosen = {f"c{n}": row for n, row in enumerate(VALUES) if len(row[1]) == files}
    for number in range(files):
        held = {name: columns[number] for name, (_, columns, _, _) in chosen.items()}
        longer = {n: pa.concat_arrays([pa.nulls(4 - len(c), c.type), c]) for n, c in held.items()}
        path = tmp_path / "in" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [*"abcd"]} | longer), path)
    output = run(tmp_path / "in", extra_columns=",".join(n + row[0] for n, row in chosen.items()))
    for name, (asked, columns, values, kind) in chosen.items():
        shown = name + asked.partition(":")[0]
        column = written(output)[shown]
        tails = [column[4 * at : 4 * at + 4][4 - len(each) :] for at, each in enumerate(columns)]
        assert [value for tail in tails for value in tail.to_pylist()] == values, name
        assert kind in (None, str(column.type)), name
        lost = values.count(None) - sum(each.null_count for each in columns)
        assert (f"extra column {shown}: {lost} value" in run.out) == (lost > 0), name


def test_partitions_are_columns(tmp_path, run):
    """What a file's own column says counts, and a partition of null is null."""
    null = "lang=__HIVE_DEFAULT_PARTITION__/year=x"
    for kind in ("jsonl", "csv", "parquet"):
        for folder, row in (("lang=de/year=2024", {"id": "d0"}), (null, {"id": "d1", "year": 7})):
            write_table(tmp_path / kind / folder / f"a.{kind}", [row | {"text": "the river"}])
        found = rows(run(tmp_path / kind, f"out-{kind}", extra_columns="lang,year:int64"))
        by_id = dict(zip(found["id"], zip(found["lang"], found["year"], strict=True), strict=True))
        assert by_id == {"d0": ("de", 2024), "d1": (None, 7)}
        run.refused(tmp_path / kind, "--text_column lang is not", "none", text_column="text,lang")


OBJECTS = [
    {"_id": {"$oid": "5f"}, "_source": {"text": "the bank", "meta": {"year": 1, "tags": ["x"]}}},
    {"_id": {"$oid": "60"}, "_source": {"text": "the river", "meta": None}, "late": {"a": 1}},
]


def test_fields_of_objects_have_dotted_names(run):
    flags = {"text_column": "_source.text", "id_column": "_id", "keep_text": True}
    flags["extra_columns"] = "_source.meta,_source.meta.year:int64,late"
    found = rows(run({"in.jsonl": OBJECTS}, **flags))
    assert (found["id"], found["text"]) == (["5f", "60"], ["the bank", "the river"])
    assert found["_source.meta"] == ['{"year":1,"tags":["x"]}', None]
    assert found["_source.meta.year"] == [1, None]
    assert found["late"] == [None, '{"a":1}']
    run.refused({"in.jsonl": OBJECTS}, "did you mean --text_column _source.text?", "none")
    authors = [{"id": n, "text": "the bank", "authors": [{"name": "a"}]} for n in range(3)]
    for name in ("authors.name", "authors.0.name:string"):
        message = "in.jsonl, where authors is no object, which has authors, id, text"
        run.refused({"in.jsonl": authors}, message, "none", extra_columns=name)


def test_columns_may_come_late(run):
    records = [{"id": n, "text": "the river"} for n in range(160)]
    records = [one | ({"doi": f"10/{one['id']}"} if one["id"] > 150 else {}) for one in records]
    text = "".join(json.dumps(each) + "\n" for each in records)
    for suffix in ("jsonl", "jsonl.gz"):
        found = rows(run({f"in.{suffix}": text}, f"out-{suffix}", extra_columns="doi"))
        assert found["doi"] == [each.get("doi") for each in records]
        flags = {"text_column": "text,doi", "keep_text": True}
        found = rows(run({f"in.{suffix}": text}, f"text-{suffix}", **flags))
        assert found["text"][-1] == f"the river {records[-1]['doi']}"
        message = "extra_columns dio is not in the first records"
        run.refused({f"in.{suffix}": text}, message, "typo", extra_columns="dio")


def test_an_explicit_type_wins(run):
    codes = [*map(str, range(120)), "A-7", "007"]
    given = [int(code) if number < 120 else code for number, code in enumerate(codes)]
    source = {"in.jsonl": [{"text": "a", "code": code} for code in given]}
    assert rows(run(source, extra_columns="code:string"))["code"] == codes
    message = "write code:int64, or code:string for the text that"
    run.refused(source, message, "implicit", extra_columns="code")


@pytest.mark.parametrize("kind", ["period", "interval", "duration"])
def test_periods_and_intervals_are_refused_with_a_way_to_write_them(tmp_path, run, kind):
    """The numbers or bytes in which they are stored say nothing."""
    path = tmp_path / "in.parquet"
    if kind == "duration":
        pq.write_table(pa.table({"text": ["x y"], "iv": [datetime.timedelta(1)]}), path)
    elif kind == "interval":
        duckdb.sql(f"COPY (SELECT 'x y' AS text, INTERVAL 3 DAY AS iv) TO '{path}'")
    else:
        periods = pd.period_range("2024-01", periods=1, freq="M")
        pd.DataFrame({"text": ["x y"], "iv": periods}).to_parquet(path)
    run(path, "without")
    for name in ("iv", "iv:string") if kind != "duration" else ("iv",):
        run.refused(path, "iv.astype(str) in pandas, iv::varchar in SQL", extra_columns=name)


LONG = "the rivér bank " * 20
KEPT = {"in.txt": f"{LONG}\n\nseven\r\n"}


def test_a_window_has_its_own_text(run):
    flags = {"long_text": "windows", "max_seq_length": 16, "overlap": 2}
    found = rows(run(KEPT, keep_text=True, **flags))
    spans = list(zip(found["start"], found["stop"], strict=True))
    assert len(spans) > 4
    source = [LONG] * (len(spans) - 1) + ["seven"]
    assert found["text"] == [text[a:b] for text, (a, b) in zip(source, spans, strict=True)]
    output = run(KEPT, "tf", keep_text=True, output_format="tfrecord", **flags)
    data = tf.data.TFRecordDataset([str(path) for path in data_files(output, "windows")])
    feature = {"text": tf.io.FixedLenFeature([], tf.string)}
    texts = [tf.io.parse_single_example(each, feature)["text"].numpy().decode() for each in data]
    assert texts == found["text"]


def test_examples_bring_their_texts_along(tmp_path, run, tiny_bundle, command):
    window = {"long_text": "window", "max_seq_length": 16}
    for name, flags in (("with", {"keep_text": True}), ("without", {})):
        words = flags_of(tmp_path / name, tiny_bundle, *run.written(KEPT), **window, **flags)
        command("tokenize", *words)
    assert rows(run(tmp_path / "with", keep_text=True))["text"] == [LONG, "seven"]
    message = "tokenize the texts with --keep_text"
    run.refused(tmp_path / "without", message, "none", keep_text=True)
