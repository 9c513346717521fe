"""Compare finds what differs between two outputs, and counts what it leaves out."""

import json

import numpy as np
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.search.rankings import overlap, rank_correlation
from tests.support.command import embed
from tests.support.daily import THREE_DAYS, three_days, write
from tests.support.outputs import (
    clustered_vectors,
    finished_run,
    run_of_kinds,
    write_output,
)

VECTORS = clustered_vectors(400)
IDS = [f"d/{number}" for number in range(400)]


def compare(capsys, *words):
    capsys.readouterr()
    assert main(["compare", *map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    capsys.readouterr()
    assert main(["compare", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1]


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "ubinary"])
def test_figures_are_those_of_a_plain_computation(old, dtype, tmp_path, capsys):
    rows = np.r_[20:400, 0:5]  # in another order, without some, with others
    ids = [IDS[row] for row in rows] + ["new/1", "new/2"]
    vectors = np.vstack([VECTORS[rows, :16], VECTORS[:2, :16]])  # as --dim 16
    new = write_output(tmp_path / "new", vectors, ids, 2, dtype)
    found = compare(capsys, old, new, "--sample=999")
    pool = {IDS[row] for row in rows}
    assert found["pool"] == found["queries"] == len(pool)
    assert (found["old"]["missing"], found["new"]["missing"]) == (2, 15)
    assert found["new"]["output_dtype"] == dtype
    queries = sorted(pool)
    pairs = list(zip(neighbours(old, queries, pool), neighbours(new, queries, pool), strict=True))
    # Equal cosines of bits may come in another order than NumPy's rounding gives them.
    near = 0.02 if dtype == "ubinary" else 1e-3
    for first in (1, 10, 100):
        wanted = np.mean([overlap(*pair, first) for pair in pairs])
        assert found[f"overlap_at_{first}"]["mean"] == pytest.approx(wanted, abs=near)
    wanted = np.mean([rank_correlation(*pair) for pair in pairs])
    assert found["rank_correlation"]["mean"] == pytest.approx(wanted, abs=near)
    assert found["overlap_at_10"]["low"] < found["overlap_at_10"]["mean"]


def test_equal_vectors_have_equal_neighbours(old, tmp_path, capsys):
    new = write_output(tmp_path / "new", VECTORS, IDS, 1)
    found = compare(capsys, old, new)
    for name in ("overlap_at_1", "overlap_at_10", "overlap_at_100", "rank_correlation"):
        assert found[name] == {"mean": 1.0, "low": 1.0, "high": 1.0, "queries": 200}
    assert found == compare(capsys, old, new)


def test_an_overlap_of_all_documents_is_not_printed(tmp_path, capsys):
    old = finished_run(tmp_path / "old", (30, 12))
    new = finished_run(tmp_path / "new", (30, 12), width=9)
    assert main(["compare", str(old), str(new)]) == 0
    printed = capsys.readouterr().out
    assert "overlap of the first 10 " in printed
    assert "overlap of the first 100 " not in printed


def test_ids_may_be_numbers_be_twice_and_lack_vectors(tmp_path, capsys):
    vectors = VECTORS[:60].copy()
    vectors[3], vectors[4] = np.nan, 0
    numbers = list(range(50)) + list(range(10))  # ten of them twice
    old = write_output(tmp_path / "old", vectors, numbers)
    new = write_output(tmp_path / "new", VECTORS[:50], [str(number) for number in range(50)])
    found = compare(capsys, old, new, "--sample=50")
    assert (found["pool"], found["queries"], found["unusable_queries"]) == (50, 48, 2)
    assert [found[side]["documents"] for side in ("old", "new")] == [50, 50]
    assert main(["compare", str(old), str(new)]) == 0
    printed = capsys.readouterr().out
    assert "2 documents drawn without a vector on a side: left out" in printed


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_chunks_count_by_their_best_in_every_format(output_format, tmp_path, capsys):
    kept = output_format != "tfrecord"
    settings = {"output_format": output_format, "extra": False, "kept": kept}
    settings["settings"] = {"keep_text": kept}
    old = finished_run(tmp_path / "old", [30, 0, 12], chunks=True, **settings)
    new = finished_run(tmp_path / "new", [42], **settings)
    found = compare(capsys, old, new)
    assert (found["pool"], found["old"]["documents"], found["queries"]) == (42, 42, 42)


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_each_side_is_searched_by_its_own_kind(kind, tmp_path, capsys):
    old = run_of_kinds(tmp_path / "old", [kind])
    both = run_of_kinds(tmp_path / "new", ["dense", kind])
    found = compare(capsys, old, both)
    assert [found[side]["vectors"] for side in ("old", "new")] == [kind, "dense"]
    assert found["unusable_queries"] >= 2  # the first row of each block is empty
    found = compare(capsys, old, both, f"--by={kind}")
    assert found["overlap_at_100"]["mean"] == found["rank_correlation"]["mean"] == 1
    assert found["new"]["vectors"] == kind


@pytest.mark.slow
def test_of_days_the_newest_versions_count_without_deleted_ones(tmp_path, tiny_bundle, capsys):
    three_days(tmp_path, tmp_path / "out", tiny_bundle)
    found = compare(capsys, tmp_path / "out" / "monday", tmp_path / "out")
    assert (found["pool"], found["new"]["documents"], found["old"]["missing"]) == (3, 4, 1)
    left = {name: text for name, text in THREE_DAYS["wednesday"].items() if name != 2}
    thursday = write(tmp_path / "thursday.jsonl", left)
    flags = {"skip_existing": tmp_path / "out", "max_deleted": 1}
    assert embed(tmp_path / "out" / "thursday", tiny_bundle, thursday, **flags) == 0
    found = compare(capsys, tmp_path / "out" / "monday", tmp_path / "out")
    assert (found["pool"], found["new"]["documents"], found["new"]["missing"]) == (2, 3, 1)


def test_an_output_in_a_store_is_compared_as_a_local_one(old, gcs, tmp_path, capsys):
    new = write_output(tmp_path / "new", VECTORS[:300, :8], IDS[:300])
    bucket = gcs.client.create_bucket("compared")
    for path in new.rglob("*.*"):
        bucket.blob(f"new/{path.relative_to(new)}").upload_from_filename(path)
    stored, local = compare(capsys, old, "gs://compared/new"), compare(capsys, old, new)
    assert stored["new"].pop("outputs") == ["gs://compared/new"]
    assert local["new"].pop("outputs") == [str(new)]
    assert stored == local


TEXTS = {
    "call": "Objects with a __call__ method can be called like functions.",
    "bread": "Knead the dough for ten minutes and let it rise.",
    "sea": "The ship left the harbour at dawn.",
    "ocean": "Sailors crossed the wide ocean.",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, minilm):
    """The same texts by a real model, and by one whose numbers say nothing, of two dims."""
    folder = tmp_path_factory.mktemp("models")
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    (folder / "in.jsonl").write_text("\n".join(lines))
    assert embed(folder / "real", "minilm", folder / "in.jsonl") == 0
    assert embed(folder / "dim", "minilm", folder / "in.jsonl", dim=2, limit=3) == 0
    return folder


@pytest.mark.slow
def test_queries_are_embedded_by_each_model_and_relevance_is_measured(models, tmp_path, capsys):
    queries = [
        {"text": "how do I bake a loaf", "relevant": ["bread"]},
        {"text": "a boat on the water", "relevant": ["sea", "ocean", "nowhere"]},
        {"text": "a cat", "relevant": ["nowhere"]},
        {"text": "a dog"},
    ]
    lines = tmp_path / "queries.jsonl"
    lines.write_text("\n".join(map(json.dumps, queries)) + "\n\n")
    real, small = models / "real", models / "dim"
    found = compare(capsys, real, small, f"--queries={lines}")
    assert (found["pool"], found["queries"], found["new"]["missing"]) == (3, 4, 1)
    relevance = found["relevance"]
    # "ocean" is beyond the limit of the second; "nowhere" is in no output.
    assert (relevance["queries"], relevance["outside"]) == (2, 3)
    ids = {folder: bert_embed.read(folder) for folder in (real, small)}
    for side, folder, dim in (("old", real, None), ("new", small, 2)):
        encoder = bert_embed.load("minilm", dim=dim)
        ranks = []
        for query, wanted in ((queries[0], "bread"), (queries[1], "sea")):
            names, vectors = ids[folder]
            pool = [row for row, name in enumerate(names) if name != "ocean"]
            scores = vectors[pool] @ encoder.encode(query["text"])
            order = np.argsort(-scores, kind="stable")
            ranks.append(1 + [names[pool[row]] for row in order].index(wanted))
        gains = 1 / np.log2(1 + np.array(ranks))
        assert relevance["ndcg_at_10"][side]["mean"] == pytest.approx(gains.mean())
        assert relevance["recall_at_100"][side]["mean"] == 1
    assert relevance["ndcg_at_10"]["difference"]["mean"] == pytest.approx(
        relevance["ndcg_at_10"]["new"]["mean"] - relevance["ndcg_at_10"]["old"]["mean"]
    )
    again = bert_embed.compare(real, small, queries=lines)
    assert isinstance(again, bert_embed.Comparison)
    assert json.loads(json.dumps(again.to_dict())) == found
    capsys.readouterr()
    assert main(["compare", str(real), str(small), f"--queries={lines}"]) == 0
    printed = capsys.readouterr().out
    assert "nDCG@10" in printed
    assert printed == f"{again}\n"
    assert "3 relevant documents not in both outputs: left out" in printed


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "must hold a JSON object a line, but it is empty"),
        ('{"text": "a"}\n{"text": ', "line 2: must be"),
        *(
            (line, 'line 1: must be {"text": …}, which is not blank')
            for line in (
                *('["a"]', '{"text": " "}', '{"text": ["a"]}', '{"text": "a", "relevant": "d/1"}'),
                *('{"text": "a", "relevant": [1.5]}', '{"text": "a", "relevant": {"d": 1}}'),
            )
        ),
    ],
)
def test_bad_queries_are_named_by_their_line(line, sentence, old, tmp_path, capsys):
    new = write_output(tmp_path / "new", VECTORS, IDS)
    (tmp_path / "queries.jsonl").write_text(line)
    told = refused(capsys, old, new, f"--queries={tmp_path}/queries.jsonl")
    assert told.startswith("error: --queries ")
    assert sentence in told
    for place in ("none.jsonl", "new"):
        told = refused(capsys, old, new, f"--queries={tmp_path}/{place}")
        assert told.startswith(f"error: --queries {tmp_path}/{place} ")


