"""What is written of a block reads back as it was, in other programs and in our own."""

import base64
import itertools
import json
from dataclasses import replace

import google_crc32c
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import InputError
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.files import VECTOR_FORMATS
from bert_embed.results.names import OUTPUT_DTYPES, stored, stored_type, stored_width
from bert_embed.storage.local import checksum
from bert_embed.transforms.blocks import take_documents
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import Part
from bert_embed.transforms.write import WriteParts, vector_files, write_vectors
from tests.support.blocks import (
    IDS,
    SCORES,
    TOKENS,
    WIDTH,
    WORDS,
    as_stored,
    described,
    embedding_block,
    every_kind,
    kept_windows,
    multi_vectors,
    numbers,
    sparse_vectors,
    token_vectors,
    with_heads,
    word_vectors,
    write,
)

FORMATS = ["parquet", "jsonl"]
FILES = ["embeddings", "tokens", "words"]
UNITS = ["starts", "stops", "vectors"]
FACTS = [
    ("num_tokens", [25, 4, 5]),
    ("num_tokens_full", [40, 4, 5]),
    ("truncated", [True, False, False]),
]


def table(files, name):
    return pq.read_table(pa.BufferReader(files[name]))


def rows_of(files, name, output_format):
    if output_format == "parquet":
        return table(files, name).to_pylist()
    return [json.loads(line) for line in files[name].splitlines()]


BLOCKS = {
    "sentence": {"vectors": numbers(3)},
    "token": {"tokens": token_vectors()},
    "word": {"words": word_vectors()},
    "sparse": {"sparse": sparse_vectors()},
    "multi": {"multi": multi_vectors()},
    "scores": {"scores": SCORES},
}


def read_back(folder, kind):
    """The ids, and what is read of a kind: arrays and lists of all documents, end to end."""
    reader = getattr(bert_embed, KINDS[kind].reader)
    if kind in ("sentence", "scores"):
        ids, *values = reader(folder)
        return ids, values
    if kind == "sparse":
        ids, rows = reader(folder)
        return ids, [rows.indptr, rows.indices, rows.data]
    read = list(reader(folder))
    if kind == "multi":
        ids, vectors = zip(*read, strict=True)
        return list(ids), [splits_of(np.array([*map(len, vectors)])), np.concatenate(vectors)]
    splits = splits_of(np.array([len(each.vectors) for each in read]))
    columns = [[getattr(each, name) for each in read] for name in UNITS]
    ends = [one if one[0] is None else np.concatenate(one) for one in columns]
    return [each.id for each in read], [[each.texts for each in read], splits, *ends]


def meant(kind, output_format, dtype):
    """What `read_back` has to find."""
    [given] = BLOCKS[kind].values()
    match kind:
        case "sentence":
            return [as_stored(given, dtype)]
        case "scores":
            return [["bad", "good"], given]
        case "sparse":
            return [given.splits, given.indices, given.values]
        case "multi":
            return [given.splits, as_stored(given.vectors, dtype)]
    texts = {"token": TOKENS, "word": WORDS}[kind]
    vectors = as_stored(given.vectors, dtype)
    places = [given.starts, given.stops]
    if (kind, output_format) == ("token", "jsonl"):  # which leaves them out
        places = [[None] * 3] * 2
    return [texts, given.splits, *places, vectors]


CASES = [
    case
    for case in itertools.product(KINDS, VECTOR_FORMATS, OUTPUT_DTYPES)
    if case not in (("token", "jsonl", "int8"), ("token", "jsonl", "ubinary"))  # settings refuse
    and not VECTOR_FORMATS[case[1]].loads
]


