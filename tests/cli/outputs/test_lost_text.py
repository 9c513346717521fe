"""What of the texts did not reach the model: cut tokens and unknown words, told and counted."""

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import flags_of, record, rows

pytestmark = pytest.mark.slow


def test_cut_tokens_are_counted_and_warned_of(run):
    texts = {"in.txt": "the bank\n" + "river " * 28 + "\n" + "money " * 12}
    flags = {"max_seq_length": 12}
    output = run(texts, **flags)
    assert rows(output)["num_tokens"] == [4, 12, 12]
    assert rows(output)["num_tokens_full"] == [4, 30, 14]
    numbers = record(output)
    assert (numbers["tokens"], numbers["full_tokens"]) == (28, 48)
    assert numbers["cut_share"] == round(20 / 48, 4)
    assert "2 texts cut at 12 tokens (41.7% of all tokens)" in run.out
    assert "warning: 41.7% of the tokens were cut" in run.out
    assert "--long_text window" in run.out
    windows = record(run(texts, "windows", long_text="window", **flags))
    assert (windows["cut_share"], windows["full_tokens"]) == (0, 48)
    assert "warning" not in run.out
    pairs = {"pairs.jsonl": [{"text": "the bank", "text_b": "river " * 20}]}
    found = rows(run(pairs, "pairs", text_b_column="text_b", **flags))
    assert found["num_tokens_full"] == [25]


def test_examples_keep_the_full_lengths(tmp_path, tiny_bundle, run):
    (text,) = run.written({"in.txt": "river " * 28 + "\nмост"})
    flags = flags_of(tmp_path / "examples", tiny_bundle, text, max_seq_length=12)
    assert main(["tokenize", *flags]) == 0
    output = run(tmp_path / "examples")
    assert rows(output)["num_tokens_full"] == [30, 3]
    numbers = record(output)
    assert (numbers["full_tokens"], numbers["unknown"]["tokens"]) == (33, 1)


def test_unknown_words_are_counted(run):
    text = "the bank\n" * 20 + "the river \N{GRINNING FACE}\n" * 20
    output = run({"a.txt": text}, block_bytes=100)
    assert record(output)["unknown"] == {"tokens": 20, "share": 0.2}  # most blocks have none
    assert "20 tokens are [UNK], 20.0%\n" in run.out
    assert "choose a --model for these languages" in run.said
    output = run({"c.txt": "the bank of the river\n"}, "c")
    assert record(output)["unknown"] == {"tokens": 0, "share": 0.0}
    assert "[UNK]" not in run.out


LANGUAGES = {
    "Der Steuermann lief bei Sturm über die Hafenmauer und suchte vergeblich Hilfe.": True,
    "Штурман бежал по набережной и напрасно искал помощи.": True,
    "The helmsman ran over the harbour wall in the storm and searched in vain.": False,
    "for number, block in enumerate(blocks): total += len(block) * width": False,
}


def test_a_language_that_the_model_splits_into_pieces_is_told(run):
    for number, (text, warned) in enumerate(LANGUAGES.items()):
        output = run({f"{number}.txt": text}, f"out{number}", model="minilm", layers="0")
        assert (record(output)["unknown"]["continuing_share"] > 0.3) is warned
        assert ("may be of languages that the model does not know" in run.said) is warned