@pytest.mark.slow
def test_a_wrong_model_is_named_by_its_flag(models, tiny_bundle, tmp_path, capsys):
    (tmp_path / "queries.jsonl").write_text('{"text": "a"}')
    words = [models / "real", models / "dim", f"--queries={tmp_path}/queries.jsonl"]
    told = refused(capsys, *words, f"--old_model={tmp_path}/gone")
    assert told.startswith("error: --old_model must be there: ")
    told = refused(capsys, *words, f"--new_model={tiny_bundle}")
    assert told.startswith(f"error: --new_model {tiny_bundle} has the fingerprint ")


def test_what_cannot_be_compared_is_refused_in_a_sentence(old, tmp_path, capsys):
    others = write_output(tmp_path / "others", VECTORS[:9], list(range(9)))
    assert "have no id in common (of 400 documents and 9)" in refused(capsys, old, others)
    one = write_output(tmp_path / "one", VECTORS[:1], IDS[:1], 1)
    assert "have only one id in common" in refused(capsys, old, one)
    none = write_output(tmp_path / "none", VECTORS[:0], [], 1)
    assert f"{none} holds no dense vectors" in refused(capsys, old, none)
    assert "are the same output: give two" in refused(capsys, old, old / ".." / "out")
    assert "is not the output of a run" in refused(capsys, old, tmp_path / "missing")
    scores = finished_run(
        tmp_path / "scores",
        [2],
        settings={"vectors": ["scores"], "heads": {"scores": {"labels": ["a"]}}},
    )
    assert "holds vectors of scores, which have no similarity" in refused(capsys, old, scores)
    assert "--by sparse asks for vectors that" in refused(capsys, old, one, "--by=sparse")
    half = finished_run(tmp_path / "half", [2], status="running")
    assert "the run is not complete (status running)" in refused(capsys, old, half)
    assert "--sample draws documents and conflicts with --queries" in refused(
        capsys, old, one, "--sample=3", "--queries=q"
    )
    assert "--old_model requires --queries" in refused(capsys, old, one, "--old_model=m")
    with pytest.raises(InputError, match=r"^sample must be a whole number of at least 1, got 0"):
        bert_embed.compare(old, one, sample=0)
