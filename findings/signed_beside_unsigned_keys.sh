#!/usr/bin/env bash
# NumPy 2.4.6, pandas 3.1.1: 64-bit keys of which one side is signed and the other is not, such as hashes of XXH3, which
# BigQuery and Parquet's readers in Java hold as int64 and Python's writers as uint64.
#
# One would guess that set functions agree: two different keys are two for all of them, as they are for DuckDB's and Polars'
# joins and unions, or the types are refused, as by pyarrow's join.
#
# Seen: `isin` and `setdiff1d` compare the whole numbers, `intersect1d`, `union1d`, `setxor1d` and `searchsorted` make float64 of
# them first, in which neighbours above 2^53 are one. So a key is at once not in a set and in its intersection with it. In pandas
# an inner merge finds no pair, and an outer merge keeps two rows with one key, which is neither of them; `concat` makes both
# equal, so that `drop_duplicates` leaves one row; `Index.union` keeps both.
#
# For users of ids that are hashes: cast both sides to one type before you compare, join or concatenate them.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 pandas==3.1.1 polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

ONE, OTHER = 2**62 + 1, 2**62  # two keys
signed, unsigned = np.array([ONE], np.int64), np.array([OTHER], np.uint64)
left, right = pd.DataFrame({"key": signed}), pd.DataFrame({"key": unsigned})
outer, both = left.merge(right, how="outer"), pd.concat([left, right])
places = np.searchsorted(np.array([OTHER, ONE], np.uint64), signed)
a, b = pl.from_pandas(left), pl.from_pandas(right)
table, other = pa.table({"key": signed}), pa.table({"key": unsigned})
union = duckdb.sql("SELECT key FROM a UNION SELECT key FROM b").fetchall()
try:
    joined = str(table.join(other, "key").num_rows)
except pa.ArrowInvalid:
    joined = "refused"
seen = {
    "numpy isin": int(np.isin(signed, unsigned).sum()),
    "numpy setdiff1d": len(np.setdiff1d(signed, unsigned)),
    "numpy intersect1d": len(np.intersect1d(signed, unsigned)),
    "numpy union1d": len(np.union1d(signed, unsigned)),
    "numpy setxor1d": len(np.setxor1d(signed, unsigned)),
    "numpy searchsorted, of the second": int(places[0]),
    "pandas inner merge, rows": len(left.merge(right)),
    "pandas outer merge, rows and keys": (len(outer), outer["key"].nunique()),
    "pandas concat, rows and different ones": (len(both), len(both.drop_duplicates())),
    "pandas Index.union": len(pd.Index(signed).union(pd.Index(unsigned))),
    "polars inner join, rows": len(a.join(b, on="key")),
    "polars concat, different ones": pl.concat([a, b], how="vertical_relaxed")["key"].n_unique(),
    "duckdb union": len(union),
    "pyarrow join": joined,
}
print(*seen.items(), sep="\n")
expected = [0, 1, 1, 1, 0, 0, 0, (2, 1), (2, 1), 2, 0, 2, 2, "refused"]
sys.exit(list(seen.values()) != expected)
PROGRAM