@pytest.mark.parametrize(("kind", "output_format", "dtype"), CASES)
def test_every_kind_reads_back_as_its_type_left_it(tmp_path, kind, output_format, dtype):
    block = embedding_block(**BLOCKS[kind])
    if not VECTOR_FORMATS[output_format].fits(KINDS[kind]):
        said = f"{output_format} files cannot hold vectors of {kind}"
        with pytest.raises(InputError, match=said):
            write(tmp_path, block, described(block, dtype), output_format)
        return
    files = write(tmp_path, block, described(block, dtype), output_format)
    assert list(files) == [KINDS[kind].folder]
    ids, found = read_back(tmp_path, kind)
    assert ids == IDS
    for values, wanted in zip(found, meant(kind, output_format, dtype), strict=True):
        if isinstance(wanted, list):
            assert values == wanted
        else:
            decimals = (kind, output_format) == ("token", "jsonl")  # six of them
            np.testing.assert_allclose(values, wanted, rtol=0, atol=5.1e-7 if decimals else 0)
    assert found[-1].dtype == np.float32


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_parquet_holds_lists_of_fixed_size_of_the_stored_type(tmp_path, dtype):
    block = embedding_block(vectors=numbers(3))
    files = write(tmp_path, block, described(block, dtype))
    found = table(files, "embeddings")
    scale = ["scale"] if dtype == "int8" else []
    facts = ["num_tokens", "num_tokens_full", "truncated", "text_hash"]
    assert found.schema.names == ["id", "embedding", *scale, *facts]
    numbers_of = pa.from_numpy_dtype(stored_type(dtype))
    width = stored_width(dtype, WIDTH)
    assert found.schema.field("embedding").type == pa.list_(numbers_of, width)
    kept = stored(numbers(3), dtype)
    assert found["embedding"].to_pylist() == kept.values.tolist()
    if dtype == "int8":
        assert found["scale"].type == pa.float32()
        assert found["scale"].to_pylist() == kept.scale.tolist()
    assert found["text_hash"].to_pylist() == [1, -(2**63), 2**63 - 1]
    by_polars = pl.read_parquet(files["embeddings"])
    assert by_polars["id"].to_list() == IDS
    assert by_polars["embedding"].to_list() == kept.values.tolist()


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_kept_windows_repeat_their_documents_id(tmp_path, dtype, output_format):
    block = embedding_block(vectors=numbers(4), windows=kept_windows())
    files = write(tmp_path, block, described(block, dtype), output_format)
    ids, vectors = bert_embed.read(tmp_path)
    assert ids == ["a:0", "a:0", "ü 2", "c"]
    np.testing.assert_array_equal(vectors, as_stored(numbers(4), dtype))
    names = ("window", "start", "stop", "num_tokens")
    if output_format == "parquet":
        assert {table(files, "windows")[name].type for name in names} == {pa.int32()}
    rows = rows_of(files, "windows", output_format)
    assert [tuple(row[name] for name in names) for row in rows] == [
        *((0, 0, 60, 16), (1, 40, 99, 9)),
        *((0, 0, 7, 4), (0, 0, 8, 5)),
    ]
    assert [row["truncated"] for row in rows] == [False] * 4
    assert [row["text_hash"] for row in rows] == [1, 1, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tokens_of_parquet_have_place_and_vector(tmp_path, dtype):
    block = embedding_block(tokens=token_vectors())
    files = write(tmp_path, block, described(block, dtype))
    rows = table(files, "tokens").to_pylist()
    assert [[each["token"] for each in row["tokens"]] for row in rows] == TOKENS
    kept, last = stored(token_vectors().vectors, dtype), rows[0]["tokens"][3]
    assert last["embedding"] == kept.values[3].tolist()
    assert (last["segment"], last["start"], last["stop"]) == (1, -1, -1)
    assert ("scale" in last) == (dtype == "int8")
    by_polars = pl.read_parquet(files["tokens"])["tokens"].to_list()
    assert by_polars == [row["tokens"] for row in rows]


@pytest.mark.parametrize("output_format", FORMATS)
def test_each_kind_has_a_folder_with_rows_in_the_same_order(tmp_path, output_format):
    block = embedding_block(
        **{name: kind for given in BLOCKS.values() for name, kind in given.items()}
    )
    files = write(tmp_path, block, described(block), output_format)
    assert list(files) == [kind.folder for kind in KINDS.values()]
    if output_format == "jsonl":
        del files["tokens"]  # laid out as extract_features.py does it
    rows = {name: rows_of(files, name, output_format) for name in files}
    for of_kind in rows.values():
        assert [row["id"] for row in of_kind] == IDS
        assert [(name, [row[name] for row in of_kind]) for name, _ in FACTS] == FACTS
    assert [row["indices"] for row in rows["sparse"]] == [[2, 7, 30521], [], [7]]
    assert [len(row["values"]) for row in rows["sparse"]] == [3, 0, 1]
    assert [len(row["embedding"]) for row in rows["multi"]] == [2, 0, 3]
    assert [np.float32(row["bad"]) for row in rows["scores"]] == [0.25, 0.5, np.float32(0.9)]
    assert [row["label"] for row in rows["scores"]] == ["good", "bad", "bad"]


def test_columns_of_heads_have_the_types_that_other_programs_read(tmp_path):
    block = with_heads()
    files = write(tmp_path, block, described(block, "int8"))
    floats = pa.list_(pa.float32())
    assert table(files, "sparse").schema.types[1:3] == [pa.list_(pa.int32()), floats]
    vectors = pa.list_(pa.list_(pa.int8(), WIDTH))
    assert table(files, "multi").schema.types[1:3] == [vectors, floats]
    assert table(files, "scores").schema.types[1:4] == [pa.float32()] * 2 + [pa.string()]
    assert pl.read_parquet(files["multi"])["embedding"].to_list()[1] == []
    footer = pq.read_metadata(pa.BufferReader(files["sparse"])).row_group(0)
    chunks = {footer.column(n).path_in_schema: footer.column(n) for n in range(3)}
    assert chunks["values.list.element"].compression == "UNCOMPRESSED"
    assert "RLE_DICTIONARY" not in chunks["values.list.element"].encodings


@pytest.mark.parametrize("output_format", FORMATS)
def test_kept_windows_have_a_row_each_in_the_folders_of_heads(tmp_path, output_format):
    scores = np.float32([[0, 1], [1, 0], [0, 1], [1, 0]])
    block = embedding_block(scores=scores, windows=kept_windows())
    kept = replace(take_documents(block, np.array([0, 2])), part=Part(3, 1, records=2))
    rows = rows_of(write(tmp_path, kept, described(kept), output_format), "scores", output_format)
    found = [(row["id"], row["window"], row["label"]) for row in rows]
    assert found == [("a:0", 0, "good"), ("a:0", 1, "bad"), ("c", 0, "bad")]


def test_examples_hold_sparse_vectors_as_two_lists(tmp_path):
    block = with_heads(multi=None)
    files = write(tmp_path, block, described(block), "tfrecord")
    records = tf.data.TFRecordDataset(str(tmp_path / "sparse/part-0000003-00001.tfrecord"))
    examples = [tf.train.Example.FromString(record.numpy()) for record in records]
    features = [example.features.feature for example in examples]
    assert [list(one["indices"].int64_list.value) for one in features] == [[2, 7, 30521], [], [7]]
    assert list(features[2]["values"].float_list.value) == [2]
    assert set(files) == {"sparse", "scores"}


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_words_without_a_token_have_no_vector(tmp_path, dtype, output_format):
    block = embedding_block(words=word_vectors())
    files = write(tmp_path, block, described(block, dtype), output_format)
    assert list(files) == ["words"]
    rows = rows_of(files, "words", output_format)
    if output_format == "parquet":
        assert pl.read_parquet(files["words"])["words"].to_list() == [row["words"] for row in rows]
    missing = [[each["embedding"] is None for each in row["words"]] for row in rows]
    assert missing == [[False, False, True], [], [True]]
    assert [each["truncated"] for each in rows[0]["words"]] == [False, True, True]
    block.words.missing[:] = True  # where every word is, the file reads all the same
    (tmp_path / "none").mkdir()
    write(tmp_path / "none", block, described(block, dtype), output_format)
    read = list(bert_embed.read_words(tmp_path / "none"))
    assert [each.vectors.shape for each in read] == [(3, WIDTH), (0, WIDTH), (1, WIDTH)]
    assert all(np.isnan(each.vectors).all() for each in read)


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_stack_reads_back_in_its_shape(tmp_path, output_format):
    block = embedding_block(vectors=numbers(3), tokens=token_vectors())
    stack = {"layers": [-1, -2, -3], "layer_combine": "stack"}
    shapes = {"shape": [3, 4], "token_shape": [3, 4]}
    write(tmp_path, block, described(block, **stack, **shapes), output_format)
    assert bert_embed.read(tmp_path)[1].shape == (3, 3, 4)
    read = list(bert_embed.read_tokens(tmp_path))
    assert [each.vectors.shape for each in read] == [(4, 3, 4), (2, 3, 4), (3, 3, 4)]
    expected = token_vectors().vectors[:4].reshape(4, 3, 4)
    np.testing.assert_allclose(read[0].vectors, expected, atol=5e-7)


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_equal_blocks_are_equal_bytes_and_documents_are_counted_once(
    tmp_path, dtype, output_format
):
    block = every_kind()
    if output_format == "jsonl" and dtype in ("int8", "ubinary"):
        block = embedding_block(vectors=numbers(3), words=word_vectors())
    metadata = described(block, dtype)
    files = write(tmp_path, block, metadata, output_format)
    assert list(files) == [KINDS[kind].folder for kind in block.kinds]
    assert write(tmp_path, block, metadata, output_format) == files
    record = json.loads((tmp_path / "_state" / "blocks" / "0000003-00001.json").read_text())
    assert (record["embedded"], record["tokens"]) == (3, 34)
    for name, data in files.items():
        crc = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        written = record["files"].pop(f"{name}/part-0000003-00001.{output_format}")
        assert written == {"bytes": len(data), "crc32c": crc, "rows": 3}
    assert record["files"] == {}


def test_the_footer_tells_what_the_vectors_are(tmp_path):
    for dtype in ("float32", "int8"):
        metadata = described(every_kind(), dtype)
        for data in write(tmp_path, every_kind(), metadata).values():
            footer = pq.read_metadata(pa.BufferReader(data))
            assert json.loads(footer.metadata[b"bert_embed"]) == metadata
            assert footer.num_row_groups == 1


def test_no_documents_give_no_file_of_vectors(tmp_path):
    block = replace(take_documents(every_kind(), np.array([], int)), part=Part(3, 1))
    assert write(tmp_path, block, described(block)) == {}
    ids, vectors = bert_embed.read(tmp_path)
    assert (ids, vectors.shape) == ([], (0, WIDTH))


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize(
    ("name", "reader"),
    zip(FILES, (bert_embed.read, bert_embed.read_tokens, bert_embed.read_words), strict=True),
    ids=FILES,
)
def test_a_damaged_file_is_named(tmp_path, name, reader, output_format):
    write(tmp_path, every_kind(), described(every_kind()), output_format)
    path = tmp_path / f"{name}/part-0000003-00001.{output_format}"
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(ValueError, match=f"{path.name} is damaged: "):
        list(reader(tmp_path))


@pytest.mark.parametrize("at", ["files", "record", "both"])
@pytest.mark.parametrize("output_format", FORMATS)
def test_the_record_of_two_attempts_is_that_of_the_file_that_came_last(
    tmp_path, output_format, at, monkeypatch
):
    """On processors that round otherwise: the slower attempt wrote its file first."""
    slow, fast = embedding_block(vectors=numbers(3)), embedding_block(vectors=numbers(3) + 0.25)
    folder, metadata = OutputFolder(str(tmp_path)), described(slow, "float32")
    fast_writer = write_vectors(str(tmp_path), "run", output_format, metadata)
    write_record = OutputFolder.write_block_record

    def overtaken(block):
        files = vector_files(block, folder, output_format, metadata)
        if at != "record":
            fast_writer.write(fast)
        return files

    def late(*settings):
        """The fast attempt writes all of it between the slow one's look and its record."""
        monkeypatch.setattr(OutputFolder, "write_block_record", write_record)
        fast_writer.write(fast)
        write_record(*settings)

    if at != "files":
        monkeypatch.setattr(OutputFolder, "write_block_record", late)
    written = WriteParts(str(tmp_path), "run", overtaken).write(slow)
    record = read_block_record(folder, slow.part.block, slow.part.number, "run")
    assert written.files == record.files
    ((name, file),) = record.files.items()
    size = (tmp_path / name).stat().st_size
    assert (file.crc32c, file.bytes) == (checksum(tmp_path / name), size)
    assert (len(list(tmp_path.rglob("part-*"))), list(tmp_path.rglob(".tmp-*"))) == (1, [])
