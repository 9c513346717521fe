"""Parquet: each row is read once, in any encoding and any cutting; other types are refused."""

import base64
import datetime
import gzip
import itertools
import os
import random
import shutil
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.base.errors import InputError
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from tests.support.blocks import ids_of, read_input, texts_of
from tests.support.command import ran
from tests.support.forks import python


def specs_of(folder, block_bytes):
    return list(plan_blocks(list_input([str(folder)]).first(None), block_bytes))


def blocks(folder, *settings, **named):
    """The blocks of a folder's files, whose parts are numbered and end with the last one."""
    found = read_input(folder, *settings, **named)
    for before, block in zip([None, *found], [*found, None], strict=True):
        begins = before is None or block is None or block.part.block != before.part.block
        assert before is None or before.part.last == begins
        assert block is None or block.part.number == (0 if begins else before.part.number + 1)
    return found


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    group_rows=st.integers(1, 15),
    block_bytes=st.integers(1, 900),
    part_docs=st.integers(1, 20),
    limit=st.none() | st.integers(1, 60),
)
def test_any_cutting_gives_each_row_once_in_order(
    tmp_path_factory, counts, group_rows, block_bytes, part_docs, limit
):
    folder = tmp_path_factory.mktemp("parquet")
    expected = []
    for number, count in enumerate(counts):
        rows = [f"text {number} {row}" for row in range(count)]
        table = pa.table({"text": pa.array(rows, pa.string())})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=group_rows)
        expected += [(f"{folder}/{number}.parquet:{row}", text) for row, text in enumerate(rows)]
    found = blocks(folder, None, block_bytes, limit, part_docs)
    assert list(zip(ids_of(found), texts_of(found), strict=True)) == expected[:limit]
    assert all(len(block) <= part_docs for block in found)


def test_blocks_are_whole_row_groups_but_for_very_large_ones(tmp_path):
    table, path = pa.table({"text": ["x" * 100] * 1000}), tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=100, use_dictionary=False)
    pieces = [(one.start, one.stop) for spec in specs_of(tmp_path, 25_000) for one in spec.slices]
    assert pieces == list(itertools.pairwise(range(0, 1001, 200)))
    pq.write_table(table, path, use_dictionary=False)
    assert [spec.slices[0].start for spec in specs_of(tmp_path, 25_000)] == [0, 250, 500, 750]
    assert len(specs_of(tmp_path, 100)) == 16
    parts = [len(block) for block in blocks(tmp_path, None, 1000)]
    assert (sum(parts), max(parts) <= 10) == (1000, True)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2)),
        *(pa.list_view(pa.string()), pa.large_list_view(pa.large_string())),
    ],
)
def test_a_list_of_strings_is_a_text_in_words(tmp_path, kind):
    words = [["New", "York"], ["two words", ""]]
    pq.write_table(pa.table({"text": pa.array(words, kind)}), tmp_path / "a.parquet")
    (block,) = blocks(tmp_path)
    assert (block.texts, block.words) == (["New York", "two words "], words)


