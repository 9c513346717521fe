#!/usr/bin/env bash
# sqlite-vec 0.1.9 with apsw 3.54.1.0: the nearest neighbours in a vec0 table that holds a vector of zeros, by cosine distance.
#
# A text without a known word gets such a vector from a static model. One would guess that it is at the distance 1 from any
# query, as usearch and hnswlib have it, or behind all others; in any case that the same rows give the same neighbours.
#
# Seen: its distance is NULL, which no comparison finds larger or smaller, so where it was inserted decides. As the table's
# first row it is the nearest neighbour of every query, and takes the place of the query's own vector where one is asked for.
# As the last row it is among none but all rows. `ORDER BY vec_distance_cosine(v, q)` puts it before all others in any case.
#
# For users who load vectors: leave vectors of zeros out. `distance IS NOT NULL` behind the search comes too late: the place
# of a true neighbour is taken.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sqlite-vec==0.1.9 apsw==3.54.1.0 usearch==2.26.6 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import apsw
import numpy as np
import sqlite_vec
from usearch.index import Index

VECTORS = {"same": (1, 0), "near": (0.8, 0.6), "far": (0, 1), "opposite": (-1, 0)}
EMPTY = {"empty": (0, 0)}
QUERY = np.array(VECTORS["same"], dtype=np.float32)
DISTANCE = "SELECT id FROM texts ORDER BY vec_distance_cosine(v, ?)"
NEAREST = "SELECT id FROM texts WHERE v MATCH ? AND k = ? ORDER BY distance"


def hits(rows):
    """What a table of these rows gives: by a scan, and by searches for 1, 2 and 5 neighbours."""
    database = apsw.Connection(":memory:")
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.execute("CREATE VIRTUAL TABLE texts USING vec0(id TEXT PRIMARY KEY, v float[2] distance_metric=cosine)")
    for name, vector in rows.items():
        database.execute("INSERT INTO texts VALUES (?, ?)", (name, np.float32(vector).tobytes()))
    searches = [(DISTANCE, ()), (NEAREST, (1,)), (NEAREST, (2,)), (NEAREST, (5,))]
    return [[name for (name,) in database.execute(sql, (QUERY.tobytes(), *k))] for sql, k in searches]


def in_usearch(rows):
    """What an index of usearch gives for five."""
    index = Index(ndim=2, metric="cos", dtype="f32")
    index.add(np.arange(len(rows)), np.array([*rows.values()], dtype=np.float32))
    return [[*rows][key] for key in index.search(QUERY, 5).keys]


seen = {
    "empty first": hits(EMPTY | VECTORS),
    "empty last": hits(VECTORS | EMPTY),
    "usearch": [in_usearch(EMPTY | VECTORS)[:2], in_usearch(VECTORS | EMPTY)[:2]],
}
for name, lists in seen.items():
    print(name, *lists, sep="\n  ")
names = [*VECTORS]
all_rows = ["empty", *names]
expected = {
    "empty first": [all_rows, ["empty"], ["empty", "same"], all_rows],
    "empty last": [all_rows, ["same"], ["same", "near"], all_rows],
    "usearch": [["same", "near"]] * 2,
}
sys.exit(seen != expected)
PROGRAM
