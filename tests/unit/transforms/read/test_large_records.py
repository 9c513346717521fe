"""A line beyond all measure is rejected at its place, not held; what follows it is read."""

import bz2
import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.base.errors import InputError
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read import lines, parquet
from bert_embed.transforms.read.lines import Columns, first_lines
from bert_embed.transforms.read.reader import document_blocks
from tests.support.blocks import ids_of
from tests.support.command import ran
from tests.support.forks import python

pytestmark = pytest.mark.slow

BOUND = 40
STORED = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, 1),
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(path, block_bytes, columns=None, limit=None, part_docs=5):
    for spec in plan_blocks(list_input([str(path)]).first(limit), block_bytes):
        yield from document_blocks(spec, columns or Columns(), part_docs, block_bytes, {})


def rejected_of(blocks):
    return [each for block in blocks for each in block.part.rejected]


def place_of(source):
    return int(source.rsplit(":", 1)[1])


# A record of about so many characters: a line, a quoted field of one line, one of many.
RECORDS = {
    "txt": lambda size: "x" * size + "\n",
    "csv": lambda size: f'"{"xy" * (size // 2)}",1\n',
    "lines of csv": lambda size: '"' + "x\n" * (size // 2) + '",1\n',
}


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([0, 1, 5, *range(31, 35), *range(38, 42), 90, 400]), max_size=12),
    st.sampled_from(list(RECORDS)),
    st.booleans(),
    st.sampled_from(list(STORED)),
    st.sampled_from([7, 30, 64, 1000]),
)
def test_every_record_is_read_or_rejected_at_its_place(
    tmp_path_factory, sizes, kind, ended, suffix, block_bytes
):
    header = "" if kind == "txt" else "text,id\n"
    records = [*map(RECORDS[kind], sizes)]
    if records and not ended:
        records[-1] = records[-1].removesuffix("\n")
    path = tmp_path_factory.mktemp("large") / f"in.{kind[-3:]}{suffix}"
    path.write_bytes(STORED[suffix](data := "".join([header, *records]).encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "MOST_RECORD_BYTES", BOUND)
        blocks = list(read(path, block_bytes))
    expected, offset = {"": [], "empty text": [], "record too large": []}, len(header)
    for size, record in zip(sizes, records, strict=True):
        reason = "" if size >= (1 if kind == "txt" else 2) else "empty text"
        if record:
            expected["record too large" if len(record) > BOUND else reason].append(offset)
        offset += len(record)
    found = {"": ids_of(blocks)} | {reason: [] for reason in expected if reason}
    for block in blocks:
        assert block.part.records == len(block) + len(block.part.rejected)
    for each in rejected_of(blocks):
        assert each.id == each.source
        found[each.reason].append(each.source)
    assert {reason: sorted(map(place_of, each)) for reason, each in found.items()} == expected
    if not suffix:
        covered = sum(sum(block.part.covered.values()) for block in blocks)
        assert covered == len(data) or (kind != "txt" and covered == 0)


@pytest.mark.parametrize("suffix", list(STORED))
def test_a_limit_counts_it_and_the_first_lines_pass_over_it(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(lines, "MOST_RECORD_BYTES", BOUND)
    path = tmp_path / f"in.jsonl{suffix}"
    rows = [
        b'{"id": "%d", "text": "%s"}' % (n, b"word " * (30 if n in (0, 2) else 1)) for n in range(9)
    ]
    path.write_bytes(STORED[suffix](b"\n".join(rows)))
    [file] = list_input([str(path)]).files
    assert first_lines(file, 100).data.startswith(b'{"id": "1"')
    blocks = list(read(path, 64, Columns(id="id"), limit=4))
    assert sorted(ids_of(blocks)) == ["1", "3"]
    rejected = [(each.id, each.reason, each.record) for each in rejected_of(blocks)]
    assert rejected == [(None, "record too large", None)] * 2


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz"])
def test_a_field_of_100_megabytes_is_rejected_alone(tmp_path, suffix, caplog):
    between = b"\t" if suffix == "tsv.gz" else b","
    rows = [b"one", b'"' + b"a long text\n" * (100_000_000 // 12) + b'"', b"two"]
    data = b"".join(each + between + b"%d\n" % n for n, each in enumerate([b"text", *rows]))
    data = data.replace(b"text" + between + b"0", b"text" + between + b"id", 1)
    path = tmp_path / f"in.{suffix}"
    path.write_bytes(STORED[".gz"](data) if suffix.endswith("gz") else data)
    blocks = list(read(path, 1 << 20, Columns(id="id")))
    assert sorted(text for block in blocks for text in block.texts) == ["one", "two"]
    [rejected] = rejected_of(blocks)
    [told] = caplog.messages
    assert told.startswith(f"{path}: the quote in line 3 is not closed within 64 MiB, is it left ")
    place = f"{path}:{len(b'text,id') + 1 + len(b'one,1') + 1}"
    assert (rejected.source, rejected.reason) == (place, "record too large")


WITH_EXTRA = Columns(id="id", extra=pa.schema([("x", pa.string())]))
BOUNDS = {
    lines: ("MOST_PART_BYTES", "MOST_RECORD_BYTES"),
    parquet: ("_MOST_BATCH_BYTES", "_MOST_CHUNK_BYTES", "_MOST_MEAN_BYTES", "_TABLE_BYTES"),
}


def bound(patches, divisor=4):
    """Bounds a part, a record, a batch and a row group by a quarter of their bytes."""
    for module, names in BOUNDS.items():
        for name in names:
            patches.setattr(module, name, getattr(module, name) // divisor)


@pytest.fixture
def quartered(monkeypatch):
    bound(monkeypatch)


_PEAKS = r"""
import json, sys
from pathlib import Path
import pytest
from tests.support.command import peak_memory
from tests.unit.transforms.read.test_large_records import WITH_EXTRA, bound, place_of, read
bound(pytest.MonkeyPatch(), int(sys.argv[1]))
for path in sys.argv[2:]:
    rejected = []
    documents = 0
    settings = (WITH_EXTRA, None, 10_000) if path.endswith(".parquet") else ()
    for block in read(Path(path), 1 << 20, *settings):
        documents += len(block)
        rejected += [[place_of(each.source), each.reason] for each in block.part.rejected]
    print(json.dumps([documents, rejected, peak_memory() >> 20]))
"""


def growth(folder, *paths, divisor=4):
    """Documents, rejected records, and the most memory up to the end of each file, in MiB.

    One process reads them all, in this order, with bounds of a quarter. Memory is what it takes
    more than after small files: it begins with what the process holds that it is forked from.
    """
    small = [write_parquet(folder / "small.parquet", ["1"], ["a"], 1), folder / "small.txt"]
    small[1].write_bytes(b"one\ntwo\n")
    words = [str(divisor), *map(str, (*small, *paths))]
    done = ran([*python(), "-c", _PEAKS, *words], check=True)
    _, [*_, before], *found = map(json.loads, done.stdout.splitlines())
    return [(documents, rejected, memory - before) for documents, rejected, memory in found]


def test_a_bomb_takes_no_more_memory_than_one_record(tmp_path):
    size = 1 << 27
    piece = b"a" * (1 << 22)
    paths = [tmp_path / f"bomb.txt{suffix}" for suffix in STORED]
    for path, (suffix, store) in zip(paths, STORED.items(), strict=True):
        if suffix == "":
            with path.open("wb") as file:
                file.write(b"one\n")
                file.truncate(size)  # a hole: nothing is stored
                file.seek(0, os.SEEK_END)
                file.write(b"\ntwo\n")
        else:
            bomb = store(piece) * (size // len(piece))
            path.write_bytes(store(b"one\n") + bomb + store(b"\ntwo\n"))
            assert path.stat().st_size < 8 << 20
    for path, (*found, memory) in zip(paths, growth(tmp_path, *paths), strict=True):
        assert found == [2, [[4, "record too large"]]], path
        assert memory < 64, f"MiB for {path}; the line has 128"


def test_a_field_of_quotes_takes_no_more_memory_than_one_of_letters(tmp_path):
    quotes, letters = tmp_path / "quotes.csv", tmp_path / "letters.csv"
    for path, byte in ((letters, b"a"), (quotes, b'"')):
        path.write_bytes(b'text,id\n"' + byte * (100 << 20) + b'",1\nfine,2\n')
    of_letters, of_quotes = growth(tmp_path, letters, quotes)
    assert of_quotes[:2] == of_letters[:2] == (1, [[8, "record too large"]])
    # A piece of 16 MiB has 16 million quotes, whose places are numbers of 8 bytes.
    assert of_quotes[2] - of_letters[2] < 600, "MiB"


def test_commas_of_a_text_are_no_values(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"text": 'b, "c", ' * (1 << 20)}) + "\n", encoding="utf-8")
    assert sum(len(block) for block in read(path, 1 << 20)) == 1


def write_parquet(path, ids, values, group_rows):
    table = pa.table({"id": ids, "text": ["a"] * len(ids), "x": values})
    pq.write_table(table, path, row_group_size=group_rows)
    return path


LARGE = "x" * (10 << 18)


def repeated(rows, before=0, value=LARGE):
    """A column whose last rows are all the same value; those before are null."""
    numbers = pa.array([None] * before + [0] * (rows - before), pa.int32())
    return pa.DictionaryArray.from_arrays(numbers, pa.array([value]))


ROWS = 150
REPEATED = {
    "extra": ({"x": repeated(ROWS)}, {}),
    "nulls": (
        {"x": repeated(ROWS, before=20)},
        {"data_page_version": "2.0", "compression": "zstd"},
    ),
    "second_group": ({"x": repeated(ROWS, before=ROWS // 2)}, {"row_group_size": ROWS // 2}),
    "categories": ({"x": repeated(ROWS)}, {"store_schema": True}),
    "bytes": ({"x": repeated(ROWS, value=LARGE.encode())}, {}),
    "text": ({"text": repeated(ROWS)}, {}),
    "two": ({"text": repeated(ROWS), "x": repeated(ROWS)}, {}),
    "id": ({"id": repeated(ROWS)}, {}),
}


def test_a_value_that_a_dictionary_repeats_is_not_held_for_every_row(tmp_path):
    paths = [tmp_path / f"{name}.parquet" for name in REPEATED]
    for path, (columns, written) in zip(paths, REPEATED.values(), strict=True):
        table = {"id": [*map(str, range(ROWS))], "text": ["a"] * ROWS, "x": ["b"] * ROWS}
        pq.write_table(pa.table(table | columns), path, **({"store_schema": False} | written))
    for name, found in zip(REPEATED, growth(tmp_path, *paths), strict=True):
        documents, rejected, memory = found
        assert documents + len(rejected) == ROWS, name
        assert {reason for _, reason in rejected} == ({"id too long"} if name == "id" else set())
        assert memory < 170, f"MiB for {name}; its values have 190 to 750"


def test_what_a_dictionary_can_repeat_in_a_list_is_refused(tmp_path, quartered):
    path = tmp_path / "in.parquet"
    words = pa.ListArray.from_arrays(list(range(0, ROWS + 1, 30)), repeated(ROWS))
    pq.write_table(pa.table({"text": words}), path, store_schema=False)
    said = r"in.parquet has a value of 2,560 KiB in text.list.element, which its dictionary"
    with pytest.raises(InputError, match=said):
        list(read(path, 1 << 20))
    pq.write_table(pa.table({"text": words.slice(0, 1)}), path, use_dictionary=False)
    with pytest.raises(InputError, match=r"75 MiB in 1 values of text.list.element"):
        list(read(path, 1 << 20))
    few = pa.ListArray.from_arrays([0, 1, 1, 3], repeated(3, value="y" * (1 << 18)))
    pq.write_table(pa.table({"text": few}), path, store_schema=False)
    sizes = [len(text) for block in read(path, 1 << 20) for text in block.texts]
    assert sizes == [1 << 18, (2 << 18) + 1]


def test_a_dictionary_beyond_measure_is_refused_by_name(tmp_path, quartered):
    path = tmp_path / "in.parquet"
    values = pa.array([f"{n}{LARGE}" for n in range(30)])
    column = pa.DictionaryArray.from_arrays(pa.array([n % 30 for n in range(2000)]), values)
    pq.write_table(pa.table({"text": column}), path, store_schema=False)
    with pytest.raises(InputError, match=r"in.parquet has a dictionary of 75 MiB in text"):
        list(read(path, 1 << 20))


def test_a_few_large_values_among_many_small_ones_are_not_held_together(tmp_path):
    rows = 100_000
    values = [f"{n}{LARGE * 4}" if n % 2_000 == 0 else f"{n}" for n in range(rows)]
    table = pa.table({"id": [str(n) for n in range(rows)], "text": ["a"] * rows, "x": values})
    pq.write_table(table, tmp_path / "few.parquet", use_dictionary=False)
    [(*found, memory)] = growth(tmp_path, tmp_path / "few.parquet", divisor=1)
    assert found == [rows, []]
    assert memory < 350, "MiB; the values have 500"


def test_what_is_not_read_or_of_other_parts_is_not_held(tmp_path):
    objects = b",".join([b"{}"] * 3_000_000)
    values = tmp_path / "values.jsonl.gz"
    values.write_bytes(gzip.compress(b'{"text": "a", "x": [%b]}\n{"text": "b"}\n' % objects, 1))
    files = tmp_path / "files.parquet"
    files.mkdir()
    for number in range(60):
        write_parquet(files / f"{number:02}.parquet", [f"{number}"], [f"{number}{LARGE}"], 1)
    ids, half = [*map(str, range(120))], LARGE[: len(LARGE) // 2]
    groups = write_parquet(tmp_path / "groups.parquet", ids, [n + half for n in ids], 10)
    cases = {
        values: (1, [[0, "record of too many values"]], 100),  # MiB; parsed, the line has 300
        files: (60, [], 100),  # held, the values have 350
        groups: (120, [], 150),  # held, the column has 700 with its copies
    }
    for path, (*wanted, most) in cases.items():
        [(*found, memory)] = growth(tmp_path, path)  # what one left would count for the next
        assert found == wanted, path
        assert memory < most, f"MiB for {path}"


def test_a_part_ends_with_the_row_that_fills_it(tmp_path, quartered):
    """By the mean of the rows, 20 would fit."""
    values = [f"{n}{'y' * (6 << 18) if n >= 60 else ''}" for n in range(80)]
    path = write_parquet(tmp_path / "in.parquet", [str(n) for n in range(80)], values, 80)
    blocks = list(read(path, 1 << 20, WITH_EXTRA, part_docs=1000))
    sizes = [sum(map(len, block.extra["x"].to_pylist())) for block in blocks]
    assert max(sizes) < 38 << 18
    assert ids_of(blocks) == [*map(str, range(80))]
    assert [block.part.number for block in blocks] == list(range(len(blocks)))


def test_an_id_beyond_measure_is_rejected_and_a_row_group_of_them_refused(tmp_path, quartered):
    long = "x" * 4097
    path = write_parquet(tmp_path / "long.parquet", ["1", long, long[1:]], ["a", "b", "c"], 3)
    [block] = read(path, 1 << 20, WITH_EXTRA)
    assert block.ids.to_pylist() == ["1", long[1:]]
    assert [(each.id, each.reason) for each in block.part.rejected] == [(None, "id too long")]
    value = "x" * (5 << 18)
    path = write_parquet(
        tmp_path / "all.parquet", [f"{n}{value}" for n in range(60)], ["a"] * 60, 60
    )
    with pytest.raises(ValueError, match=r"75 MiB in 60 values of id in one row group"):
        list(read(path, 1 << 20, WITH_EXTRA))
