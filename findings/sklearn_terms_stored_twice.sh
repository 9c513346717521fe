#!/usr/bin/env bash
# scikit-learn 1.9.1 with SciPy 1.17.1: a sparse row in which a term is stored twice.
#
# SciPy's page of csr_array builds a matrix of terms that way, a 1 for each word as it comes, and says that duplicates are
# summed; `toarray`, `@`, `max`, `power` and its norms keep to that. One would guess that scikit-learn does, or refuses.
#
# Seen: it takes the stored numbers one by one. Of the text "red house red", whose row is [2, 1], the cosine with itself is
# 1.667, the normalized row is 1.291 long, and the distance to [3, 1] is 0. Another text comes before the one that equals the
# query. A word's inverse document frequency counts it as often as it is stored, which can be more often than there are texts; a
# variance is -1.111. With `sum_duplicates()` before, all are right, as they are behind functions of SciPy that sum in place.
#
# For users who build rows of token weights or chunks by hand: call `sum_duplicates()`, or build a coo_array, whose `tocsr` does.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import norm
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

TEXTS = ["red house red", "small green house", "red red red house"]
vocabulary = {}
columns = [vocabulary.setdefault(word, len(vocabulary)) for text in TEXTS for word in text.split()]
ends = np.cumsum([0] + [len(text.split()) for text in TEXTS])
twice = csr_array((np.ones(len(columns)), columns, ends))
once = twice.copy()
once.sum_duplicates()


def nearest(rows):
    return NearestNeighbors(n_neighbors=1, metric="cosine").fit(rows).kneighbors(rows)[1]


ASKED = {
    "the first row": lambda rows: rows.toarray()[0, :2],
    "SciPy's length of it": lambda rows: norm(rows, axis=1)[0],
    "its cosine with itself": lambda rows: cosine_similarity(rows)[0, 0],
    "its length, normalized": lambda rows: norm(csr_array(normalize(rows)), axis=1)[0],
    "its distance to the third": lambda rows: euclidean_distances(rows)[0, 2],
    "nearest to the third": lambda rows: nearest(rows)[2, 0],
    "idf of red": lambda rows: TfidfTransformer().fit(rows).idf_[0],
    "variance of red": lambda rows: VarianceThreshold().fit(rows).variances_[0],
}


def results(rows):
    # Copies, as `norm` and others of SciPy sum in place
    return {name: np.round(ask(rows.copy()), 3).tolist() for name, ask in ASKED.items()}


stored_twice, summed = results(twice), results(once)
for name, value in stored_twice.items():
    print(name, value, "summed:", summed[name])
expected = [[2.0, 1.0], 2.236, 1.667, 1.291, 0.0, 0, 0.595, -1.111]
right = [[2.0, 1.0], 2.236, 1.0, 1.0, 1.0, 2, 1.288, 1.556]
sys.exit([*stored_twice.values()] != expected or [*summed.values()] != right)
PROGRAM
