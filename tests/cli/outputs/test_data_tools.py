"""Each folder of an output is one data set to the tools people use; none needs a filter."""

import json

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import data_files, embed, record, write_json

KINDS = ("embeddings", "tokens", "words")


TOOLS = {
    # NumPy arrays and numbers in cells, nested; JSON-like values compare with all the others.
    "pandas": lambda folder: plain(pd.read_parquet(folder).to_dict("records")),
    "Arrow": lambda folder: ds.dataset(folder).to_table().to_pylist(),
    "Polars": lambda folder: pl.read_parquet(folder).to_dicts(),
    "DuckDB": lambda folder: duckdb.sql(f"from '{folder}/*.parquet'").pl().to_dicts(),
    "datasets": lambda folder: list(
        datasets.load_dataset(str(folder), split="train", cache_dir=f"{folder}-cache")
    ),
}


def plain(value):
    """Python's own lists, dicts and numbers, whatever a tool puts in their place."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


@pytest.fixture(scope="module")
def output(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("tools")
    texts = ["the bank", "of the river, money", " ", "unaffable river bank"] * 9
    lines = ({"id": f"d{n}", "text": text, "year": n} for n, text in enumerate(texts))
    path = write_json(folder / "in.jsonl", *lines)
    flags = {"granularity": "sentence,token,word", "extra_columns": "year:int64"}
    assert embed(folder / "out", tiny_bundle, path, block_bytes=300, **flags) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def expected(output):
    return {
        kind: [row for path in data_files(output, kind) for row in pq.read_table(path).to_pylist()]
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_folder_opens_as_one_data_set(output, expected, kind, tool, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert len(data_files(output, kind)) > 2
    assert [row["id"] for row in expected[kind]] == [f"d{n}" for n in range(36) if n % 4 != 2]
    assert plain(TOOLS[tool](output / kind)) == expected[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.uint64()], ids=str)
def test_ids_keep_the_type_of_their_column(tmp_path, run, kind):
    """Ids are strings on the way; integers as large as they come return as they were."""
    numbers = [3, 2**63 - 1, 0]
    ids = pa.array([str(each) for each in numbers]).cast(kind)
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": ids, "text": ["one", "two", "river"]}), source)
    output = run(source, granularity="sentence,word")
    for folder in ("embeddings", "words"):
        found = ds.dataset(output / folder).to_table()["id"]
        assert found.combine_chunks() == ids
        assert found.type == kind
    assert bert_embed.read(output)[0] == ids.to_pylist()
    assert [each.id for each in bert_embed.read_words(output)] == ids.to_pylist()
    if kind in (pa.int64(), pa.string()):
        lines = run(source, "lines", output_format="jsonl")
        (path,) = data_files(lines)
        assert [json.loads(line)["id"] for line in path.open()] == ids.to_pylist()
        more = run(source, "more", output_format="jsonl", skip_existing=str(lines))
        assert record(more)["counts"]["skipped"] == 3


def test_all_columns_but_the_vectors_are_compressed_and_have_statistics(output):
    for path in (path for kind in KINDS for path in data_files(output, kind)):
        group = pq.read_metadata(path).row_group(0)
        for column in map(group.column, range(group.num_columns)):
            is_vector = column.path_in_schema.endswith("embedding.list.element")
            assert column.compression == ("UNCOMPRESSED" if is_vector else "ZSTD")
            assert column.is_stats_set != is_vector, column.path_in_schema


def test_a_flipped_bit_is_noticed_by_any_reader_that_looks(output, tmp_path):
    data = bytearray(data_files(output)[0].read_bytes())
    start = pq.read_metadata(data_files(output)[0]).row_group(0).column(1).data_page_offset
    data[start + 200] ^= 1
    (tmp_path / "flipped.parquet").write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.read_table(tmp_path / "flipped.parquet", page_checksum_verification=True)
