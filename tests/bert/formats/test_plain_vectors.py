"""Vectors that are read as they lie in a file are those that Arrow decodes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert.formats.plain_vectors import plain_vectors
from bert.formats.result_files import sentence_batches
from storage.errors import InputError

WIDTH = 6
PLAIN = {"compression": "none", "use_dictionary": False}
SETTINGS = {"shape": [WIDTH], "output_dtype": "float32"}


def column(rows, kind=None):
    values = np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)
    return pa.array(list(values), kind or pa.list_(pa.float32(), WIDTH))


def write(path, vectors, **options):
    ids = pa.array([str(row) for row in range(len(vectors))])
    pq.write_table(pa.table({"id": ids, "embedding": vectors}), path, **PLAIN | options)


def found(path):
    with pq.ParquetFile(path) as file:
        pages = plain_vectors(path, file, WIDTH)
        return None if pages is None else [page.copy() for page in pages]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 300), st.integers(1, 900), st.integers(1, 120))
def test_vectors_are_the_same_wherever_pages_and_groups_end(tmp_path, rows, page_bytes, group):
    path, vectors = tmp_path / "part.parquet", column(rows)
    write(path, vectors, data_page_size=page_bytes, write_batch_size=7, row_group_size=group)
    read = np.concatenate([np.empty((0, WIDTH), np.float32), *found(path)])
    assert read.tobytes() == vectors.flatten().to_numpy().tobytes()


@pytest.mark.parametrize(
    ("vectors", "options"),
    [
        (column(9), {"compression": "zstd"}),
        (column(9), {"use_dictionary": True}),
        (column(9), {"use_byte_stream_split": ["embedding.list.element"]}),
        (column(9), {"data_page_version": "2.0"}),
        (column(9, pa.list_(pa.float32())), {}),
        (column(9, pa.list_(pa.float64(), WIDTH)), {}),
        (pa.array([[1.0] * WIDTH, None], pa.list_(pa.float32(), WIDTH)), {}),
        (pa.array([[None, *[1.0] * (WIDTH - 1)]], pa.list_(pa.float32(), WIDTH)), {}),
    ],
    ids=["compressed", "dictionary", "split", "version 2", "any length", "double", "null", "hole"],
)
def test_other_columns_are_left_to_arrow(tmp_path, vectors, options):
    write(tmp_path / "part.parquet", vectors, **options)
    assert found(tmp_path / "part.parquet") is None


def test_a_file_that_ends_early_is_called_damaged(tmp_path):
    path = tmp_path / "part.parquet"
    write(path, column(1000))
    batches = sentence_batches(path, SETTINGS, 100, check_pages=False)
    content = path.read_bytes()
    place = content.index(column(1000).flatten().to_numpy().tobytes())
    path.write_bytes(content[: place - 40] + b"\xff" * 40 + content[place:])
    with pytest.raises(InputError, match=r"part\.parquet is damaged"):
        list(batches)
