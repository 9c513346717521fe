#!/usr/bin/env bash
# pytrec-eval-terrier 0.5.11 (trec_eval, which mteb and ir_measures 0.4.3 call), ranx 0.3.21, scikit-learn 1.9.1: equal scores.
#
# One would guess that a measure of a ranking depends on the scores and the relevance, not on what documents are called, and
# that two scores which differ are no tie.
#
# Seen: trec_eval sorts equal scores by the id, the last in the alphabet first, whatever order they came in: of three equal
# documents nDCG is 0.5 if the relevant one is "a" and 1 if it is "c". It keeps scores as float32, so that
# 0.50000001 and 0.5 are a tie, too. ranx takes the order in which they came, scikit-learn the mean of all orders.
# With scores of one bit a number, 50 queries have an nDCG@10 of 0.224, and 0.210 when the same documents are
# numbered from the end.
#
# For users who compare number types by nDCG: scores of int8 and of bits have many ties, so break them before the measure,
# and give ranks as scores.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pytrec-eval-terrier==0.5.11 ir-measures==0.4.3 ranx==0.3.21 \
    scikit-learn==1.9.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import ir_measures
import numpy as np
import pytrec_eval
import ranx
from sklearn.metrics import ndcg_score


def trec(relevant, scores):
    """nDCG@10 of trec_eval, the mean over queries."""
    measured = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut.10"}).evaluate(scores)
    return round(float(np.mean([one["ndcg_cut_10"] for one in measured.values()])), 3)


def one_query(relevant, scores):
    """The same of one query with one relevant document, by three libraries."""
    asked, found = {"q": {relevant: 1}}, {"q": scores}
    by_measures = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], asked, found)
    by_ranx = ranx.evaluate(ranx.Qrels(asked), ranx.Run(found), "ndcg@10")
    return trec(asked, found), round(by_measures[ir_measures.nDCG @ 10], 3), round(float(by_ranx), 3)


equal = {"a": 0.5, "b": 0.5, "c": 0.5}
seen = {
    "a of three": one_query("a", equal),
    "c of three": one_query("c", equal),
    "a of two that differ": one_query("a", {"a": 0.50000001, "b": 0.5}),
    "scikit-learn": round(float(ndcg_score([[1, 0, 0]], [[0.5] * 3])), 3),
}

random = np.random.default_rng(0)
queries, documents = random.standard_normal((50, 32)), random.standard_normal((200, 32))
nearest = (queries @ documents.T).argmax(1)
of_bits = np.sign(queries) @ np.sign(documents).T
for order, numbers in (("from the start", range(200)), ("from the end", range(199, -1, -1))):
    ids = [f"d{number:03}" for number in numbers]
    scores = {f"q{n}": dict(zip(ids, map(float, row))) for n, row in enumerate(of_bits)}
    relevant = {f"q{n}": {ids[place]: 1} for n, place in enumerate(nearest)}
    seen[order] = trec(relevant, scores)

print(*seen.items(), sep="\n")
same = (
    seen["a of three"] == (0.5, 0.5, 1.0)
    and seen["c of three"] == (1.0, 1.0, 0.5)
    and seen["a of two that differ"] == (0.631, 0.631, 1.0)
    and seen["scikit-learn"] == 0.71
    and abs(seen["from the start"] - seen["from the end"]) > 0.005
)
sys.exit(not same)
PROGRAM
