"""--input_format files: each text file is one document; and which files of a folder are read."""

import gzip

from bert_embed.transforms.read import lines
from tests.support.command import embed, record, rejected, rows


def write(folder, files):
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def ids(output):
    return [name.rsplit("/", 1)[1] for name in rows(output)["id"]]


FILES = {
    "a.txt": "\ufeffthe bank\n\nof a river\n".encode(),
    "b.md": b"# seven\r\nstars",
    "c.txt.gz": gzip.compress(b"money\nmoney\n"),
    "d.txt": b"",
    "e.txt": b"\xff\xfea",
    "f.txt": b"river " * 300,
    "g.txt": b" \n\n",
}


def test_each_file_is_a_document_with_its_path_as_id(tmp_path, tiny_bundle, monkeypatch):
    folder = write(tmp_path / "in", FILES | {"e.txt": b"bank \xfe\xff"})
    flags = {"input_format": "files", "keep_text": True}
    monkeypatch.setattr(lines, "MOST_RECORD_BYTES", 1700)
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, folder, **flags, block_bytes=100) == 0
    assert ids(output) == ["a.txt", "b.md", "c.txt.gz"]
    texts = ["the bank\n\nof a river\n", "# seven\r\nstars", "money\nmoney\n"]
    assert rows(output)["text"] == texts
    reasons = [(each["id"].rsplit("/", 1)[1], each["reason"]) for each in rejected(output)]
    assert sorted(reasons) == [
        ("d.txt", "empty text"),
        ("e.txt", "invalid UTF-8"),
        ("f.txt", "record too large"),
        ("g.txt", "empty text"),
    ]
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["blank_lines"]) == (7, 3, 2)
    again = tmp_path / "again"
    known = {"skip_existing": output, "max_rejected": "100%"}
    assert embed(again, tiny_bundle, folder, **flags, **known) == 0
    assert record(again)["counts"]["skipped"] == 3
    first = tmp_path / "first"
    assert embed(first, tiny_bundle, folder, input_format="files", limit=2) == 0
    assert ids(first) == ["a.txt", "b.md"]


def test_the_plan_says_what_a_document_is_and_what_is_skipped(tmp_path, tiny_bundle, capsys):
    folder = write(tmp_path / "in", {"a.txt": b"one\ntwo\n", "b.txt": b"three", "c.MD": b"four"})
    (folder / "photo.JPG").write_bytes(b"\xff\xd8")
    (folder / "page.pdf").write_bytes(b"%PDF")
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, folder) == 0
    said = capsys.readouterr()
    plan = (said.out + said.err).replace("\n", " ")
    assert ".txt 2, .md 1; 2 files are not text and are skipped (" in plan
    assert ".jpg 1" in plan
    assert ".pdf 1" in plan
    assert "each line of plain text is one document (--input_format files: each file)" in plan
    assert "tags" not in plan
    assert len(ids(output)) == 4
    assert record(output)["input"]["skipped_files"] == {".jpg": 1, ".pdf": 1}
    assert embed(tmp_path / "files", tiny_bundle, folder, input_format="files") == 0
    assert "each text file is one document" in capsys.readouterr().err
    assert ids(tmp_path / "files") == ["a.txt", "b.txt", "c.MD"]
    pages = write(
        tmp_path / "pages",
        {"a.HTML": b"<p>one", "b.xml.gz": gzip.compress(b"<p/>"), "c.rtf": b"{\\rtf1"},
    )
    assert embed(tmp_path / "plan", tiny_bundle, pages, input_format="files", dry_run=True) == 0
    said = capsys.readouterr()
    assert (
        "note: .html, .xml.gz, .rtf files are read as they are, tags and all" in said.out + said.err
    )


def test_files_that_are_not_text_are_refused_where_nothing_else_is_named(
    tmp_path, tiny_bundle, capsys
):
    folder = write(tmp_path / "in", {"a.pdf": b"%PDF", "b.jsonl": b'{"text": "one"}'})
    assert embed(tmp_path / "out", tiny_bundle, folder / "*.pdf") == 2
    assert "a.pdf: .pdf files cannot be read" in capsys.readouterr().err
    assert embed(tmp_path / "out", tiny_bundle, folder, input_format="files") == 2
    assert "--input_format files is for text files" in capsys.readouterr().err
