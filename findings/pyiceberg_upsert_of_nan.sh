#!/usr/bin/env bash
# pyiceberg 0.12.0: `upsert` of rows that the table has, one of them with NaN.
#
# One would guess that an upsert of equal rows writes nothing: rows that did not change are left out of it.
#
# Seen: the row with NaN is updated by every upsert, which adds a snapshot and rewrites its file; rows with null and
# infinity are not.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==25.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM' 2> /dev/null
import os
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog

here = os.getcwd()
catalog = load_catalog("c", type="sql", uri=f"sqlite:///{here}/c.db", warehouse=f"file://{here}/w")
catalog.create_namespace("n")
seen = []
for name, value in (("null", None), ("infinity", float("inf")), ("nan", float("nan"))):
    rows = pa.table({"key": ["a", "b"], "price": pa.array([1.5, value], pa.float64())})
    table = catalog.create_table(f"n.{name}", rows.schema)
    for _ in range(3):
        done = table.upsert(rows, join_cols=["key"])
        seen.append((name, done.rows_inserted, done.rows_updated))
expected = [("null", 2, 0), ("null", 0, 0), ("null", 0, 0)]
expected += [("infinity", 2, 0), ("infinity", 0, 0), ("infinity", 0, 0)]
expected += [("nan", 2, 0), ("nan", 0, 1), ("nan", 0, 1)]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
