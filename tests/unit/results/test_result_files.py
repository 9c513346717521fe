"""The rows of a file are read whoever wrote it, all of them or those that are asked for."""

import io
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.base.errors import InputError, StorageError
from bert_embed.results.columns import write_deleted
from bert_embed.results.files import deleted_batches, row_batches
from bert_embed.results.names import OUTPUT_DTYPES, file_name, restored, stored
from bert_embed.transforms.blocks import EmbeddingBlock
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import Part
from bert_embed.transforms.write import write_vectors
from tests.support.command import ran
from tests.support.outputs import finished_run

WIDTH = 24
NUMBERS = "embedding.list.element"


def numbers(rows, dtype="float32"):
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


def read(path, dtype, **arguments):
    described = {"shape": [WIDTH], "output_dtype": dtype}
    return list(row_batches(path, described, rows=100, **arguments))


def vectors_of(path, dtype):
    return np.concatenate([batch.vectors for batch in read(path, dtype)])


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_missing_vectors_are_no_numbers(tmp_path, dtype):
    """Arrow reads them in lists of any length only."""
    path, values = tmp_path / "part.parquet", numbers(40, dtype)
    rows = [None if row in (17, 39) else one for row, one in enumerate(values)]
    write(path, pa.array(rows, column(values, -1).type), row_group_size=10)
    vectors = vectors_of(path, dtype)
    assert np.flatnonzero(np.isnan(vectors).any(axis=1)).tolist() == [17, 39]
    present = [row for row in range(40) if row not in (17, 39)]
    write(path, column(values))
    assert vectors[present].tobytes() == vectors_of(path, dtype)[present].tobytes()


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "use_dictionary": True},
        {"row_group_size": 90},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "data_page_size": 500},
    ],
    ids=["compressed", "groups", "version 2", "small pages"],
)
def test_files_of_any_writer_give_the_same_numbers(tmp_path, dtype, options):
    values = numbers(700, dtype)
    write(tmp_path / "part.parquet", column(values), **options)
    scale = np.full(700, 0.5, np.float32)
    expected = restored(values, scale, dtype, WIDTH)
    assert vectors_of(tmp_path / "part.parquet", dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_file_with_other_bytes_is_called_damaged(tmp_path, dtype):
    path, values = tmp_path / "part.parquet", numbers(1000, dtype)
    write(path, column(values), write_page_checksum=True)
    content = path.read_bytes()
    with pq.ParquetFile(path) as file:
        at = file.metadata.row_group(0).column(1).data_page_offset + 5
    path.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40 :])
    with pytest.raises(InputError, match=r"part\.parquet is damaged"):
        read(path, dtype)
    with path.open("wb") as file:
        write_deleted(file, pa.table({"id": ["a", "b"]}), {"id_type": "string"})
    content = path.read_bytes()
    at = content.index(b"id")  # the column's name in the footer, which is no text then
    path.write_bytes(content[:at] + b"\xff\xff" + content[at + 2 :])
    with pytest.raises(InputError, match=r"part\.parquet is damaged"):
        list(deleted_batches(str(path)))


class Unreachable(io.BytesIO):
    """A file of a store that stops answering."""

    def read(self, *size):
        raise StorageError("gs://b cannot be reached")

    readinto = read


def test_a_store_that_does_not_answer_is_no_damage(tmp_path, monkeypatch):
    path = tmp_path / "part.parquet"
    write(path, column(numbers(10)))
    content = path.read_bytes()
    monkeypatch.setattr("bert_embed.results.files.open_raw", lambda path: Unreachable(content))
    with pytest.raises(StorageError, match="reached"):
        read(path, "float32")
    with pytest.raises(StorageError, match="reached"):
        list(deleted_batches(str(path)))


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "tfrecord"])
@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_rows_are_limited_or_chosen_in_every_format(tmp_path, ending, dtype):
    vectors = np.random.default_rng(2).standard_normal((250, WIDTH), np.float32)
    described = {"shape": [WIDTH], "output_dtype": dtype, "id_type": "int64"}
    block = EmbeddingBlock(
        part=Part(0, 0, records=250),
        ids=pa.array([str(1000 + row) for row in range(250)]),
        num_tokens=np.ones(250, np.int32),
        truncated=np.zeros(250, bool),
        text_hash=np.zeros(250, np.int64),
        texts=pa.array([f"text {row}" for row in range(250)]),
        vectors=vectors,
    )
    [name] = write_vectors(str(tmp_path), "run", ending, described).write(block).files
    assert name.endswith(f".{ending}")

    def rows(**arguments):
        batches = list(row_batches(tmp_path / name, described, rows=100, **arguments))
        assert max(map(len, batches)) <= 100
        return (
            [id for batch in batches for id in batch.columns["id"].to_pylist()],
            np.concatenate([batch.vectors for batch in batches]),
        )

    ids, decoded = rows()
    assert ids == list(range(1000, 1250))
    cosines = np.vecdot(decoded, vectors) / np.linalg.norm(decoded, axis=1)
    assert (cosines / np.linalg.norm(vectors, axis=1)).min() > 0.6
    first, some = rows(limit=130)
    assert (first, some.tobytes()) == (ids[:130], decoded[:130].tobytes())
    chosen = np.array([0, 99, 100, 249])
    few, some = rows(chosen=chosen)
    assert (few, some.tobytes()) == ([1000, 1099, 1100, 1249], decoded[chosen].tobytes())
    asked = {"columns": ("text", "none"), "vectors": False, "chosen": np.array([7])}
    [batch] = row_batches(tmp_path / name, described, **asked)
    assert batch.columns.to_pylist() == [{"text": "text 7"}]


def test_blocks_beyond_seven_digits_are_read_behind_the_others(tmp_path):
    run = finished_run(tmp_path / "out", [1, 1, 1, 1], first_block=9_999_998)
    blocks = range(9_999_998, 10_000_002)
    names = [file_name("embeddings", block, 0, ".parquet") for block in blocks]
    folder = OutputFolder(str(run))
    assert [name for name in folder.data_files() if name.startswith("embeddings")] == names
    ids, _ = bert_embed.read(run)
    assert list(ids) == ["d/0", "d/1", "d/2", "d/3"]


@pytest.mark.slow
def test_what_is_read_whole_is_in_memory_once(tmp_path):
    """Behind a small output, by which all is imported; with what a file takes it is twice."""
    small = finished_run(tmp_path / "small", [8_000], width=384, kept=False)
    folder = finished_run(tmp_path / "out", [8_000] * 6, width=384, kept=False)
    program = """
import sys
import bert_embed
from tests.support.command import peak_memory
bert_embed.read(sys.argv[1])
before = peak_memory()
vectors = bert_embed.read(sys.argv[2])[1]
print((peak_memory() - before) / vectors.nbytes)
"""
    done = ran([sys.executable, "-c", program, small, folder], check=True)
    assert float(done.stdout) < 2.5
