#!/usr/bin/env bash
# voyager 2.2.3: `add_items` of a matrix without ids.
#
# Ids are then made from the number of rows that the index has. One would guess that row i of the first matrix gets the id i,
# as in faiss, hnswlib and usearch, so that the list of texts can be indexed by what a query returns.
#
# Seen: each thread takes the next id when it begins a row, and by default there are as many threads as processors. In some
# builds, not in all, rows have changed places: the id 7 is another text's vector. No two are lost, searches work, and nothing
# says so but the list that `add_items` returns.
#
# For users: give ids, keep the returned list, or use num_threads=1.
#
# Exits 0 while it is so, 1 when 300 builds were all in order. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet voyager==2.2.3 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
import voyager

ROWS, BUILDS = 3000, 300
vectors = np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)
order = list(range(ROWS))


def build(threads, ids=None):
    """Returns how many ids have another row's vector, and whether the returned ids have the right ones."""
    index = voyager.Index(voyager.Space.Euclidean, num_dimensions=8, M=4, ef_construction=8)
    given = index.add_items(vectors, ids=ids, num_threads=threads)
    wrong = (index.get_vectors(order) != vectors).any(axis=1).sum()
    return int(wrong), bool((index.get_vectors(given) == vectors).all())


print("one thread", one := [build(1) for _ in range(5)])
print("eight threads, ids given", named := [build(8, order) for _ in range(5)])
for number in range(1, BUILDS + 1):
    wrong, right_by_list = build(8)
    if wrong:
        break
print(f"eight threads, build {number}: {wrong} ids of another row, right by the returned list: {right_by_list}")
sys.exit(not (wrong > 0 and right_by_list and one == named == [(0, True)] * 5))
PROGRAM
