#!/usr/bin/env bash
# NumPy 2.4.6, pandas 3.1.1, Polars 2.1.0, Daft 0.7.26, DuckDB 2.0.1: the product of two vectors of int8.
#
# One would guess that the dot product of two int8 vectors is a number that holds it, as the sum of an int8 column
# is.
#
# Seen: `a @ b`, `Series.dot` and sums of products in NumPy, pandas, Polars and Daft stay in int8 and wrap: a vector
# times itself is -28 instead of 22500, so that a ranking by it is noise. DuckDB and scikit-learn compute in floats.
#
# For users of int8 embeddings: cast to int32 or float32 before any product.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 pandas==3.1.1 polars==2.1.0 daft==0.7.26 duckdb==2.0.1 scikit-learn==1.9.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import daft
import duckdb
import numpy as np
import pandas as pd
import polars as pl
from sklearn.metrics.pairwise import linear_kernel

NUMBERS = [100, 100, 50]
vector = np.array(NUMBERS, np.int8)
column = pl.Series(NUMBERS, dtype=pl.Int8)
table = pl.DataFrame({"v": [NUMBERS]}, schema={"v": pl.Array(pl.Int8, 3)})
byte = daft.DataType.int8()
numbers = daft.col("n").cast(byte)
products = daft.from_pydict({"n": NUMBERS}).select((numbers * numbers).alias("p"))
seen = [
    ("the true product", sum(number * number for number in NUMBERS)),
    ("NumPy, @", int(vector @ vector)),
    ("NumPy, einsum", int(np.einsum("i,i", vector, vector))),
    ("pandas, dot", int(pd.Series(vector).dot(pd.Series(vector)))),
    ("Polars, dot of series", int(column.dot(column))),
    ("Polars, sum of a product of arrays", table.select((pl.col("v") * pl.col("v")).arr.sum()).item()),
    ("Daft, sum of products", sum(products.to_pydict()["p"])),
    ("DuckDB", int(duckdb.sql(f"select list_inner_product(v, v) from (select {NUMBERS}::tinyint[] v)").fetchall()[0][0])),
    ("scikit-learn", int(linear_kernel([vector], [vector])[0, 0])),
]
expected = [(name, -28) for name, _ in seen]
expected = [(n, 22500 if n in ("the true product", "DuckDB", "scikit-learn") else v) for n, v in expected]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
