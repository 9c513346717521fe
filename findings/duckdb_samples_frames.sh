#!/usr/bin/env bash
# DuckDB 2.0.1 with pandas 3.1.1, NumPy 2.4.6 and pyarrow 26.0.1: queries of a data frame with columns of Python objects, such
# as numbers, lists, arrays and dictionaries.
#
# DuckDB takes the type of such a column from a sample of 1,000 rows. One would guess that a value which does not fit this type
# makes the query fail, as text among numbers does, and that no number is changed.
#
# Seen: a fraction in a column whose sample held whole numbers is rounded without a word: 1.5 becomes 2, a list or an array of
# 0.5 and 0.25 a vector of zeros, {"weight": 0.4} a weight of 0; a 7 among booleans is true. In a frame of 900 rows, all of which
# are in the sample, the same values are right, and 7 among booleans is refused.
#
# For users: query `pyarrow.Table.from_pandas(frame)`, which looks at all rows, or set `pandas_analyze_sample` to their number.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

COLUMNS = {
    "numbers": (1, 1.5),
    "lists": ([0, 0], [0.5, 0.25]),
    "arrays": (np.array([0, 0]), np.array([0.5, 0.25])),
    "dictionaries": ({"weight": 1}, {"weight": 0.4}),
    "booleans": (True, 7),
    "text": (1, "a7"),
}


def last(common, rare, rows, setting="select 1", table=lambda frame: frame):
    """Returns the last value of a column of `rows` rows, the only one that is `rare`."""
    frame = pd.DataFrame({"v": pd.Series([common] * (rows - 1) + [rare], dtype=object)})
    connection = duckdb.connect()
    connection.execute(setting).fetchall()
    connection.register("frame", table(frame))
    try:
        return connection.execute("select v from frame").fetchall()[-1][0]
    except duckdb.Error:
        return "refused"


seen = [(name, last(*values, 900), last(*values, 5000)) for name, values in COLUMNS.items()]
seen.append(("lists, a larger sample", last(*COLUMNS["lists"], 5000, "set pandas_analyze_sample = 5000")))
seen.append(("lists, by pyarrow", last(*COLUMNS["lists"], 5000, table=pa.Table.from_pandas)))
print(*seen, sep="\n")
expected = [
    ("numbers", 1.5, 2),
    ("lists", [0.5, 0.25], [0, 0]),
    ("arrays", [0.5, 0.25], [0, 0]),
    ("dictionaries", {"weight": 0.4}, {"weight": 0}),
    ("booleans", "refused", True),
    ("text", "a7", "refused"),
    ("lists, a larger sample", [0.5, 0.25]),
    ("lists, by pyarrow", [0.5, 0.25]),
]
sys.exit(repr(seen) != repr(expected))
PROGRAM
