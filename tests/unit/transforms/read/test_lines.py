"""Lines: each is of exactly one part, wherever blocks are cut; text that is no UTF-8 is refused."""

import bz2
import gzip
import json
import re

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed import InputError
from bert_embed.transforms.examples import ExampleSettings
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.lines import first_lines, parse_text
from bert_embed.transforms.read.reader import parts_of
from tests.support.blocks import example, framed, texts_of

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def read_all(files, block_bytes, part_docs):
    """The lines of all blocks with their places, in order, as `(file, offset, line)`."""
    for spec in plan_blocks(files, block_bytes):
        parts = list(parts_of(spec, part_docs, block_bytes))
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
        assert [part.number for part in parts] == list(range(len(parts)))
        counts = [sum(lines.count for lines in part.contents) for part in parts]
        assert all(count <= part_docs for count in counts)
        assert parts[-1].end_of_file == (sum(counts) if spec.read_through else None)
        for lines in (lines for part in parts for lines in part.contents):
            offset = lines.offset
            for line in lines.data.split(b"\n")[: lines.count]:
                yield lines.file, offset, line
                offset += len(line) + 1


@settings(max_examples=250)
@given(
    contents=st.lists(st.text("ab\n", max_size=60).map(str.encode), min_size=1, max_size=4),
    suffixes=st.lists(st.sampled_from(sorted(PACK)), min_size=4, max_size=4),
    block_bytes=st.integers(1, 40),
    part_docs=st.integers(1, 9),
    limit=st.none() | st.integers(1, 20),
)
def test_any_cutting_gives_each_line_once_in_order(
    tmp_path_factory, contents, suffixes, block_bytes, part_docs, limit
):
    folder = tmp_path_factory.mktemp("lines")
    expected = []
    for number, (content, suffix) in enumerate(zip(contents, suffixes, strict=False)):
        (folder / f"{number}.txt{suffix}").write_bytes(PACK[suffix](content))
        offset = 0
        for line in content.removesuffix(b"\n").split(b"\n") if content else ():
            expected.append((number, offset, line))
            offset += len(line) + 1
    files = list_input([str(folder)]).first(limit)
    assert list(read_all(files, block_bytes, part_docs)) == expected[:limit]