def test_rows_without_a_document_are_refused_alone(tmp_path):
    raw = pa.array([b"one", b"\xff", b"three", b"four", b"five", b" ", None], pa.binary())
    table = pa.table(
        {
            "id": pa.array([1, 2, None, 4, 5, 6, 7]),
            "text": raw.view(pa.string()),
            "more": pa.array([b"a", b"b", b"c", b"\xe9", None, b"", b"d"]).view(pa.string()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    schema = pa.schema([("more", pa.string())])
    (block,) = blocks(tmp_path, Columns(id="id", extra=schema))
    assert (block.texts, block.ids.to_pylist()) == (["one", "four", "five"], ["1", "4", "5"])
    assert block.extra.to_pydict() == {"more": ["a", None, None]}
    assert block.part.unfit == {"more": 1}
    assert [(each.id, each.source[-2:], each.reason) for each in block.part.rejected] == [
        ("2", ":1", "invalid UTF-8"),
        (None, ":2", "missing id"),
        ("6", ":5", "empty text"),
        ("7", ":6", "missing text"),
    ]
    assert '"text":"three"' in block.part.rejected[1].record


def test_an_id_that_is_not_utf_8_is_none(tmp_path):
    """No increment takes the record for another document than before."""
    pq.write_table(pa.table({"id": [b"\xff"], "text": ["one"]}), tmp_path / "a.parquet")
    [bad] = blocks(tmp_path, Columns(id="id"))[0].part.rejected
    assert (bad.id, bad.reason) == (None, "invalid UTF-8")


COLUMNS = ("text", "id", "more")
UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
WORDS = ["one", None, "été"]
BYTES = [None if word is None else word.encode() for word in WORDS]
AS_TEXT = [
    *(pa.array(WORDS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array(BYTES, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *(pa.array(values).dictionary_encode() for values in (WORDS, BYTES)),
    pa.array(WORDS).cast(pa.dictionary(pa.int8(), pa.large_string())),
]
LAYOUTS = {
    "snappy": {},
    "zstd-2.0": {"compression": "zstd", "data_page_version": "2.0"},
    "gzip": {"compression": "gzip", "use_dictionary": False},
    "no schema": {"store_schema": False},
    **{
        encoding: {"use_dictionary": False, "column_encoding": dict.fromkeys(COLUMNS, encoding)}
        for encoding in ("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
    },
}


@pytest.mark.parametrize("column", AS_TEXT, ids=lambda column: str(column.type))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strings_and_bytes_are_texts_ids_and_extra_columns(tmp_path, column, layout):
    """Hive, Impala and old Spark write strings without saying that they are text."""
    if pa.types.is_dictionary(column.type) and layout.startswith("DELTA"):
        column = column.cast(column.type.value_type)  # which Arrow writes so alone
    others = {"struct": [{"text": 1}] * 3, "raw": [b"\xff"] * 3}
    table = pa.table(dict.fromkeys(COLUMNS, column) | others)
    pq.write_table(table, tmp_path / "a.parquet", **LAYOUTS[layout])
    (block,) = blocks(tmp_path, Columns(id="id", extra=pa.schema([("more", pa.string())])))
    assert block.texts == block.ids.to_pylist() == block.extra["more"].to_pylist() == ["one", "été"]
    assert block.ids.type == pa.string()
    assert [each.reason for each in block.part.rejected] == ["missing id"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        *((pa.array([1, 127], kind), ["1", "127"]) for kind in (pa.int8(), pa.uint64())),
        (pa.array([1, 10**37], pa.decimal128(38, 0)), ["1", "1" + "0" * 37]),
        (pa.array([1, 10**50], pa.decimal256(60, 0)), ["1", "1" + "0" * 50]),
        (pa.array([UUID.bytes] * 2, pa.uuid()), [str(UUID)] * 2),
        (pa.array([b"507f191e810c"] * 2, pa.binary(12)), ["507f191e810c"] * 2),
    ],
    ids=["int8", "uint64", "snowflake", "decimal256", "uuid", "fixed"],
)
def test_ids_of_other_types(tmp_path, column, expected):
    pq.write_table(pa.table({"id": column, "text": ["one", "two"]}), tmp_path / "a.parquet")
    assert ids_of(blocks(tmp_path, Columns(id="id"))) == expected
    pq.write_table(pa.table({"id": column, "text": ["one", None]}), tmp_path / "a.parquet")
    (block,) = blocks(tmp_path, Columns(id="id"))
    assert [rejection.id for rejection in block.part.rejected] == expected[1:]


def test_times_of_spark_and_hive_keep_their_years(tmp_path):
    """They write INT96, which Arrow reads as nanoseconds of some centuries."""
    times = pa.array([datetime.datetime(9999, 12, 31, 23, 59, 59)], pa.timestamp("us"))
    table = pa.table({"text": ["one"], "until": times})
    how = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    pq.write_table(table, tmp_path / "a.parquet", **how)
    [file] = list_input([str(tmp_path)]).first(None)
    assert file.footer.schema.field("until").type == times.type
    (block,) = blocks(tmp_path, Columns(extra=pa.schema([("until", times.type)])))
    assert block.extra["until"].to_pylist() == times.to_pylist()


def test_a_column_without_any_value_is_missing(tmp_path):
    nothing = pa.nulls(2)
    good = {"text": ["one", "two"], "id": ["1", "2"], "more": ["x", None]}
    pq.write_table(pa.table(good), tmp_path / "a.parquet")
    for number, name in enumerate(good):
        pq.write_table(pa.table(good | {name: nothing}), tmp_path / f"b{number}.parquet")
    found = blocks(tmp_path, Columns(id="id", extra=pa.schema([("more", pa.string())])))
    extra = [value for block in found for value in block.extra["more"].to_pylist()]
    assert (texts_of(found), extra) == (["one", "two"] * 2, ["x", None, None, None])
    reasons = [each.reason for block in found for each in block.part.rejected]
    assert reasons == ["missing text"] * 2 + ["missing id"] * 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns("nested"), "text_column nested of .* is struct<.*must be a string, or a list"),
        (Columns("number"), "text_column number of .* is int64; must be a string"),
        (Columns("bytes"), "text_column bytes of .* a list of strings"),
        (Columns("body"), "text_column body is not a column of .*, which has text, nested, number"),
        (Columns(id="nested"), "id_column nested of .* is struct.*must be a string or an int"),
        (Columns(id="half"), "id_column half of .* is double; must be a string or an integer"),
        (Columns(id="price"), r"id_column price of .* is decimal128\(10, 2\); must be"),
        (Columns(text_b="number"), "text_b_column number of .* is int64; must be a string"),
    ],
)
def test_columns_of_other_types_are_refused_by_name(tmp_path, columns, message):
    table = {"text": ["a"], "nested": [{"a": 1}], "number": [1], "half": [0.5], "bytes": [[b"a"]]}
    table["price"] = pa.array([1], pa.decimal128(10, 2))
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        blocks(tmp_path, columns)


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "wonderful": [1]}), path, store_schema=False)
    odd_name = path.read_bytes().replace(b"wonderful", b"w\xffnderful")
    for data in (b"PAR1 is not enough PAR1", odd_name):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"a\.parquet cannot be read as Parquet"):
            blocks(tmp_path)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(ValueError, match=r"a\.parquet\.gz is compressed as a whole"):
        blocks(tmp_path)


