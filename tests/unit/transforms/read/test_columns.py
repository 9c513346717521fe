"""Columns: pairs and lists of words, each from the fields or the line that hold it."""

import json

from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks


def read(folder, columns, block_bytes=1 << 20):
    """The blocks of a folder's files."""
    specs = plan_blocks(list_input([str(folder)]).files, block_bytes)
    return [
        each for spec in specs for each in document_blocks(spec, columns, 1000, block_bytes, {})
    ]


def read_records(folder, records, columns):
    """The one block of some JSON records."""
    lines = [json.dumps(each) for each in records]
    (folder / "in.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (block,) = read(folder, columns)
    return block


def reasons(block):
    return [(each.id, each.reason) for each in block.part.rejected]


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
    assert reasons(block) == [
        ("5", "second text is not a string"),
        ("6", "second text is not a string"),
        ("8", "missing text"),
    ]


def test_files_of_both_kinds_in_a_run_with_pairs(tmp_path):
    """Each file's documents keep theirs, and one that can have no pair has an empty second text."""
    (tmp_path / "a.jsonl").write_text('{"text": "one", "b": "two"}\n')
    (tmp_path / "b.txt").write_text("three ||| four\n")
    by_field = read(tmp_path, Columns(text_b="b"))
    assert [each.texts_b for each in by_field] == [["two"], [""]]


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
    assert reasons(block) == [
        ("c", "empty text"),
        ("d", "empty text"),
        ("e", "text is not a string or a list of strings"),
        ("f", "text is not a string or a list of strings"),
        ("g", "text is not a string or a list of strings"),
    ]
    assert not any(each.blank for each in block.part.rejected)


def test_small_files_of_a_block_keep_their_own_words(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": ["two", "three"]}\n')
    (block,) = read(tmp_path, Columns())
    assert block.texts == ["one", "two three"]
    assert block.words == [None, ["two", "three"]]
