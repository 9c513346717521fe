"""The proof that the sides of a benchmark computed the same."""

import json
import sys

import pyarrow as pa
import pytest

from benchmarks.cost import cost
from benchmarks.end_to_end import difference
from benchmarks.run import RESULTS
from tests.support.command import ROOT, ran


def test_sides_are_compared_entry_by_entry():
    """An entry that one side lacks counts whole, and scores by their label."""
    ours = pa.table({"indices": [[1, 5], [], []], "values": [[1.0, 0.5], [], []]})
    theirs = pa.table({"indices": [[1], [7], []], "values": [[0.75], [0.25], []]})
    assert difference("sparse", ours, theirs) == 0.5
    assert difference("sparse", theirs, theirs) == 0
    ours = pa.table({"id": ["0"], "no": [0.25], "yes": [0.75], "label": ["yes"]})
    theirs = pa.table({"id": ["a text"], "no": [0.5], "yes": [0.5]})
    assert difference("scores", ours, theirs) == 0.25


def test_multi_vectors_of_another_number_of_tokens_are_not_compared():
    tokens = pa.list_(pa.list_(pa.float32(), 2))
    rows = (
        [[[1, 2], [3, 4]], [[5, 6]]],
        [[[1, 2], [3, 4.5]], [[5, 6]]],
        [[[1, 2]], [[3, 4], [5, 6]]],
    )
    two, moved, one_less = (pa.table({"embedding": pa.array(each, tokens)}) for each in rows)
    assert difference("multi", two, moved) == 0.5
    with pytest.raises(RuntimeError, match="not the same number"):
        difference("multi", two, one_less)


@pytest.mark.parametrize("side", ["engine", "huggingface_tokenizers"])
def test_the_environment_of_peers_has_what_a_side_imports_of_ours(side):
    """Peers run in an environment without our packages, where a side reads our modules."""
    code = f"""
import importlib.metadata, sys, benchmarks.sides.{side}
known = importlib.metadata.packages_distributions()
loaded = {{name.partition(".")[0] for name in sys.modules}} & known.keys()
print(*(known[name][0] for name in loaded - {{"google"}}))  # whose name packages share
"""
    names = ran([sys.executable, "-c", code]).stdout.lower().replace("_", "-").split()
    pins = (ROOT / "benchmarks" / "requirements.txt").read_text("utf-8").lower()
    assert [name for name in names if f"\n{name}==" not in pins] == ["bert-embed"]


def test_the_readme_has_the_cost_of_what_was_measured():
    """Whoever measures, or has another price, writes the pages anew."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*-*.json"))]
    table = cost(results)
    assert f"<!-- cost -->\n{table}\n<!-- /cost -->\n" in (ROOT / "README.md").read_text("utf-8")
    hours = 1_000_000 / 973.3 / 3600  # of our int8 on an AMD EPYC
    assert "| sentences of 12 words | 403 | 973 | 191 | 207 |" in table
    assert f"{hours:.2f} hours, {0.1 * hours:.2f} dollars" in table
    assert f"{hours:.2f} hours, {0.24 * hours:.2f} dollars" in cost(results, 0.24)
