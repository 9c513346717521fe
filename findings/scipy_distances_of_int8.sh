#!/usr/bin/env bash
# SciPy 1.17.1: `scipy.spatial.distance.cosine` and `cityblock` of vectors of int8 and uint8.
#
# One would guess that `cosine(a, b)` is what `cdist([a], [b], "cosine")` gives, whatever the number type.
#
# Seen: `cdist` gives 0.00135. `cosine` multiplies in int8 and fails with "math domain error", or gives a number
# that is no distance; `euclidean`, `cityblock` and `chebyshev` of uint8 give 246 where 10 is right, and 10 with the
# vectors the other way round.
#
# For users of int8 or binary embeddings: cast to float32 first, or use `cdist`.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 scipy==1.17.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
from scipy.spatial import distance

one, other = [100, 100, 50], [100, 90, 50]
signed = [np.array(numbers, np.int8) for numbers in (one, other)]
unsigned = [np.array(numbers, np.uint8) for numbers in (other, one)]


def said(call, *vectors):
    try:
        return round(float(call(*vectors)), 5)
    except ValueError as error:
        return str(error)


seen = [
    ("cosine, float64", said(distance.cosine, *map(np.float64, signed))),
    ("cdist cosine, int8", said(lambda a, b: distance.cdist([a], [b], "cosine")[0, 0], *signed)),
    ("cosine, int8", said(distance.cosine, *signed)),
    ("euclidean, uint8", said(distance.euclidean, *unsigned)),
    ("euclidean, uint8, the other way", said(distance.euclidean, *unsigned[::-1])),
    ("cityblock, uint8", said(distance.cityblock, *unsigned)),
    ("chebyshev, uint8", said(distance.chebyshev, *unsigned)),
]
expected = [
    ("cosine, float64", 0.00135),
    ("cdist cosine, int8", 0.00135),
    ("cosine, int8", "math domain error"),
    ("euclidean, uint8", 246.0),
    ("euclidean, uint8, the other way", 10.0),
    ("cityblock, uint8", 246.0),
    ("chebyshev, uint8", 246.0),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
