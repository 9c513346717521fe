"""--input_format files: each text file is one document; and which files of a folder are read."""

import gzip

from bert_embed.transforms.read import lines
from tests.support.command import record, rejected, rows


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


def test_each_file_is_a_document_with_its_path_as_id(tmp_path, run, monkeypatch):
    flags = {"input_format": "files", "keep_text": True}
    monkeypatch.setattr(lines, "MOST_RECORD_BYTES", 1700)
    files = {f"in/{name}": data for name, data in FILES.items()}
    output = run(files | {"in/e.txt": b"bank \xfe\xff"}, **flags, block_bytes=100)
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
    again = run(tmp_path / "in", "again", **flags, skip_existing=output, max_rejected="100%")
    assert record(again)["counts"]["skipped"] == 3
    assert ids(run(tmp_path / "in", "first", input_format="files", limit=2)) == ["a.txt", "b.md"]


def test_the_plan_says_what_a_document_is_and_what_is_skipped(tmp_path, run):
    files = {"in/a.txt": "one\ntwo\n", "in/b.txt": "three", "in/c.MD": "four"}
    output = run(files | {"in/photo.JPG": b"\xff\xd8", "in/page.pdf": b"%PDF"})
    assert ".txt 2, .md 1; 2 files are not text and are skipped (" in run.said
    assert ".jpg 1" in run.said
    assert ".pdf 1" in run.said
    assert "each line of plain text is one document (--input_format files: each file)" in run.said
    assert "tags" not in run.said
    assert len(ids(output)) == 4
    assert record(output)["input"]["skipped_files"] == {".jpg": 1, ".pdf": 1}
    output = run(tmp_path / "in", "files", input_format="files")
    assert "each text file is one document" in run.err
    assert ids(output) == ["a.txt", "b.txt", "c.MD"]
    pages = {"p/a.HTML": "<p>one", "p/b.xml.gz": "<p/>", "p/c.rtf": "{\\rtf1"}
    run(pages, "plan", input_format="files", dry_run=True)
    assert "note: .html, .xml.gz, .rtf files are read as they are, tags and all" in run.said


def test_files_that_are_not_text_are_refused_where_nothing_else_is_named(tmp_path, run):
    run.written({"in/a.pdf": b"%PDF", "in/b.jsonl": '{"text": "one"}'})
    run.refused(tmp_path / "in" / "*.pdf", "a.pdf: .pdf files cannot be read")
    run.refused(tmp_path / "in", "--input_format files is for text files", input_format="files")
