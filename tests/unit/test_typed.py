"""The names that `bert_embed` offers, and their types as a user's type checker sees them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bert_embed
from tests.support.command import ran

ROOT = Path(bert_embed.__file__).parents[1]
USER = """
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type, cast

import numpy as np
from apache_beam.pvalue import PCollection
from numpy.typing import NDArray

import bert_embed
from bert_embed.transforms import Embedded

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
encoder = bert_embed.load("minilm", threads=2, normalize=True)
assert_type(encoder, bert_embed.Encoder)
vectors = encoder.encode(["one", "two"], layers=[-1, -2], layer_combine="sum")
assert_type(vectors, Floats)
units_of = encoder.units(["one two"], "word", layers=-1, long_text="window")
assert_type(units_of, list[bert_embed.TextVectors])
assert_type(units_of[0].vectors, Floats)
assert_type(units_of[0].starts, Integers)
assert_type(encoder.encode(["one"], ["two"], kind="scores"), Floats)
assert_type(encoder.encode_query(["one"]), Floats)
assert_type(encoder.encode("one", kind="sparse", top_k=9), bert_embed.SparseVector)
assert_type(encoder.encode_document("one", kind="multi"), bert_embed.MultiVector)
assert_type(encoder.encode(["one"], kind="multi"), bert_embed.MultiVectors)
sparse = encoder.encode(["one", "two"], kind="sparse", top_k=9)
assert_type(sparse[0], bert_embed.SparseVector)
assert_type(sparse[:1], bert_embed.SparseVectors)
assert_type(sparse[0].to_dict(), dict[int, float])
assert_type(sparse[0].indices, Integers)
assert_type(sparse.values, Floats)
assert_type(encoder.encode(["one"], kind="multi").vectors, Floats)
assert_type(encoder.similarity(sparse, encoder.encode("one", kind="sparse")), Floats)
assert_type(encoder.similarity_pairwise(vectors, vectors), Floats)
assert_type(encoder.score(("one", "two")), float)
assert_type(encoder.score([("one", "two")], max_seq_length=9), Floats)
assert_type(encoder.rank("one", ["one", "two"], k=1), list[bert_embed.Ranked])
assert_type(encoder.labels, tuple[str, ...])
assert_type(encoder.bundle, bert_embed.Bundle)
for some_ids, some in bert_embed.read_batches("out", rows=100):
    assert_type(some_ids, list[str | int])
    assert_type(some, Floats)
assert_type(bert_embed.nearest("out", ["one"], k=3), list[list[bert_embed.Hit]])
assert_type(bert_embed.export(["out"], "index", "faiss"), list[str])
assert_type(bert_embed.compare("old", "new").new.documents, int)
ids, stored = bert_embed.read("out", partial=True)
assert_type(ids, list[str | int])
assert_type(stored, Floats)
assert_type(bert_embed.read_scores("out")[2], Floats)
for document, tokens_of in bert_embed.read_multi("out"):
    assert_type(tokens_of, Floats)
for reader in (bert_embed.read_tokens, bert_embed.read_words):
    units = reader("out", partial=True)
    assert_type(units, Iterator[bert_embed.DocumentUnits])
    for unit in units:
        assert_type(unit.id, str | int)
        assert_type(unit.vectors, Floats)
assert_type(encoder.units("a b"), bert_embed.TextVectors)
tokenizer = bert_embed.Tokenizer("vocab.txt", lower_case=True)
assert_type(tokenizer.tokens([1]), list[str])
assert_type(tokenizer.encode("a"), list[int])
assert_type(tokenizer.encode_with_offsets(["a"]), bert_embed.TokenizedTexts)
assert_type(tokenizer.encode_with_offsets(["a"]).starts, Integers)
assert_type(tokenizer.encode_with_offsets(["a"]).ids, Integers)
assert_type(tokenizer.encode_flat(["a"])[1], NDArray[np.int64])
try:
    encoder.encode(["a"], pooling="median")
    bert_embed.embed("texts", "vectors")
except bert_embed.SettingError as error:
    assert_type(error.setting, str)
record = bert_embed.embed([Path("a.txt"), "b"], Path("out"), layers=[-1], limit=3, normalize=True)
status: str = record["status"]
transform = bert_embed.EmbedDocuments("minilm", column="body", as_numpy=True, pooling="cls")
assert_type(transform, bert_embed.EmbedDocuments)
adapter = bert_embed.BertEmbeddings(columns=["text"], output_columns=["vector"], threads=2)
assert_type(adapter.columns, list[str] | None)
assert_type(adapter.output_columns, list[str] | None)
assert_type(adapter.model, str)
handler = bert_embed.BertModelHandler("minilm", column="body", max_batch_size=8, normalize=True)
assert_type(handler, bert_embed.BertModelHandler)


