#!/usr/bin/env bash
# dask 2026.8.0 with pandas 3.1.1, NumPy 2.4.6 and pyarrow 26.0.1: `from_pandas` of a column of vectors.
#
# One would guess that a column of arrays, or of lists, stays one, as the same column read from Parquet does, or is refused.
#
# Seen: it becomes a column of text, as NumPy or Python print the value. An array of more than 1,000 numbers is printed with three
# dots in its middle: of 1,536 numbers six are left, and `to_parquet` writes those. No warning is given.
#
# For users who put vectors into dask: write Parquet with pandas or pyarrow and use `read_parquet`, which keeps arrays, or switch
# the conversion off by `dask.config.set({"dataframe.convert-string": False})`.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "dask[dataframe]==2026.8.0" pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

warnings.simplefilter("error", UserWarning)
vectors = np.random.default_rng(0).standard_normal((2, 1536), np.float32)


def kept(column):
    """The first value of a column after dask."""
    return dd.from_pandas(pd.DataFrame({"v": column}), npartitions=1).compute()["v"][0]


of_arrays, of_lists = kept(list(vectors)), kept([[0.5, 0.25], [1.0, 2.0]])
frame = pd.DataFrame({"v": list(vectors)})
dd.from_pandas(frame, npartitions=1).to_parquet("by_dask")
frame.to_parquet("by_pandas.parquet")
with dask.config.set({"dataframe.convert-string": False}):
    unchanged = kept(list(vectors))
seen = {
    "an array": type(of_arrays).__name__,
    "numbers left of 1536": len(str(of_arrays).strip("[]").replace("...", "").split()),
    "a list": of_lists,
    "in the Parquet file": type(pd.read_parquet("by_dask")["v"][0]).__name__,
    "read from Parquet": type(dd.read_parquet("by_pandas.parquet").compute()["v"][0]).__name__,
    "without the conversion": type(unchanged).__name__,
}

print(*seen.items(), sep="\n")
expected = {
    "an array": "str",
    "numbers left of 1536": 6,
    "a list": "[0.5, 0.25]",
    "in the Parquet file": "str",
    "read from Parquet": "ndarray",
    "without the conversion": "ndarray",
}
sys.exit(seen != expected)
PROGRAM
