"""--input_format files: each text file is one document; and which files of a folder are read."""

import gzip
import json

import pytest

from bert_embed.transforms.read import lines
from tests.support.command import embed, record, rejected, rows


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


WORDS = "één\ntwee\n"


def test_a_file_of_utf_16_is_refused_wherever_it_stands(tmp_path, run):
    """Not only the first, which the command line looks into anyway; compressed, by the job."""
    utf16, folder = WORDS.encode("utf-16"), f"{tmp_path}/in"
    run.refused({"in/a.txt": WORDS, "in/b.txt": utf16}, f"{folder}/b.txt is UTF-16")
    convert = "convert it to UTF-8: iconv -f UTF-16 -t UTF-8"
    assert (run.out, run.err) == ("", f"error: {folder}/b.txt is UTF-16, {convert}\n")
    # The plan reads of the largest, and into a file of each suffix.
    files = {"more/a.txt": WORDS * 9, "more/c.txt.gz": gzip.compress(utf16)}
    run.refused(files, f"{tmp_path}/more/c.txt.gz is UTF-16")
    run(files | {"more/b.txt.gz": gzip.compress(WORDS.encode())}, code=1)
    assert f"{tmp_path}/more/c.txt.gz is UTF-16" in run.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bundle):
    """A folder of texts, and in it what a run made of them."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("the bank\nthe river\n")
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    return folder


def test_they_are_no_input_and_change_no_finished_run(folder, run, tiny_bundle, capsys):
    for number, pattern in enumerate(("", "/**", "/**/*")):
        made = record(run(f"{folder}{pattern}", f"out{number}"))
        assert made["counts"]["records"] == 2
        assert made["input"]["files"] == 1
        assert made["input"]["skipped_files"]["outputs of runs"] >= 4
        assert "of a run's output and are skipped (" in run.out
    assert embed(folder / "out", tiny_bundle, folder, keep_text=True) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_what_names_an_output_alone_is_refused_unless_it_names_its_texts(folder, run):
    for named in ("{}/**/*.parquet", "{}/out", "{}/out/", "{}/out/**"):
        run.refused(named.format(folder), f"names the output of a run, {folder}/")
    texts = ("{}/*/embeddings/*.parquet", "{}/out/embeddings", "{}/out/embeddings/*")
    for number, named in enumerate(texts):
        output = run(named.format(folder), f"texts{number}")
        assert record(output)["counts"]["embedded"] == 2


OF_A_RUN = {"status": "done", "run": "a", "started": "", "versions": {}}


@pytest.mark.parametrize(
    "content",
    [{"run": "a", "status": "done"}, OF_A_RUN | {"other": "a" * (1 << 20)}],
    ids=["other keys", "large"],
)
def test_a_file_of_that_name_is_text(run, content):
    files = {"in/run.json": json.dumps({"text": "the bank"} | content)}
    output = run(files | {"in/a.json": '{"text": "the river"}'})
    assert record(output)["counts"]["embedded"] == 2