def both(texts: PCollection[str]) -> Embedded:
    made = transform.expand(texts)
    assert_type(made, Embedded)
    embedded, rejected = cast(Embedded, texts | transform)
    assert_type(embedded, PCollection[Any])
    assert_type(rejected, PCollection[Any])
    return made
"""


def test_all_names_exactly_what_is_documented():
    assert bert_embed.__all__ == dir(bert_embed)
    assert all(getattr(bert_embed, name) is not None for name in bert_embed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Model'"):
        bert_embed.Model  # noqa: B018


PLACES = """
import importlib.util, sys

for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    print(name, *([spec.origin, *(spec.submodule_search_locations or [])] if spec else []))
"""
# Of earlier versions, which may be a user's own, and of folders here.
OTHERS = ("storage", "bert", "transforms", "pipeline", "tests", "benchmarks", "examples", "deploy")


@pytest.mark.slow
def test_an_installation_for_editing_offers_no_other_name(tmp_path):
    words = [sys.executable, "-c", PLACES, "bert_embed", *OTHERS, "docs", "src"]
    found = ran(words, cwd=tmp_path, check=True, PYTHONPATH="").stdout.splitlines()
    ours = [line.split() for line in found if str(ROOT) in line.replace(sys.prefix, "")]
    assert [name for name, *_ in ours] == ["bert_embed"]


@pytest.mark.slow
def test_windows_is_told_where_to_run():
    code = "import sys; sys.platform = 'win32'; import bert_embed"
    last = ran([sys.executable, "-c", code]).stderr.splitlines()[-1]
    assert last.startswith("ImportError: bert-embed does not run on Windows: run it in WSL")


WRONG = {
    "bert_embed.load(7)": "incompatible type",
    "encoder.encode(['a'], poling='cls')": "Unexpected keyword",
    "encoder.encode(['a'], kind='colbert')": "No overload variant",
    "encoder.units(['a'], 'sentence')": "No overload variant",
    "encoder.score('a')": "incompatible type",
    "encoder.encode(['a'], kind='sparse', pooling='cls')": "No overload variant",
    "bert_embed.read_token('out')": "has no attribute",
    "bert_embed.embed('a', 'b', limit='3')": "incompatible type",
    "bert_embed.embed('a', 'b', poolin='cls')": "Unexpected keyword",
    "bert_embed.EmbedDocuments(7)": "incompatible type",
    "bert_embed.EmbedDocuments(colum='text')": "Unexpected keyword",
    "bert_embed.BertEmbeddings(columns=3)": "incompatible type",
    "bert_embed.BertEmbeddings(colums=['text'])": "Unexpected keyword",
    "bert_embed.BertModelHandler(max_batch_size='1')": "incompatible type",
    "bert_embed.BertModelHandler(colum='text')": "Unexpected keyword",
    "transform.settings": "has no attribute",
    "adapter.settings": "has no attribute",
}
PYRIGHT = ROOT / "build/pyright/node_modules/pyright/index.js"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's file, and one that uses what it has wrongly, a line each."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "user.py").write_text(USER, encoding="utf-8")
    lines = ["import bert_embed", "from user import adapter, encoder, transform", "", *WRONG]
    (folder / "wrong.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _errors(command, folder):
    """What a type checker says of the files, by their wrong lines."""
    checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    said = [line.strip() for line in checked.stdout.splitlines() if " error: " in line]
    said = [line.removeprefix(f"{folder}/") for line in said]
    places = {"": "user.py:"} | {line: f"wrong.py:{n}:" for n, line in enumerate(WRONG, 4)}
    by_line = {
        line: [error for error in said if error.startswith(place)] for line, place in places.items()
    }
    assert sum(map(len, by_line.values())) == len(said)  # none is about another file, such as ours
    return by_line


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def errors(request, folder):
    """The name of a type checker, and what it says, by the wrong lines."""
    if request.param == "mypy":
        # As a user runs it: our package is found where it is installed, and its imports followed.
        kept = ["--cache-dir", str(ROOT / "build" / "mypy")]  # of Beam and NumPy, 20 s without
        command = [sys.executable, "-m", "mypy", "--strict", *kept, "."]
        return request.param, _errors(command, folder)
    node = shutil.which("node")
    if node is None or not PYRIGHT.exists():
        pytest.skip("pyright is not installed: make build/pyright/node_modules (needs npm)")
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    command = [node, str(PYRIGHT), "--pythonpath", sys.executable]
    return request.param, _errors(command, folder)


@pytest.mark.slow
def test_a_checker_knows_every_type_that_a_user_meets(errors):
    assert errors[1][""] == []


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_a_checker_finds_what_a_user_does_wrong(errors, wrong):
    checker, by_line = errors
    assert by_line[wrong] != []
    if checker == "mypy":
        assert WRONG[wrong] in by_line[wrong][0]  # of an overload it says more
