"""Compare finds what differs between two outputs, and counts what it leaves out."""

import json

import numpy as np
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.search.rankings import agreement
from tests.support.command import write_json
from tests.support.outputs import finished_run, run_of_kinds, vectors_of, write_output

VECTORS = vectors_of(0, 400, 32)
IDS = [f"d/{number}" for number in range(400)]
FIGURES = ("overlap_at_1", "overlap_at_10", "overlap_at_100", "rank_correlation")


@pytest.fixture
def compare(command):
    return lambda *words: json.loads(command("compare", *words, json=True).out)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return write_output(tmp_path_factory.mktemp("old") / "out", VECTORS, IDS)


def neighbours(folder, queries, pool):
    """The ids that a plain computation over all vectors finds, without the document itself."""
    ids, vectors = bert_embed.read(folder)
    ids, vectors = [str(each) for each in ids], vectors.astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = []
    for query in queries:
        scores = vectors @ vectors[ids.index(query)]
        ranked = [ids[row] for row in np.argsort(-scores, kind="stable")]
        found.append([each for each in ranked if each in pool and each != query][:100])
    return found


@pytest.mark.parametrize("dtype", ["float32", "ubinary"])
def test_figures_are_those_of_a_plain_computation(old, dtype, tmp_path, compare):
    rows = np.r_[20:400, 0:5]  # in another order, without some, with others
    ids = [IDS[row] for row in rows] + ["new/1", "new/2"]
    vectors = np.vstack([VECTORS[rows, :16], VECTORS[:2, :16]])  # as --dim 16
    new = write_output(tmp_path / "new", vectors, ids, 2, dtype)
    found = compare(old, new, "--sample=999")
    pool = {IDS[row] for row in rows}
    assert found["pool"] == found["queries"] == len(pool)
    assert (found["old"]["missing"], found["new"]["missing"]) == (2, 15)
    assert (found["new"]["precision"], found["new"]["output_dtype"]) == ("float32", dtype)
    queries = sorted(pool)
    pairs = list(zip(neighbours(old, queries, pool), neighbours(new, queries, pool), strict=True))
    # Equal cosines of bits may come in another order than NumPy's rounding gives them.
    near = 0.02 if dtype == "ubinary" else 1e-3
    wanted = np.mean([agreement(*pair) for pair in pairs], axis=0)
    assert [found[name]["mean"] for name in FIGURES] == pytest.approx(wanted, abs=near)
    assert found["overlap_at_10"]["low"] < found["overlap_at_10"]["mean"]


def test_equal_vectors_have_equal_neighbours(old, tmp_path, compare):
    new = write_output(tmp_path / "new", VECTORS, IDS, 1)
    found = compare(old, new)
    for name in FIGURES:
        assert found[name] == {"mean": 1.0, "low": 1.0, "high": 1.0, "queries": 200}
    assert found == compare(old, new)


def test_ids_may_be_numbers_be_twice_and_lack_vectors(tmp_path, compare, command):
    vectors = VECTORS[:60].copy()
    vectors[3], vectors[4] = np.nan, 0
    numbers = list(range(50)) + list(range(10))  # ten of them twice
    old = write_output(tmp_path / "old", vectors, numbers)
    new = write_output(tmp_path / "new", VECTORS[:50], [str(number) for number in range(50)])
    found = compare(old, new, "--sample=50")
    assert (found["pool"], found["queries"]) == (50, 48)
    assert [found[side]["documents"] for side in ("old", "new")] == [50, 50]
    printed = command("compare", old, new).out
    assert "of 48 queries" in printed
    assert "overlap of the first 10 " in printed
    assert "overlap of the first 100 " not in printed  # which are all


def test_chunks_count_by_their_best_whatever_the_format(tmp_path, compare):
    old = finished_run(tmp_path / "old", [30, 0, 12], output_format="jsonl", chunks=True)
    found = compare(old, finished_run(tmp_path / "new", [42]))
    assert (found["pool"], found["old"]["documents"], found["queries"]) == (42, 42, 42)
    assert found["overlap_at_100"]["mean"] == 1  # all 42, each once


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_each_side_is_searched_by_its_own_kind(kind, tmp_path, compare):
    old = run_of_kinds(tmp_path / "old", [kind])
    both = run_of_kinds(tmp_path / "new", ["dense", kind])
    found = compare(old, both)
    assert [found[side]["vectors"] for side in ("old", "new")] == [kind, "dense"]
    assert found["queries"] <= found["pool"] - 2  # the first row of each block is empty
    found = compare(old, both, f"--by={kind}")
    assert found["overlap_at_100"]["mean"] == found["rank_correlation"]["mean"] == 1
    assert found["new"]["vectors"] == kind


TEXTS = {
    "bank": "the two banks of the river",
    "vault": "the money of a robber in the vault",
    "stars": "seven red stars",
    "people": "people could find the number",
}


