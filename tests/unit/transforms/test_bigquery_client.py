"""Names, schemas and blocks of BigQuery tables, without any server."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.pipeline.options.flags import looks_like_table
from bert_embed.transforms.bigquery.client import TableName, table_name
from bert_embed.transforms.bigquery.fields import mismatch, table_schema, vector_schema
from bert_embed.transforms.bigquery.read import (
    TableRequest,
    deal_out,
    row_blocks,
    split_group,
)
from bert_embed.transforms.read.columns import Columns

TABLE = TableName("my-project", "d", "t")
REQUEST = TableRequest(TABLE, 0.0, 0, 0, "my-project", Columns(id="id"))
ROWS = st.lists(
    st.tuples(st.none() | st.text(max_size=3), st.none() | st.text(max_size=5)), max_size=40
)


@pytest.mark.parametrize(
    "name",
    [
        *("d.t", "my-project:d.t`", "my-project:d.t; DROP TABLE x", "my-project:d.t$2026013"),
        *("my-project:d-e.t", "My-Project:d.t", "my-project:d.t\n", "my-project:d/../e.t"),
    ],
)
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match=r"^output_table .* is not a table"):
        table_name(name, "output_table")


@given(st.text())
def test_a_name_that_passes_is_safe_within_backticks(text):
    try:
        name = table_name(text, "input")
    except ValueError:
        return
    assert not set("`\\\n'\";") & set(name.path + name.destination)


def test_projects_of_domains_and_files():
    name = table_name("example.com:my-project:d.t", "input")
    assert name.path == "example.com:my-project.d.t"
    names = {"a.b.gz": False, "dir/p:d.t": False, "bq://p": True, "my-project.d.t": True}
    names |= {"news-2026.jsonl.gz": False, "my-data.train.txt": False, "my-project:d.txt": True}
    assert {each: looks_like_table(each) for each in names} == names


@given(ROWS, st.integers(1, 7), st.integers(1, 3), st.integers(1, 5), st.randoms())
def test_blocks_hold_every_row_once_whatever_the_order(rows, blocks, grouped, part_docs, random):
    found = []
    for group_blocks in (grouped, 1):
        found.append(_read(rows, blocks, group_blocks, part_docs))
        random.shuffle(rows)
    assert found[0] == found[1]
    documents = [each for part in found[0] for each in part[2]]
    assert len(documents) + sum(part[3] for part in found[0]) == len(rows)
    good = [row for row in rows if all(value and not value.isspace() for value in row)]
    assert sorted(documents) == sorted(good)
    assert all(len(part[2]) <= part_docs for part in found[0])


def _read(rows, blocks, group_blocks, part_docs):
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    table = pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=schema)
    request = replace(REQUEST, blocks=blocks, group_blocks=group_blocks)
    pieces = {group: [] for group in range(-(-blocks // group_blocks))}
    for at in range(0, len(rows), 10):
        for group, piece in deal_out(table.slice(at, 10), request):
            pieces[group].append(piece)
    found = []
    for number in range(blocks):
        group, place = divmod(number, group_blocks)
        rows_of = split_group(pieces[group], request)
        parts = list(row_blocks(number, rows_of.get(place), request, part_docs))
        assert [block.part.last for block in parts] == [False] * (len(parts) - 1) + [True]
        for block in parts:
            part = block.part
            assert part.covered == {0: part.records}
            documents = list(zip(block.ids.to_pylist(), block.texts, strict=True))
            found.append((part.block, part.number, documents, len(part.rejected)))
    return found


def test_the_number_of_blocks_follows_from_the_size():
    sizes = [replace(REQUEST, bytes=size) for size in (0, 1, 100, 101, 1000)]
    assert [request.divided(100).blocks for request in sizes] == [1, 1, 1, 2, 10]


def test_decimals_take_the_type_that_holds_them():
    schema = pa.schema([("a", pa.decimal128(38, 9)), ("b", pa.decimal256(76, 38))])
    assert [field["type"] for field in table_schema(schema)] == ["NUMERIC", "BIGNUMERIC"]


def test_a_table_may_have_more_columns_but_not_fewer():
    fields = table_schema(vector_schema("word", None, False, {"token_shape": [4]}))
    assert mismatch(fields, fields) is None
    assert mismatch(fields, [*fields, {"name": "more", "type": "STRING"}]) is None
    required = {"name": "more", "type": "STRING", "mode": "REQUIRED"}
    assert "its column more must have a value" in str(mismatch(fields, [*fields, required]))
    assert mismatch(fields, fields[1:]) == "it has no column id"
    words = {**fields[1], "fields": fields[1]["fields"][1:]}
    assert mismatch(fields, [fields[0], words, *fields[2:]]) == "it has no column words.word"
    demanded = {**fields[2], "mode": "REQUIRED"}
    assert mismatch(fields, [*fields[:2], demanded, *fields[3:]]) == (
        f"its column {fields[2]['name']} must have a value, and in the files it may be null"
    )
    legacy = {"FLOAT64": "FLOAT", "INT64": "INTEGER", "BOOL": "BOOLEAN"}
    old = [{**each, "type": legacy.get(each["type"], each["type"])} for each in fields]
    assert mismatch(fields, old) is None
