"""Text that is no UTF-8 is refused by its file's name before anything is embedded."""

import bz2
import gzip

import pytest
import zstandard

from bert_embed import InputError
from bert_embed.transforms.listing import list_input
from tests.support.command import record, rows

WORDS = "één\ntwee\n"


@pytest.mark.parametrize(
    ("codec", "mark", "name"),
    [
        ("utf-16-le", b"\xff\xfe", "UTF-16"),
        ("utf-16-be", b"\xfe\xff", "UTF-16"),
        ("utf-32-le", b"\xff\xfe\x00\x00", "UTF-32"),
        ("utf-32-be", b"\x00\x00\xfe\xff", "UTF-32"),
    ],
)
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "txt.gz"])
def test_utf_16_and_utf_32_are_refused(tmp_path, run, codec, mark, name, suffix):
    data, path = mark + WORDS.encode(codec), f"{tmp_path}/in.{suffix}"
    content = gzip.compress(data) if suffix.endswith("gz") else data
    run.refused({f"in.{suffix}": content}, "")
    convert = f"convert it to UTF-8: iconv -f {name} -t UTF-8"
    assert (run.out, run.err) == ("", f"error: {path} is {name}, {convert}\n")


def test_a_later_file_is_refused_too(tmp_path, run):
    """Not only the first, which the command line looks into anyway; compressed, by the job."""
    utf16, folder = WORDS.encode("utf-16"), f"{tmp_path}/in"
    run.refused({"in/a.txt": WORDS, "in/b.txt": utf16}, f"{folder}/b.txt is UTF-16")
    # The plan reads of the largest, and into a file of each suffix.
    files = {"more/a.txt": WORDS * 9, "more/c.txt.gz": gzip.compress(utf16)}
    run.refused(files, f"{tmp_path}/more/c.txt.gz is UTF-16")
    run(files | {"more/b.txt.gz": gzip.compress(WORDS.encode())}, code=1)
    assert f"{tmp_path}/more/c.txt.gz is UTF-16" in run.err


def test_the_mark_of_utf_8_is_read_over(tmp_path, run):
    ids = rows(run({"in.txt": WORDS.encode("utf-8-sig")}))["id"]
    assert ids == [f"{tmp_path}/in.txt:{at}" for at in (0, 9)]


LANGUAGES = {
    "cyrillic": "берег реки был крутой\nвода текла по камням\n",
    "chinese": "河岸很陡\n水流过石头\n",
    "japanese": "川岸は険しかった\n水が石の上を流れた\n",
    "greek": "η όχθη του ποταμού\nνερό\n",
    "dutch": "de oever van de rivier, één\n",
}


@pytest.mark.parametrize("codec", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl"])
def test_they_are_recognized_without_a_mark(tmp_path, codec, language, suffix):
    path = tmp_path / f"in.{suffix}"
    path.write_bytes((LANGUAGES[language] * 50).encode(codec))
    found = f"is {codec[:6]} without a byte order mark, convert it to UTF-8: iconv -f {codec} "
    with pytest.raises(InputError, match=found):
        list_input([str(path)])


@pytest.mark.parametrize(
    "data",
    [
        *(text.encode() for text in LANGUAGES.values()),
        *(LANGUAGES["cyrillic"].encode(codec) for codec in ("cp1251", "koi8-r")),
        LANGUAGES["chinese"].encode("gb18030"),
        LANGUAGES["dutch"].encode("latin-1") + b"a\0b\n",
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
        ("part-0", b"PARE\x15\x04\x150\x15.\xcc\xff", "is encrypted Parquet, not text"),
        ("a.txt", b"\x04\x22\x4d\x18d@\xa7\xcc\xff", "is lz4, not text"),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{name} {message}"):
        list_input([str(tmp_path / name)])


@pytest.mark.parametrize("name", ["b.txt", "b.csv", "b.jsonl.gz", "b.parquet", "b"])
def test_a_pointer_of_git_lfs_is_refused_by_its_name(run, name):
    """It was three bad records among many."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"
    files = {"in/a.jsonl": RECORDS, f"in/{name}": pointer.encode()}
    run.refused(files, f"{name} is a pointer of Git LFS, get the file with git")


@pytest.mark.slow
def test_the_first_bytes_say_how_a_file_is_compressed(run):
    data = b"one\ntwo\n"
    packed = {"gzip": gzip.compress(data), "bz2": bz2.compress(data)}
    packed |= {"zstd": zstandard.compress(data), "plain.txt.gz": data, "plain.zst": data}
    assert rows(run(packed, keep_text=True))["text"] == ["one", "two"] * 5
    table = {"table.csv": gzip.compress(b"text\none\ntwo\n")}
    assert rows(run(table, "csv", keep_text=True))["text"] == ["one", "two"]


RECORDS = b'{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n'
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def test_records_are_read_whatever_their_file_is_called(tmp_path, run):
    """Warehouses name their files without a suffix; lines of JSON would be embedded as they are."""
    table = b"id\ttext\n1\tone\n2\ttwo\n"
    contents = {
        "000": RECORDS,
        "0001_part_00.gz": gzip.compress(RECORDS),
        "a.jsonl.zstd": zstandard.compress(RECORDS),
        "b.json.gzip": gzip.compress(b"[" + RECORDS.replace(b"}\n{", b"},\n{") + b"]"),
        "c.jsonlines": RECORDS,
        "d.jsonl.1": RECORDS,
        "e": b"[" + RECORDS.strip().replace(b"}\n{", b"}, {") + b"]",
        "f.tab": table,
        "g.tsv": SKIPPABLE + zstandard.compress(table),
        "h.txt": b"\xef\xbb\xbf" + RECORDS,
    }
    output = run({f"in/{name}": content for name, content in contents.items()})
    assert rows(output)["id"] == ["1", "2"] * len(contents)
    output = run(tmp_path / "in" / "000", "text", input_format="text", keep_text=True)
    assert rows(output)["text"] == RECORDS.decode().splitlines()
    run.written({"in/h.txt.md5": "0  h.txt"})
    output = run(tmp_path / "in" / "h*", "whole", input_format="files", keep_text=True)
    assert rows(output)["text"] == [RECORDS.decode()]


def test_carriage_returns_alone_end_lines(run):
    """As pandas and Python read them."""
    found = rows(run({"a.txt": b"one\rtwo\r\rthree"}, keep_text=True))
    assert found["text"] == ["one", "two", "three"]
    assert [row.rpartition(":")[2] for row in found["id"]] == ["0", "4", "9"]


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_carriage_returns_in_a_long_first_line_end_none(run, packed):
    one = packed(b"one\rtwo " + b"three " * 1000 + b"\nfour\rfive\n")
    output = run(
        {"a.txt": one, "b.txt": packed(b"six " * 1023 + b"six\r\nseven\r\n")}, keep_text=True
    )
    assert [t.split()[0] for t in rows(output)["text"]] == ["one", "four", "six", "seven"]
    assert record(output)["counts"]["records"] == 4