def test_queries_are_embedded_by_each_model_and_relevance_is_measured(
    tmp_path, run, poisoned_bundle, compare, command
):
    source = {"in.jsonl": [{"id": name, "text": text} for name, text in TEXTS.items()]}
    real, small = run(source, "real"), run(source, "dim", dim=2, limit=3)
    queries = [
        {"text": "a robber in the bank", "relevant": ["vault"]},
        {"text": "the river", "relevant": ["bank", "people", "nowhere"]},
        {"text": "a red number", "relevant": ["nowhere"]},
        {"text": "a star"},
    ]
    lines = write_json(tmp_path / "queries.jsonl", *queries)
    lines.write_text(lines.read_text() + "\n")
    found = compare(real, small, f"--queries={lines}")
    assert (found["pool"], found["queries"], found["new"]["missing"]) == (3, 4, 1)
    # "people" is beyond the limit of the second; "nowhere" is in no output.
    assert (found["ndcg_at_10"]["old"]["queries"], found["relevant_missing"]) == (2, 3)
    means = {name: each["mean"] for name, each in found["ndcg_at_10"].items()}
    ranked = bert_embed.nearest(str(small), [each["text"] for each in queries[:2]], 3)
    ids = [[hit.id for hit in hits] for hits in ranked]
    gains = [1 / np.log2(2 + ids[0].index("vault")), 1 / np.log2(2 + ids[1].index("bank"))]
    assert means["new"] == pytest.approx(np.mean(gains))
    assert found["recall_at_100"]["new"]["mean"] == 1
    assert means["difference"] == pytest.approx(means["new"] - means["old"])
    again = bert_embed.compare(real, small, queries=lines)
    assert isinstance(again, bert_embed.Comparison)
    assert json.loads(json.dumps(again.to_dict())) == found
    printed = command("compare", real, small, queries=lines).out
    assert "nDCG@10" in printed
    assert printed == f"{again}\n"
    assert "3 relevant documents not in both: left out" in printed
    words = [real, small, f"--queries={lines}"]
    told = command("compare", *words, f"--old_model={tmp_path}/gone", code=2).err
    assert "error: --old_model must be there: " in told
    told = command("compare", *words, f"--new_model={poisoned_bundle}", code=2).err
    assert f"error: --new_model {poisoned_bundle} has the fingerprint " in told


def test_bad_queries_are_named_by_their_line(old, tmp_path, command):
    new, path = write_output(tmp_path / "new", VECTORS, IDS), tmp_path / "queries.jsonl"
    shape = 'line 1: must be {"text": …}, which is not blank'
    for line, sentence in (
        ("", "must hold a JSON object a line, but it is empty"),
        ('{"text": "a"}\n{"text": ', "line 2: must be"),
        ('["a"]', shape),
        ('{"text": " "}', shape),
        ('{"text": "a", "relevant": [1.5]}', shape),
        ('{"text": "a", "relevant": {"d": 1}}', shape),
    ):
        path.write_text(line)
        told = command("compare", old, new, f"--queries={path}", code=2).err
        assert "error: --queries " in told
        assert sentence in told, line
    for place in ("none.jsonl", "new"):
        told = command("compare", old, new, f"--queries={tmp_path}/{place}", code=2).err
        assert f"error: --queries {tmp_path}/{place} " in told


def test_what_cannot_be_compared_is_refused_in_a_sentence(old, tmp_path, command):
    one = write_output(tmp_path / "one", VECTORS[:1], IDS[:1], 1)
    none = write_output(tmp_path / "none", VECTORS[:0], [], 1)
    others = write_output(tmp_path / "others", VECTORS[:9], list(range(9)))
    half = finished_run(tmp_path / "half", [2], status="running")
    settings = {"vectors": ["scores"], "heads": {"scores": {"labels": ["a"]}}}
    scores = finished_run(tmp_path / "scores", [2], settings=settings)
    for words, said in (
        ([others], "have no id in common (of 400 documents and 9)"),
        ([one], "have only one id in common"),
        ([none], "have no id in common (of 400 documents and 0)"),
        ([old / ".." / "out"], "are the same output: give two"),
        (
            [tmp_path],
            "holds several outputs, and a side is one: merge them with `bert-embed export",
        ),
        ([tmp_path / "no"], "is not the output of a run: it holds no run.json"),
        ([scores], "holds scores vectors, which have no similarity"),
        ([half], "the run is not complete (status running)"),
        ([one, "--by=sparse"], "--by sparse requires sparse vectors, but"),
        ([one, "--sample=3", "--queries=q"], "--sample draws documents and conflicts with --quer"),
        ([one, "--old_model=m"], "--old_model requires --queries"),
    ):
        assert said in command("compare", old, *words, code=2).err
    with pytest.raises(InputError, match=r"^sample must be a whole number of at least 1, got 0"):
        bert_embed.compare(old, one, sample=0)
