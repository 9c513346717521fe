"""Columns: pairs and lists of words, each from the fields or the line that hold it."""

from bert_embed.transforms.read.columns import Columns
from tests.support.blocks import read_input, rejected_of
from tests.support.command import write_json


def read_records(folder, records, columns):
    write_json(folder / "in.jsonl", *records)
    (block,) = read_input(folder, columns)
    return block


def test_pairs_of_json_lines(tmp_path):
    records = [
        {"id": 1, "q": "one", "a": "two"},
        {"id": 2, "q": "one"},
        {"id": 3, "q": "one", "a": None},
        {"id": 4, "q": "one", "a": " \t"},
        {"id": 5, "q": "one", "a": 7},
        {"id": 6, "q": "one", "a": ["two"]},
        {"id": 7, "q": "one ||| two", "a": " kept as it is "},
        {"id": 8, "a": "two"},
    ]
    columns = Columns("q", "id", text_b="a")
    block = read_records(tmp_path, records, columns)
    assert block.ids.to_pylist() == ["1", "2", "3", "4", "7"]
    assert block.texts == ["one"] * 4 + ["one ||| two"]
    assert block.texts_b == ["two", "", "", "", " kept as it is "]
    assert rejected_of([block]) == [
        ("5", "second text is not a string"),
        ("6", "second text is not a string"),
        ("8", "missing text"),
    ]


def test_files_of_both_kinds_in_a_run_with_pairs(tmp_path):
    """A file that can have no pairs has empty second texts."""
    (tmp_path / "a.jsonl").write_text('{"text": "one", "b": "two"}\n')
    (tmp_path / "b.txt").write_text("three ||| four\n")
    assert [each.texts_b for each in read_input(tmp_path, Columns(text_b="b"))] == [["two"], [""]]


def test_lists_of_words(tmp_path):
    records = [
        {"id": "a", "text": ["EU", "rejects", "German call"]},
        {"id": "b", "text": "plain text"},
        {"id": "c", "text": []},
        {"id": "d", "text": ["", " "]},
        {"id": "e", "text": ["EU", 7]},
        {"id": "f", "text": ["EU", None]},
        {"id": "g", "text": {"EU": 1}},
        {"id": "h", "text": ["", "\u200b", "end"]},
    ]
    block = read_records(tmp_path, records, Columns(id="id"))
    assert block.ids.to_pylist() == ["a", "b", "h"]
    assert block.texts == ["EU rejects German call", "plain text", " \u200b end"]
    assert block.words == [["EU", "rejects", "German call"], None, ["", "\u200b", "end"]]
    assert rejected_of([block]) == [
        *(("c", "empty text"), ("d", "empty text")),
        *((name, "text is not a string or a list of strings") for name in "efg"),
    ]
    assert not any(each.blank for each in block.part.rejected)


def test_small_files_of_a_block_keep_their_own_words(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": ["two", "three"]}\n')
    (block,) = read_input(tmp_path)
    assert block.texts == ["one", "two three"]
    assert block.words == [None, ["two", "three"]]