def test_a_file_that_changed_is_refused(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    spec = next(plan_blocks(list_input([str(path)]).files, 100))
    path.write_text("one\ntwo\nthree\n")
    with pytest.raises(ValueError, match=r"in\.txt changed after the job started: listed with 8"):
        list(parts_of(spec, 10, 100))
    path.unlink()
    with pytest.raises(ValueError, match="is gone since the job started; put it back"):
        list(parts_of(spec, 10, 100))


def test_documents_carry_the_place_where_their_line_begins(tmp_path):
    data = "\ufeffeins\r\n\nzwei ü\n drei".encode()
    (tmp_path / "in.txt").write_bytes(data)
    lines = first_lines(list_input([str(tmp_path)]).files[0])
    found = parse_text(lines, Columns())
    path = f"{tmp_path}/in.txt"
    assert found.ids.to_pylist() == [f"{path}:0", f"{path}:10", f"{path}:18"]
    assert found.texts == ["eins", "zwei ü", " drei"]
    assert [each.source for each in found.rejected] == [f"{path}:9"]


LANGUAGES = {
    "cyrillic": "берег реки был крутой\nвода текла по камням\n",
    "chinese": "河岸很陡\n水流过石头\n",
    "japanese": "川岸は険しかった\n水が石の上を流れた\n",
    "greek": "η όχθη του ποταμού\nνερό\n",
    "dutch": "de oever van de rivier, één\n",
}
MARKS = {
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\x00\x00",
    "utf-32-be": b"\x00\x00\xfe\xff",
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"


@pytest.mark.parametrize("codec", MARKS)
@pytest.mark.parametrize("name", ["in.txt", "in.csv", "in.jsonl", "in.txt.gz"])
def test_utf_16_and_utf_32_are_refused_with_and_without_a_mark(read, codec, name):
    kind = codec[:6].upper()
    said = f"{name} is {kind}, convert it to UTF-8: iconv -f {kind} -t UTF-8"
    with pytest.raises(InputError, match=said):
        read(MARKS[codec] + "één\ntwee\n".encode(codec), name)
    said = "is binary data, or text in another encoding .*: convert it"
    for text in LANGUAGES.values() if not name.endswith("gz") else ():
        with pytest.raises(InputError, match=said):
            read((text * 50).encode(codec), name)


@pytest.mark.parametrize(
    "data",
    [
        *(text.encode() for text in LANGUAGES.values()),
        *(LANGUAGES["cyrillic"].encode(codec) for codec in ("cp1251", "koi8-r")),
        LANGUAGES["chinese"].encode("gb18030"),
        *(b"a\0b", b"\0", "одна\0строка".encode(), b"\x1b[1mbold\x1b[0m\n"),
    ],
)
def test_other_text_is_not_taken_for_them(tmp_path, data):
    (tmp_path / "in.txt").write_bytes(data)
    assert [file.format for file in list_input([str(tmp_path / "in.txt")]).files] == ["text"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"\0" * 100, "is binary data"),
        ("a.csv", b"PK\x03\x04\x14\0\x08\0\xe9\xff\xfe", "is a zip archive, not text"),
        ("a.jsonl", b"\xfd7zXZ\x00\x00\x04\xe6", "is xz, not text"),
        ("b.txt", b"one\rtwo\r\r", "has lines that end in carriage returns alone"),
        ("part-0", b"PARE\x15\x04\x150\x15.\xcc\xff", "is encrypted Parquet, not text"),
        ("a.txt", b"\x04\x22\x4d\x18d@\xa7\xcc\xff", "is lz4, not text"),
        *(
            (name, POINTER, "is a pointer of Git LFS, get the file with git")
            for name in ("b.txt", "b.csv", "b.jsonl.gz", "b.parquet", "b")
        ),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(read, name, data, message):
    with pytest.raises(InputError, match=f"{name} {message}"):
        read(data, name)


RECORDS = b'{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n'
ARRAY = b"[" + RECORDS.strip().replace(b"}\n{", b"},\n{") + b"]"
TABLE = b"id\ttext\n1\tone\n2\ttwo\n"
COMMAS = TABLE.replace(b"\t", b",")
LONG = b'{"x": "' + b"y" * (3 << 19) + b'", ' + RECORDS.lstrip(b"{")  # of more than is looked at
INDENTED = [json.dumps(json.loads(line), indent=1) for line in RECORDS.splitlines()]
LINES = b"one\ntwo\n"
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        # The first bytes say how a file is compressed.
        *[("gzip", gzip.compress(LINES)), ("bz2", bz2.compress(LINES))],
        *[("zstd", zstandard.compress(LINES)), ("plain.zst", LINES)],
        ("table.csv", gzip.compress(COMMAS)),
        # Shards as Beam and TensorFlow name them.
        *[("a.CSV-00000-of-00002.gz", COMMAS), ("a.tsv-00000-of-00001", TABLE)],
        *[("a.csv.bgz", gzip.compress(COMMAS)), ("a.csv.gz-0-of-1", gzip.compress(COMMAS))],
        *[("a.jsonl-00000-of-00001", RECORDS), ("part-00000", LONG), ("part-00000.gz", LONG)],
        *[("i.txt", f"[{','.join(INDENTED)}]"), ("i.txt.gz", "\n".join(INDENTED))],
        # Warehouses name their files without a suffix: lines of JSON are no texts.
        *[("000", RECORDS), ("0001_part_00", gzip.compress(RECORDS)), ("c.jsonlines", RECORDS)],
        *[("d.jsonl.1", RECORDS), ("a.jsonl.zstd", zstandard.compress(RECORDS)), ("e", ARRAY)],
        *[("b.json.gzip", gzip.compress(ARRAY)), ("f.tab", TABLE)],
        ("g.tsv", SKIPPABLE + zstandard.compress(TABLE)),
        ("h.txt", b"\xef\xbb\xbf" + RECORDS),
        ("mark.txt", b"\xef\xbb\xbfone\ntwo\n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # gzip writes the time
)
def test_what_a_file_holds_is_read_whatever_it_is_called(read, name, data):
    _, reasons, found = read(data, name, id=None)
    assert texts_of(found) == ["one", "two"]
    assert set(reasons) <= {"empty text"}


@pytest.mark.parametrize(
    "name", ["a.tfrecords", "a.tfrecord-00000-of-00001", "part-0", "a.txt", "a.gz", "gz.tfrecord"]
)
def test_examples_need_no_suffix(tmp_path, name):
    """They are all of a folder but what tells of them."""
    data = framed([example(input_ids=[2, 3])])
    (tmp_path / name).write_bytes(gzip.compress(data) if "gz" in name else data)
    settings = ExampleSettings("ab", 64, "truncate", None, "", 0, ("sentence",))
    (tmp_path / "examples.json").write_bytes(settings.to_json())
    [file] = list_input([str(tmp_path)]).files
    assert (file.format, file.compression) == ("tfrecord", "gzip" if "gz" in name else None)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_carriage_returns_in_a_long_first_line_end_none(read, name):
    one = b"one\rtwo " + b"three " * 1000 + b"\nfour\rfive\n"
    for data, wanted in (
        (one, ["one", "four"]),
        (b"six " * 1023 + b"six\r\nseven\r\n", ["six", "seven"]),
    ):
        texts = texts_of(read(data, name, id=None)[2])
        assert [re.split(r"\s", text)[0] for text in texts] == wanted
