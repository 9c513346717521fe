"""Extra columns of every type in files for BigQuery, by its documented Parquet conversions."""

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.transforms.bigquery.load import TableLoad, job_files
from tests.support.command import data_files, record

# What BigQuery's page "Loading Parquet data" lists, by physical and logical type.
DOCUMENTED = {
    ("BOOLEAN", "NONE"): "BOOL",
    **dict.fromkeys([("INT32", "NONE"), ("INT32", "INT"), ("INT64", "NONE")], "INT64"),
    ("INT32", "DATE"): "DATE",
    ("INT64", "TIME us"): "TIME",
    ("INT64", "TIMESTAMP ms UTC"): "TIMESTAMP",
    ("INT64", "TIMESTAMP us UTC"): "TIMESTAMP",
    ("INT64", "TIMESTAMP ms"): "DATETIME",
    ("INT64", "TIMESTAMP us"): "DATETIME",
    ("FLOAT", "NONE"): "FLOAT64",
    ("DOUBLE", "NONE"): "FLOAT64",
    ("BYTE_ARRAY", "STRING"): "STRING",
    ("FIXED_LEN_BYTE_ARRAY", "DECIMAL"): "NUMERIC",
}
SMALL = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
EPOCH = datetime.datetime(1970, 1, 1)
DAY, LATE = datetime.date(2024, 5, 6), 253_402_300_800_000  # the year 10000, in milliseconds
NANOS = 1_714_979_289_123_456_789
MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
IN_MS = MOMENT.replace(microsecond=123000)
# Values with a null, and what becomes of them; others are as they were.
COLUMNS = {
    **{f"c_{kind}": (pa.array([7, None, 9], kind), None) for kind in SMALL},
    "c_uint64": (pa.array([2**63, None, 3], pa.uint64()), [None, None, 3]),
    "c_half": (pa.array([1.5, None, -2], pa.float16()), None),
    "c_single": (pa.array([0.5, None, 3], pa.float32()), None),
    "c_double": (pa.array([0.1, None, -1e300]), None),
    "c_bool": (pa.array([True, None, False]), None),
    "c_string": (pa.array(["ä", None, ""], pa.large_string()), None),
    "c_kind": (pa.array(["x", None, "x"]).dictionary_encode(), None),
    "c_bytes": (pa.array([b"a", None, b""]), ["a", None, ""]),
    "c_date": (pa.array([DAY, None, DAY]), None),
    "c_date64": (pa.array([DAY, None, DAY], pa.date64()), None),
    "c_late": (pa.array([0, None, 2_932_897], pa.date32()), [EPOCH.date(), None, None]),
    "c_seconds": (pa.array([datetime.time(1, 2, 3), None, None], pa.time32("s")), None),
    "c_millis": (pa.array([datetime.time(1, 2, 3), None, None], pa.time32("ms")), None),
    "c_time": (
        pa.array([1_999, None, 0], pa.time64("ns")),
        [EPOCH.replace(microsecond=1).time(), None, EPOCH.time()],
    ),
    "c_at_ms": (pa.array([IN_MS, None, MOMENT.min], pa.timestamp("ms")), None),
    "c_at_us": (pa.array([MOMENT, None, MOMENT.max], pa.timestamp("us")), None),
    "c_at_ns": (pa.array([NANOS, None, -1], pa.timestamp("ns")), [MOMENT, None, EPOCH]),
    "c_in_utc": (
        pa.array([NANOS, None, None], pa.timestamp("ns", "UTC")),
        [MOMENT.replace(tzinfo=datetime.UTC), None, None],
    ),
    "c_in_zone": (
        pa.array([LATE, None, 0], pa.timestamp("ms", "Europe/Berlin")),
        [None, None, EPOCH.replace(tzinfo=datetime.UTC)],
    ),
    "c_money": (pa.array([decimal.Decimal("1.25"), None, None], pa.decimal128(10, 2)), None),
    "c_tags": (pa.array([["a", None, "b"], None, [None]]), [["a", "b"], None, []]),
    "c_halves": (pa.array([[1.5, None], [], [2]], pa.list_(pa.float16())), [[1.5], [], [2.0]]),
    "c_large_lists": (
        pa.array([[2**63, 1], None, [None]], pa.large_list(pa.uint64())),
        [None, None, []],
    ),
}
UNFIT = {"c_uint64": 1, "c_late": 1, "c_in_zone": 1, "c_tags": 2, "c_halves": 1}
UNFIT |= {"c_large_lists": 2}


def leaves(path):
    """Physical and logical type of each column of a file, and its definition level."""
    schema = pq.ParquetFile(path).schema
    found = {}
    for number in range(len(schema)):
        column = schema.column(number)
        logical = json.loads(column.logical_type.to_json())
        name, unit = logical["Type"].upper(), logical.get("timeUnit")
        if unit is not None:
            short = {"milliseconds": " ms", "microseconds": " us"}.get(unit, f" {unit}")
            is_utc = name == "TIMESTAMP" and logical["isAdjustedToUTC"]
            name += short + " UTC" * is_utc
        found[column.path] = column.physical_type, name, column.max_definition_level
    return found


def test_every_type_is_one_that_bigquery_loads(bigquery, dataset, run, load, tmp_path):
    table = {"id": ["a", "b", "c"], "text": ["one", "two", "three"]}
    table |= {name: values for name, (values, _) in COLUMNS.items()}
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    output = load(tmp_path / "in.parquet", extra_columns=",".join(COLUMNS))
    place, [path] = f"test-project.{dataset}.v", data_files(output)
    columns, stored = leaves(path), pq.read_table(path)
    fields = {field.name: field for field in bigquery.client.get_table(place).schema}
    assert columns["id"] == ("BYTE_ARRAY", "STRING", 0)  # required
    for name, (values, expected) in COLUMNS.items():
        listed = name in ("c_tags", "c_halves", "c_large_lists")
        *kind, level = columns[f"{name}.list.element" if listed else name]
        expected_field = DOCUMENTED[tuple(kind)], "REPEATED" if listed else "NULLABLE"
        assert (fields[name].field_type, fields[name].mode) == expected_field, name
        assert level == (3 if listed else 1), name
        assert stored[name].to_pylist() == (expected or values.to_pylist()), name
    assert record(output)["unfit"] == UNFIT
    assert "extra column c_tags: 2 values are left out: null elements, which no ARRAY" in run.out
    assert "extra column c_uint64: 1 value is not int64, and null" in run.out
    sql = f"SELECT c_at_ns, c_half, c_uint64, c_tags FROM `{place}` ORDER BY id"
    assert bigquery.rows(sql)[0] == (MOMENT, 1.5, None, ["a", "b"])


def test_what_bigquery_has_no_type_for_is_said_first(dataset, run, tmp_path):
    wide = pa.array([decimal.Decimal(1)], pa.decimal256(76, 0))
    pq.write_table(pa.table({"id": ["a"], "text": ["one"], "n": wide}), tmp_path / "in.parquet")
    into = {"output_format": "bigquery", "output_table": f"test-project.{dataset}.v"}
    message = "column n: BigQuery has no column for values of type decimal256(76, 0)"
    run.refused(tmp_path / "in.parquet", message, extra_columns="n", **into)


def test_a_load_job_has_at_most_10_tb():
    load = TableLoad("gs://bucket/out", "", None, "append", "test-project")
    sizes = {"a": 6 * 10**12, "b": 4 * 10**12, "c": 1}
    assert job_files(load, sizes) == [["a", "b"], ["c"]]
