"""Text that is no UTF-8 is refused by its file's name before anything is embedded."""

import gzip

import pytest

from tests.support.command import embed, rows

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
def test_utf_16_and_utf_32_are_refused(tmp_path, tiny_bundle, capsys, codec, mark, name, suffix):
    path = tmp_path / f"in.{suffix}"
    data = mark + WORDS.encode(codec)
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    assert embed(tmp_path / "out", tiny_bundle, path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    convert = f"convert it to UTF-8: iconv -f {name} -t UTF-8"
    assert captured.err == f"error: {path} is {name}, {convert}\n"
    assert not (tmp_path / "out").exists()


def test_a_later_file_is_refused_too(tmp_path, tiny_bundle, capsys):
    """Not only the first, which the command line looks into anyway."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(WORDS, encoding="utf-8")
    (folder / "b.txt").write_text(WORDS, encoding="utf-16")
    assert embed(tmp_path / "out", tiny_bundle, folder) == 2
    assert f"{folder}/b.txt is UTF-16" in capsys.readouterr().err


def test_a_later_compressed_file_fails_the_job_by_its_name(tmp_path, tiny_bundle, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(WORDS, encoding="utf-8")
    (folder / "b.txt.gz").write_bytes(gzip.compress(WORDS.encode("utf-16")))
    assert embed(tmp_path / "out", tiny_bundle, folder) == 1
    assert f"{folder}/b.txt.gz is UTF-16" in capsys.readouterr().err


def test_the_mark_of_utf_8_is_read_over(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text(WORDS, encoding="utf-8-sig")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    assert rows(tmp_path / "out")["id"] == [f"{tmp_path}/in.txt:{at}" for at in (0, 9)]
