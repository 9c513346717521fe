"""Columns of pairs, words and extra values, as other programs write them in JSON and CSV."""

import datetime
import json

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.records import UNFIT, fitting
from tests.support.blocks import read_input, rejected_of

UTC = datetime.UTC
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 0, UTC)
NULLS = ("NA", "NULL", "null", r"\N", "", "nan", "NaT", "<NA>")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int64", ["123", 123.0, "2015.0", " 7 ", "1e3", -3], [123, 123, 2015, 7, 1000, -3]),
        ("float64", ["1.5", 2, "-inf"], [1.5, 2.0, float("-inf")]),
        ("bool", ["true", "TRUE", "False", "t", "0", 1], [True, True, False, True, False, True]),
        (
            "timestamp",
            [
                *("2024-05-06 07:08:09 UTC", "2024-05-06T07:08:09.000Z", "2024-05-06 07:08:09"),
                *("2024-05-06 09:08:09.000 +0200", "2024-05-06T09:08:09.000+02:00"),
                *("2024-05-06 07:08:09.000000000", "2024-05-06 07:08:09+00", "20240506T070809Z"),
                *(1714979289, 1714979289000, "1714979289000000", 1714979289000000000),
            ],
            [AT] * 12,
        ),
        (
            "date",
            [
                *("2024-05-06", "2024-05-06 00:00:00 UTC", "2024-05-06T00:00:00.000"),
                *(1714953600000, 20240506, 20240506.0, "1714953600.0"),
            ],
            [AT.date()] * 7,
        ),
        ("list_int64", [["1", 2.0, "NA"], []], [[1, 2, None], []]),
        ("string", [7, "NA", r"\N", "", 1.5], ["7", "NA", r"\N", "", "1.5"]),
    ],
)
def test_values_are_read(kind, values, expected):
    assert fitting(values, kind) == expected
    if kind not in ("string", "list_int64"):
        assert fitting(NULLS, kind) == [None] * len(NULLS)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", [1.5, True, 2**63, "3.5", "1_0", {}]),
        ("float64", ["1_0", True, {}]),
        ("bool", [2, "maybe", {}]),
        # Short numbers are no seconds since 1970.
        ("date", [2015, 202605, 0, 20241340, -5, "2024-13-01", {}]),
        ("timestamp", ["2024-13-01", "soon", {}]),
        ("list_int64", [{}, "1", [1.5]]),
        ("list_string", ["NN"]),
        ("string", [float("inf"), float("-inf")]),
    ],
)
def test_what_is_no_value_of_a_type(kind, values):
    assert fitting(values, kind) == [UNFIT] * len(values)


def test_types_of_mongodb_are_read(read):
    """As mongoexport writes them, relaxed and canonical."""
    lines = [
        '{"_id": {"$oid": "5f0e"}, "text": "a", "n": {"$numberLong": "5"}, '
        '"at": {"$date": "2026-01-02T03:04:05Z"}}',
        '{"_id": {"$oid": "60ab"}, "text": "b", "n": 6, '
        '"at": {"$date": {"$numberLong": "1767323045000"}}}',
        *(
            f'{{"_id": {{"$binary": {{"base64": "YkrYedM4QKGkq0lkcTZ4oA==", "subType": "{kind}"}}'
            '}, "text": "c"}'
            for kind in ("04", "00")
        ),
        '{"_id": {"$binary": "YkrYedM4QKGkq0lkcTZ4oA==", "$type": "04"}, "text": "d", '
        '"n": {"$numberInt": "7"}, "at": {"$date": {"$numberLong": "-14256000000"}}}',
        '{"_id": {"$date": 63072000000}, "text": "e"}',
    ]
    extra = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    ids, _, [block] = read("\n".join(lines), "in.jsonl", id="_id", extra=extra)
    uuid = "624ad879-d338-40a1-a4ab-4964713678a0"
    days = ["1972-01-01T00:00:00Z"]  # milliseconds, however few
    assert ids == ["5f0e", "60ab", uuid, "YkrYedM4QKGkq0lkcTZ4oA==", uuid, *days]
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    landing = datetime.datetime(1969, 7, 20, tzinfo=UTC)
    found = [tuple(row.values()) for row in block.extra.to_pylist()]
    assert found[:2] + found[4:] == [(5, moment), (6, moment), (7, landing), (None, None)]
    assert found[2:4] == [(None, None)] * 2


