"""The names that `bert` offers, and their types as a user's type checker sees them."""

import subprocess
import sys
from pathlib import Path

import pytest

import bert

ROOT = Path(bert.__file__).parents[1]
USER = """
from collections.abc import Iterator
from typing import assert_type

import numpy as np

import bert

encoder = bert.load("minilm", threads=2, normalize=True)
assert_type(encoder, bert.Encoder)
vectors = encoder.encode(["one", "two"], layers=[-1, -2], layer_combine="sum")
assert_type(vectors, np.ndarray)
assert_type(encoder.encode("one", "two", normalize_embeddings=True, batch_size=8), np.ndarray)
spans = encoder.encode_spans(["one two"], [[(0, 3)]], recipe="cls", long_text="window")
assert_type(spans, list[bert.TextVectors])
assert_type(encoder.bundle, bert.Bundle)
for some_ids, some in bert.read_batches("out", rows=100):
    assert_type(some, np.ndarray)
ids, stored = bert.read("out", partial=True)
assert_type(stored, np.ndarray)
starts: list[list[int]] = [
    [] if each.starts is None else each.starts.tolist() for each in bert.read_tokens("out")
]
words: list[str] = [word for each in encoder.encode_words(["a b"]) for word in each.texts]
assert_type(bert.Tokenizer("vocab.txt", lower_case=True).tokens([1]), list[str])
try:
    encoder.encode(["a"], pooling="median")
except bert.SettingError as error:
    assert_type(error.setting, str)
"""


def test_all_names_exactly_what_is_documented():
    assert bert.__all__ == dir(bert)
    assert all(getattr(bert, name) is not None for name in bert.__all__)
    assert {"load", "Encoder", "Tokenizer", "read", "read_tokens"} <= set(bert.__all__)
    assert {"read_words", "read_spans", "InputError", "SettingError"} <= set(bert.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Model'"):
        bert.Model  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", ""),
        ("bert.load(7)", "incompatible type"),
        ("encoder.encode(['a'], poling='cls')", "Unexpected keyword"),
        ("bert.read_token('out')", "has no attribute"),
    ],
)
def test_a_user_is_checked_strictly(tmp_path, wrong, message):
    (tmp_path / "user.py").write_text(f"{USER}\n{wrong}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "user.py"]
    checked = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == (1 if wrong else 0), checked.stdout
    assert message in checked.stdout