class Keys(encryption.KmsClient):
    """Keys that are as good as none."""

    def __init__(self, connection: encryption.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plain", [True, False], ids=["plain footer", "encrypted footer"])
def test_encrypted_columns_are_refused(tmp_path, plain):
    """pyarrow ends the process when it is asked for an encrypted column of a plain footer."""
    columns = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"key": ["text"]}, plaintext_footer=plain
    )
    to = encryption.KmsConnectionConfig()
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(to, columns)
    table = pa.table({"id": ["a"], "text": ["one"]})
    pq.write_table(table, tmp_path / "a.parquet", encryption_properties=properties)
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as Parquet: .*encrypt"):
        blocks(tmp_path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_flipped_byte_of_a_page_changes_no_text_silently(
    tmp_path, version, compression, dictionary
):
    path = tmp_path / "in.parquet"
    expected = [f"text {row % 40} of some length" for row in range(200)]
    layout = {"compression": compression, "use_dictionary": dictionary}
    layout |= {"data_page_version": version, "write_page_checksum": True}
    pq.write_table(pa.table({"text": expected}), path, **layout)
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    stop = start + column.total_compressed_size
    damaged = 0
    for place in range(start, stop, max(1, (stop - start) // 150)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x01
        path.write_bytes(flipped)
        message = failure(tmp_path, expected)
        assert message is None or message.startswith(f"{path} cannot be read as Parquet"), place
        damaged += message is not None
    assert damaged > 50


def failure(folder, expected):
    """What reading raises; None where it gives what is expected."""
    try:
        found = texts_of(blocks(folder))
    except ValueError as error:
        return str(error)
    assert found == expected
    return None


def flipped_counts(path):
    """The bytes of a file of 400 rows in 4 row groups, with each bit of these numbers flipped."""
    rows = pa.table({"text": [f"text {row}" for row in range(400)]})
    pq.write_table(rows, path, row_group_size=100, compression="none")
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for number in (800, 200):  # Thrift's zigzag: the rows of the file, and of a row group
        varint = bytes([number & 127 | 128, number >> 7])
        places = [n for n in range(footer, len(whole)) if whole[n : n + 2] == varint]
        for place, bit in itertools.product(places, (0, 3, 4, 5, 8, 9)):
            flipped = bytearray(whole)
            flipped[place + bit // 8] ^= 1 << bit % 8
            yield bytes(flipped)


def test_a_flipped_number_of_rows_leaves_none_out(tmp_path):
    path, refused = tmp_path / "in.parquet", 0
    for data in flipped_counts(path):
        path.write_bytes(data)
        message = failure(tmp_path, [f"text {row}" for row in range(400)])
        assert message is None or message.startswith(f"{path} cannot be read as Parquet"), message
        refused += message is not None
    assert refused > 20


_FLIPS = """
import sys
from pathlib import Path
from bert_embed.base.errors import InputError
from tests.support.blocks import read_input

path, bits = Path(sys.argv[1]), list(map(int, sys.argv[2].split(",")))
whole = path.read_bytes()
for bit in bits:
    print(bit, end=" ", flush=True)
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        blocks = read_input(path)
        print(sum(len(block) + len(block.part.rejected) for block in blocks), flush=True)
    except InputError:
        print("refused", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_flipped_bit_anywhere_leaves_no_row_out(tmp_path, dictionary):
    """Without checksums, which few writers make; of some bits Arrow ends the whole process."""
    path, whole = tmp_path / "in.parquet", tmp_path / "whole"
    rows = range(40)
    table = {"id": [str(row) for row in rows], "text": [f"a text {row % 9}" * 3 for row in rows]}
    sizes = {"row_group_size": 20, "data_page_size": 200, "write_batch_size": 5}
    pq.write_table(pa.table(table), whole, use_dictionary=dictionary, **sizes)
    left = random.Random(4).sample(range(8 * whole.stat().st_size), 150)
    outcomes = []
    while left:
        shutil.copy(whole, path)
        ended = ran([*python(), "-c", _FLIPS, str(path), ",".join(map(str, left))])
        lines = ended.stdout.splitlines()
        if ended.returncode:
            assert ended.returncode < 0, ended.stderr  # by a signal
            lines[-1] += "died"
        outcomes += [line.split()[1] for line in lines]
        left = left[len(lines) :]
    assert set(outcomes) <= {"40", "refused", "died"}
    assert outcomes.count("refused") > 20
    assert outcomes.count("died") < 5


def test_fewer_rows_than_values_leave_none_out(tmp_path):
    """Both numbers of rows are 300, and every column has 400 values."""
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(400)]}), path)
    data, said = bytearray(path.read_bytes()), (b"\xa0\x06", b"\xd8\x04")  # zigzag varints
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    places = [n for n in range(footer, len(data)) if data[n : n + 2] == said[0]]
    for chosen in itertools.combinations(places, 2):
        changed = bytearray(data)
        for place in chosen:
            changed[place : place + 2] = said[1]
        path.write_bytes(changed)
        metadata = pq.read_metadata(path)
        group = metadata.row_group(0)
        if (metadata.num_rows, group.num_rows, group.column(0).num_values) == (300, 300, 400):
            break
    with pytest.raises(InputError, match="300 rows in a row group, 400 values in its column text"):
        blocks(tmp_path)


def test_a_file_of_the_same_size_and_time_with_other_rows_is_noticed(tmp_path):
    """As copied over the listed one by a program that keeps times."""
    path = tmp_path / "in.parquet"
    written = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(pa.table({"text": ["a" * 10, "b" * 10]}), path, **written)
    [spec] = specs_of(tmp_path, 1 << 20)
    status = path.stat()
    pq.write_table(pa.table({"text": ["a" * 6, "b" * 5, "c" * 5]}), path, **written)
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InputError, match="had 2 rows when it was listed and has 3"):
        list(document_blocks(spec, Columns(), 1000, 1 << 20, {}))


def test_a_limit_reads_no_footers_far_beyond_it(tmp_path):
    """The last file is damaged, and nobody asks for its rows."""
    for number in range(100):
        pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / f"{number:03d}.parquet")
    (tmp_path / "099.parquet").write_bytes(b"PAR1 no footer")
    files = list_input([str(tmp_path)]).first(3)
    found = [(file.info.path[-11:], file.stop) for file in files]
    assert found == [("000.parquet", 2), ("001.parquet", 1)]
    with pytest.raises(InputError, match="099"):
        list_input([str(tmp_path)]).first(None)
