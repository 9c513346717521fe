"""Text that is no UTF-8 is refused by its file's name before anything is embedded."""

import gzip

from tests.support.command import rows

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


def test_records_are_read_whatever_their_file_is_called(tmp_path, run):
    """Lines of JSON would be embedded as they are; as text, or as one document, if asked."""
    records = '{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n'
    output = run({"in/000": records, "in/0001_part_00.gz": records, "in/h.txt": records})
    assert rows(output)["id"] == ["1", "2"] * 3
    output = run(tmp_path / "in" / "000", "text", input_format="text", keep_text=True)
    assert rows(output)["text"] == records.splitlines()
    run.written({"in/h.txt.md5": "0  h.txt"})
    output = run(tmp_path / "in" / "h*", "whole", input_format="files", keep_text=True)
    assert rows(output)["text"] == [records]
