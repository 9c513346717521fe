#!/usr/bin/env bash
# faiss-cpu 1.15.1: `range_search` at the radius itself.
#
# One would guess that a radius of 0 finds the equal vector by squared distance, and that 1.0 finds it by inner
# product of unit vectors, as scikit-learn's `radius_neighbors` does.
#
# Seen: both find nothing: the bound is open on either side. So duplicates of distance 0 need a radius above 0.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 scikit-learn==1.9.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import faiss
import numpy as np
from sklearn.neighbors import NearestNeighbors

vectors = np.eye(4, dtype=np.float32)
distance, product = faiss.IndexFlatL2(4), faiss.IndexFlatIP(4)
distance.add(vectors)
product.add(vectors)
near = np.nextafter(np.float32(1), np.float32(0))
found = NearestNeighbors(radius=0.0).fit(vectors).radius_neighbors(vectors[:1])[1][0]
seen = [
    ("scikit-learn, radius 0", found.tolist()),
    ("squared distance, radius 0", distance.range_search(vectors[:1], 0.0)[2].tolist()),
    ("squared distance, radius 1e-30", distance.range_search(vectors[:1], 1e-30)[2].tolist()),
    ("inner product, radius 1", product.range_search(vectors[:1], 1.0)[2].tolist()),
    ("inner product, radius just below 1", product.range_search(vectors[:1], float(near))[2].tolist()),
]
expected = [
    ("scikit-learn, radius 0", [0]),
    ("squared distance, radius 0", []),
    ("squared distance, radius 1e-30", [0]),
    ("inner product, radius 1", []),
    ("inner product, radius just below 1", [0]),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
