"""What is said of languages that the model does not know and of other encodings."""

import numpy as np
import pytest

from bert_embed.text.documents import TextTokenizer
from bert_embed.transforms.blocks import unknown_words
from tests.support.command import record, rows
from tests.support.outputs import content

ENGLISH = "the old harbour lay quiet under the evening sky and children played along the wall"
FOREIGN = {
    "german": "der alte Hafen lag still unter dem Abendhimmel und die Fischer flickten ihre Netze",
    "russian": "старая гавань лежала тихо под вечерним небом, и рыбаки чинили свои сети",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_a_tenth_of_another_language_is_told_of(run, name, command):
    texts = [ENGLISH] * 8 + [FOREIGN[name]]
    output = run({"in.jsonl": [{"text": text} for text in texts]}, model="minilm")
    assert record(output)["foreign_texts"] == 1
    said = "1 text (11.1%) may be of languages that the model does not know"
    assert f"warning: {said}" in run.said
    assert content(output)["foreign_texts"] == 1
    assert said in command("estimate", input=output.parent / "in.jsonl", seconds=0).out


class _Vocabulary(TextTokenizer):
    """A tokenizer of some entries alone."""

    def __init__(self, *entries):
        self.vocab, self.unk_id = entries, None

    continues_word = property(lambda self: np.array([one[:2] == "##" for one in self.vocab]))
    settings = file_text = tokenize_texts = None


def words(first, count):
    return [chr(ord(first) + n % 20) * (2 + n // 20) for n in range(count)]


@pytest.mark.parametrize(
    ("entries", "foreign"),
    [
        ([*words("a", 200), "##b", "б"], {"##b", "б"}),
        ([*words("a", 200), *words("б", 200), "##b", "##б", "海"], {"海"}),
        ([*words("a", 200), *map(chr, range(0x4E00, 0x4E14)), "か", "7"], {"か"}),
        (["a", "б"], set()),
    ],
)
def test_scripts_with_hardly_any_words_are_foreign(entries, foreign):
    tokenizer = _Vocabulary(*entries)
    assert {
        one for one, is_one in zip(entries, tokenizer.is_foreign, strict=True) if is_one
    } == foreign


def test_short_texts_tell_nothing():
    tokenizer = _Vocabulary(*words("a", 200), "б", "##b")
    ids = np.array([200] * 6 + [201] + [0] * 7 + [200] * 4 + [0] * 9 + [200] * 3, np.int32)
    found = unknown_words(ids, None, tokenizer, np.array([0, 7, 18, 30]))
    assert (found.foreign, found.continuing) == (1, 1)


COMMAND = "`iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`"


@pytest.mark.parametrize(
    ("name", "text"), [("in.txt", "één boek\n"), ("in.csv", "id,text\n1,één\n")]
)
def test_latin_1_is_answered_by_a_command(run, name, text):
    run({name: text.encode("latin-1")}, code=3, max_rejected=0)
    assert f"{name} is not UTF-8, and such records are rejected: {COMMAND}" in run.said
    assert f"most for: invalid UTF-8; {COMMAND}" in run.err


def test_latin_1_elsewhere_is_answered_likewise(run):
    lines = ["id,text", *("1,a bank" for _ in range(3000)), "2,één"]
    run({"in.csv": "\n".join(lines).encode("latin-1")}, code=3, max_rejected=0, id_column="")
    assert "is not UTF-8" not in run.said
    assert f"rejected/ has them with their reasons; {COMMAND}" in run.err
    json_lines = '{"text": "één boek"}\n'.encode("latin-1")
    run.refused({"in.jsonl": json_lines}, f"not UTF-8: {COMMAND}", "json")


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


def test_unknown_words_are_counted(run):
    text = "the bank\n" * 20 + "the river \N{GRINNING FACE}\n" * 20
    output = run({"a.txt": text}, block_bytes=100)
    assert record(output)["unknown"] == {"tokens": 20, "share": 0.2}  # most blocks have none
    assert "20 tokens are [UNK], 20.0%\n" in run.out
    assert "choose a --model for these languages" in run.said
    output = run({"c.txt": "the bank of the river\n"}, "c")
    assert record(output)["unknown"] == {"tokens": 0, "share": 0.0}
    assert "[UNK]" not in run.out
