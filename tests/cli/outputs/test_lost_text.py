"""What of the texts did not reach the model: cut tokens and unknown words, told and counted."""

import json
import re

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import embed, flags_of, record, rows

pytestmark = pytest.mark.slow


def test_cut_tokens_are_counted_and_warned_of(tmp_path, tiny_bundle, capsys):
    texts = tmp_path / "in.txt"
    texts.write_text("the bank\n" + "river " * 28 + "\n" + "money " * 12)
    output, flags = tmp_path / "out", {"max_seq_length": 12}
    assert embed(output, tiny_bundle, texts, **flags) == 0
    assert rows(output)["num_tokens"] == [4, 12, 12]
    assert rows(output)["num_tokens_full"] == [4, 30, 14]
    numbers = record(output)
    assert (numbers["tokens"], numbers["full_tokens"]) == (28, 48)
    assert numbers["cut_share"] == round(20 / 48, 4)
    said = capsys.readouterr().out
    assert "2 texts cut at 12 tokens (41.7% of all tokens)" in said
    assert "warning: 41.7% of the tokens were cut" in said
    assert "--long_text window" in said
    windows = tmp_path / "windows"
    assert embed(windows, tiny_bundle, texts, long_text="window", **flags) == 0
    assert (record(windows)["cut_share"], record(windows)["full_tokens"]) == (0, 48)
    assert "warning" not in capsys.readouterr().out
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"text": "the bank", "text_b": "river " * 20}))
    assert embed(tmp_path / "p", tiny_bundle, pairs, text_b_column="text_b", **flags) == 0
    assert rows(tmp_path / "p")["num_tokens_full"] == [25]


def test_examples_keep_the_full_lengths(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("river " * 28 + "\nмост")
    flags = flags_of(tmp_path / "examples", tiny_bundle, tmp_path / "in.txt", max_seq_length=12)
    assert main(["tokenize", *flags]) == 0
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "examples") == 0
    assert rows(tmp_path / "out")["num_tokens_full"] == [30, 3]
    numbers = record(tmp_path / "out")
    assert (numbers["full_tokens"], numbers["unknown"]["tokens"]) == (33, 1)


def test_unknown_words_are_counted(tmp_path, tiny_bundle, capsys):
    (tmp_path / "a.txt").write_text("the bank\n" * 20 + "the river \N{GRINNING FACE}\n" * 20)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "a.txt", block_bytes=100) == 0
    unknown = record(tmp_path / "out")["unknown"]  # most blocks have none
    assert unknown == {"tokens": 20, "share": 0.2}
    said = capsys.readouterr().out
    assert "20 tokens are [UNK], 20.0%\n" in said
    assert "choose a --model for these languages" in said.replace("\n", " ")
    (tmp_path / "c.txt").write_text("the bank of the river\n")
    assert embed(tmp_path / "c", tiny_bundle, tmp_path / "c.txt") == 0
    assert record(tmp_path / "c")["unknown"] == {"tokens": 0, "share": 0.0}
    assert "[UNK]" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("Der Steuermann lief bei Sturm über die Hafenmauer und suchte vergeblich Hilfe.", True),
        ("Штурман бежал по набережной и напрасно искал помощи.", True),
        (
            "The helmsman ran over the harbour wall in the storm and searched in vain for help.",
            False,
        ),
        ("for number, block in enumerate(blocks): total += len(block) * width", False),
    ],
    ids=["German", "Russian", "English", "code"],
)
def test_a_language_that_the_model_splits_into_pieces_is_told(tmp_path, capsys, text, warned):
    (tmp_path / "in.txt").write_text(text, "utf-8")
    assert embed(tmp_path / "out", "minilm", tmp_path / "in.txt") == 0
    assert (record(tmp_path / "out")["unknown"]["continuing_share"] > 0.3) is warned
    said = capsys.readouterr().out.replace("\n", " ")
    assert ("of the tokens continue a word" in said) is warned


def test_one_of_each_is_singular(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("мост " + "river " * 20 + "\n\n")
    for flags in ({"limit": 2}, {"limit": 2, "max_rejected": 0}):
        embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", max_seq_length=12, **flags)
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert main(["search", str(tmp_path / "out"), "the river"]) == 0
    said = "".join(capsys.readouterr())
    assert "1 text cut at 12 tokens" in said
    assert re.findall(r"(?<![\d,.])1 [a-z]+s (?!cut|of)[^\n]*", said) == []
