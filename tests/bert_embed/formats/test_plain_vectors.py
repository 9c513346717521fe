"""Vectors that are read as they lie in a file are those that Arrow decodes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_embed.formats.number_types import OUTPUT_DTYPES, stored, unscaled
from bert_embed.formats.plain_vectors import plain_vectors
from bert_embed.formats.result_files import sentence_batches
from bert_embed.storage.errors import InputError

WIDTH = 24
NUMBERS = "embedding.list.element"
CODED = ("bfloat16", "int8", "ubinary")


def numbers(rows, dtype="float32"):
    """Stored vectors."""
    vectors = np.random.default_rng(rows).standard_normal((rows, WIDTH), np.float32)
    return stored(vectors, dtype).values


def column(values, width=None):
    kind = pa.list_(pa.from_numpy_dtype(values.dtype), values.shape[1] if width is None else width)
    return pa.array(list(values), kind)


def write(path, vectors, **options):
    ids = pa.array([str(row) for row in range(len(vectors))])
    floats = pa.types.is_floating(vectors.type.value_type)
    usual = {"compression": "none", "use_dictionary": [] if floats else [NUMBERS]}
    table = pa.table({"id": ids, "embedding": vectors})
    if vectors.type.value_type == pa.int8():
        scale = [None if missing else 0.5 for missing in vectors.is_null().to_pylist()]
        table = table.append_column("scale", pa.array(scale, pa.float32()))
    pq.write_table(table, path, **usual | options)


def found(path, dtype="float32"):
    """The numbers as they are read without Arrow, None if they are not."""
    with pq.ParquetFile(path) as file:
        pages = plain_vectors(path, file, dtype, WIDTH)
        return None if pages is None else [page.copy() for page in pages]


def assert_same(pages, values, dtype):
    assert np.concatenate(pages).tobytes() == unscaled(values, dtype, WIDTH).tobytes()


def read(path, dtype, by_arrow=False):
    """The vectors as a search reads them, where pages are compared with checksums or not."""
    described = {"shape": [WIDTH], "output_dtype": dtype}
    batches = sentence_batches(path, described, 100, check_pages=by_arrow)
    return np.concatenate([each.vectors.copy() for each in batches])


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(st.integers(1, 300), st.integers(1, 900), st.integers(1, 120))
def test_vectors_are_the_same_wherever_pages_and_groups_end(
    tmp_path, dtype, rows, page_bytes, group
):
    path, values = tmp_path / "part.parquet", numbers(rows, dtype)
    write(path, column(values), data_page_size=page_bytes, write_batch_size=7, row_group_size=group)
    assert_same(found(path, dtype), values, dtype)


def test_a_file_of_no_rows_gives_none(tmp_path):
    write(tmp_path / "part.parquet", column(numbers(1))[:0])
    assert sum(map(len, found(tmp_path / "part.parquet"))) == 0


@pytest.mark.parametrize("bits", range(1, 17))
def test_places_of_any_width_are_unpacked(tmp_path, bits):
    """More numbers than are unpacked at once, and a dictionary of `bits`."""
    path, random = tmp_path / "part.parquet", np.random.default_rng(bits)
    values = random.integers(0, 1 << bits, (6000, WIDTH)).astype(np.uint16)
    write(path, column(values))
    assert_same(found(path, "bfloat16"), values, "bfloat16")


def test_equal_numbers_in_a_row_are_repeated(tmp_path):
    path, values = tmp_path / "part.parquet", numbers(900, "int8")
    values[100:500] = 7
    values[600:640, :9] = -3
    write(path, column(values))
    assert_same(found(path, "int8"), values, "int8")


@pytest.mark.parametrize(
    ("vectors", "options"),
    [
        (column(numbers(9)), {"compression": "zstd"}),
        (column(numbers(9)), {"use_dictionary": True}),
        (column(numbers(9)), {"use_byte_stream_split": [NUMBERS]}),
        (column(numbers(9)), {"data_page_version": "2.0"}),
        (column(numbers(9), -1), {}),
        (column(numbers(9).astype(np.float64)), {}),
        (column(numbers(9, "float16")), {}),
        (pa.array([[1.0] * WIDTH, None], pa.list_(pa.float32(), WIDTH)), {}),
        (pa.array([[None, *[1.0] * (WIDTH - 1)]], pa.list_(pa.float32(), WIDTH)), {}),
    ],
    ids=[
        *("compressed", "dictionary", "split", "version 2", "any length", "double", "half"),
        *("null", "hole"),
    ],
)
def test_other_columns_of_float32_are_left_to_arrow(tmp_path, vectors, options):
    write(tmp_path / "part.parquet", vectors, **options)
    assert found(tmp_path / "part.parquet") is None


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES[1:])
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "zstd", "use_dictionary": True},
        {"data_page_version": "2.0"},
    ],
    ids=["compressed", "compressed dictionary", "version 2"],
)
def test_other_columns_of_small_types_are_left_to_arrow(tmp_path, dtype, options):
    path, values = tmp_path / "part.parquet", numbers(300, dtype)
    write(path, column(values), **options)
    assert found(path, dtype) is None
    assert read(path, dtype).tobytes() == read(path, dtype, by_arrow=True).tobytes()


@pytest.mark.parametrize("dtype", CODED)
def test_integers_without_a_dictionary_are_left_to_arrow(tmp_path, dtype):
    write(tmp_path / "part.parquet", column(numbers(300, dtype)), use_dictionary=False)
    assert found(tmp_path / "part.parquet", dtype) is None


def test_a_dictionary_that_grew_too_large_is_left_to_arrow(tmp_path):
    path, values = tmp_path / "part.parquet", numbers(3000, "bfloat16")
    write(path, column(values), dictionary_pagesize_limit=1000, data_page_size=2000)
    assert found(path, "bfloat16") is None


@pytest.mark.parametrize("dtype", CODED)
def test_vectors_of_mostly_equal_numbers_are_left_to_arrow(tmp_path, dtype):
    values = np.zeros_like(numbers(900, dtype))
    values[::20, 0] = 3
    write(tmp_path / "part.parquet", column(values))
    assert found(tmp_path / "part.parquet", dtype) is None


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_missing_vectors_are_left_to_arrow(tmp_path, dtype):
    """Arrow reads them in lists of any length only."""
    path, values = tmp_path / "part.parquet", numbers(40, dtype)
    rows = [None if row in (17, 39) else one for row, one in enumerate(values)]
    try:
        write(path, pa.array(rows, column(values).type), row_group_size=10)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"this Arrow writes no such file: {error}")
    assert found(path, dtype) is None
    write(path, pa.array(rows, column(values, -1).type), row_group_size=10)
    vectors = read(path, dtype)
    assert np.flatnonzero(np.isnan(vectors).any(axis=1)).tolist() == [17, 39]
    there = [row for row in range(40) if row not in (17, 39)]
    write(path, column(values))
    assert vectors[there].tobytes() == read(path, dtype)[there].tobytes()


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_files_of_several_writers_give_the_same_numbers(tmp_path, dtype):
    values = numbers(700, dtype)
    writers = [{}, {"compression": "zstd", "use_dictionary": True}, {"row_group_size": 90}]
    for number, options in enumerate(writers):
        write(tmp_path / f"{number}.parquet", column(values), **options)
    first, second, third = (
        read(tmp_path / f"{number}.parquet", dtype) for number in range(len(writers))
    )
    assert first.tobytes() == second.tobytes() == third.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_file_that_ends_early_is_called_damaged(tmp_path, dtype):
    path, values = tmp_path / "part.parquet", numbers(1000, dtype)
    write(path, column(values))
    content = path.read_bytes()
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(0).column(1)
    middle = chunk.data_page_offset + 5
    path.write_bytes(content[:middle] + b"\xff" * 40 + content[middle + 40 :])
    with pytest.raises(InputError, match=r"part\.parquet is damaged"):
        read(path, dtype)
