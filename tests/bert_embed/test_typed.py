"""The names that `bert` offers, and their types as a user's type checker sees them."""

import subprocess
import sys
from pathlib import Path

import pytest

import bert_embed

ROOT = Path(bert_embed.__file__).parents[1]
USER = """
from collections.abc import Iterator
from typing import assert_type

import numpy as np

import bert_embed

encoder = bert_embed.load("minilm", threads=2, normalize=True)
assert_type(encoder, bert_embed.Encoder)
vectors = encoder.encode(["one", "two"], layers=[-1, -2], layer_combine="sum")
assert_type(vectors, np.ndarray)
assert_type(encoder.encode("one", "two", normalize_embeddings=True, batch_size=8), np.ndarray)
spans = encoder.encode_spans(["one two"], [[(0, 3)]], recipe="cls", long_text="window")
assert_type(spans, list[bert_embed.TextVectors])
assert_type(encoder.bundle, bert_embed.Bundle)
for some_ids, some in bert_embed.read_batches("out", rows=100):
    assert_type(some, np.ndarray)
ids, stored = bert_embed.read("out", partial=True)
assert_type(stored, np.ndarray)
starts: list[list[int]] = [
    [] if each.starts is None else each.starts.tolist() for each in bert_embed.read_tokens("out")
]
words: list[str] = [word for each in encoder.encode_words(["a b"]) for word in each.texts]
assert_type(encoder.encode_tokens("a b"), bert_embed.TextVectors)
tokenizer = bert_embed.Tokenizer("vocab.txt", lower_case=True)
assert_type(tokenizer.tokens([1]), list[str])
assert_type(tokenizer.encode("a"), list[int])
assert_type(tokenizer.encode(["a"], padding=True), list[list[int]])
assert_type(tokenizer(["a"]), bert_embed.EncodedTexts)
try:
    encoder.encode(["a"], pooling="median")
except bert_embed.SettingError as error:
    assert_type(error.setting, str)
"""


def test_all_names_exactly_what_is_documented():
    assert bert_embed.__all__ == dir(bert_embed)
    assert all(getattr(bert_embed, name) is not None for name in bert_embed.__all__)
    assert {"load", "Encoder", "Tokenizer", "read", "read_tokens"} <= set(bert_embed.__all__)
    assert {"read_words", "read_spans", "InputError", "SettingError"} <= set(bert_embed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Model'"):
        bert_embed.Model  # noqa: B018


WRONG = {
    "bert_embed.load(7)": "incompatible type",
    "encoder.encode(['a'], poling='cls')": "Unexpected keyword",
    "bert_embed.read_token('out')": "has no attribute",
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What mypy says of a user's file, and of copies of it with a wrong line: by that line."""
    folder = tmp_path_factory.mktemp("user")
    names = {f"user{number}.py": line for number, line in enumerate(["", *WRONG])}
    for name, line in names.items():
        (folder / name).write_text(f"{USER}\n{line}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *names]
    checked = subprocess.run(
        command,
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    said = checked.stdout.splitlines()
    assert said.pop().endswith(f"(checked {len(names)} source files)")
    return {
        line: [each for each in said if each.startswith(f"{name}:")] for name, line in names.items()
    }


@pytest.mark.slow
def test_a_user_is_checked_strictly(complaints):
    assert complaints[""] == []


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_user_does_wrong_is_found(complaints, wrong):
    [found] = [each for each in complaints[wrong] if ": error: " in each]
    assert WRONG[wrong] in found