def test_pairs_of_json_lines(read):
    records = [
        {"id": 1, "q": "one", "a": "two"},
        {"id": 2, "q": "one"},
        {"id": 3, "q": "one", "a": None},
        {"id": 4, "q": "one", "a": " \t"},
        {"id": 5, "q": "one", "a": 7},
        {"id": 6, "q": "one", "a": ["two"]},
        {"id": 7, "q": "one ||| two", "a": " kept as it is "},
        {"id": 8, "a": "two"},
    ]
    lines = "\n".join(map(json.dumps, records))
    ids, _, [block] = read(lines, "in.jsonl", text="q", text_b="a")
    assert ids == ["1", "2", "3", "4", "7"]
    assert block.texts == ["one"] * 4 + ["one ||| two"]
    assert block.texts_b == ["two", "", "", "", " kept as it is "]
    assert rejected_of([block]) == [
        ("5", "second text is not a string"),
        ("6", "second text is not a string"),
        ("8", "missing text"),
    ]


def test_small_files_of_a_block_keep_their_own_pairs_and_words(tmp_path):
    """A file that can have no pairs has empty second texts."""
    (tmp_path / "a.jsonl").write_text('{"text": "one", "b": "two"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": ["two", "three"]}\n')
    (tmp_path / "c.txt").write_text("three ||| four\n")
    first, second = read_input(tmp_path, Columns(text_b="b"))
    assert (first.texts, first.texts_b) == (["one", "two three"], ["two", ""])
    assert first.words == [None, ["two", "three"]]
    assert (second.texts_b, second.words) == ([""], None)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_contexts_are_the_values_of_their_columns(tmp_path, kind):
    titles, parts = ["one", None, " a title "], ["two", " ", None]
    table = pa.table({"title": titles, "part": parts, "text": ["a"] * 3, "id": [*"123"]})
    if kind == "jsonl":
        lines = [*table.to_pylist(), {"title": 7, "text": "a", "id": "4"}]
        (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    elif kind == "csv":
        csv.write_csv(table, tmp_path / "in.csv")
    else:
        title = table["title"].combine_chunks().dictionary_encode()
        pq.write_table(table.set_column(0, "title", title), tmp_path / "in.parquet")
    [block] = read_input(tmp_path, Columns(id="id", context=("title", "part")))
    assert block.contexts == ["one two", "", "a title"]
    bad = [("4", "context is not a string")]
    assert rejected_of([block]) == (bad if kind == "jsonl" else [])


def test_lists_of_words(read):
    records = [
        {"id": "a", "text": ["EU", "rejects", "German call"]},
        {"id": "b", "text": "plain text"},
        {"id": "c", "text": []},
        {"id": "d", "text": ["", " "]},
        {"id": "e", "text": ["EU", 7]},
        {"id": "f", "text": ["EU", None]},
        {"id": "g", "text": {"EU": 1}},
        {"id": "h", "text": ["", "\u200b", "end"]},
    ]
    ids, _, [block] = read("\n".join(map(json.dumps, records)), "in.jsonl")
    assert ids == ["a", "b", "h"]
    assert block.texts == ["EU rejects German call", "plain text", " \u200b end"]
    assert block.words == [["EU", "rejects", "German call"], None, ["", "\u200b", "end"]]
    assert rejected_of([block]) == [
        *(("c", "empty text"), ("d", "empty text")),
        *((name, "text is not a string or a list of strings") for name in "efg"),
    ]
    assert not any(each.blank for each in block.part.rejected)
