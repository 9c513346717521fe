#!/usr/bin/env bash
# DuckDB 2.0.1, pyarrow 26.0.1, pandas 3.1.1, NumPy 2.4.6, Polars 2.1.0: text cast to 64-bit whole numbers.
#
# One would guess that a cast takes digits with a sign and refuses the rest, or gives null as DuckDB's TRY_CAST, so that
# such a cast tells numbers from codes, and different codes stay different.
#
# Seen: "0x1A" is 26 in pyarrow, in pandas' columns of Arrow's type and in DuckDB, "1_000" is 1000 in pandas, NumPy and
# DuckDB, and "0b11", "1e3" and "7.5" are 3, 1000 and 8 in DuckDB, whose TRY_CAST gives the same. "+7", a number
# elsewhere, is refused by pyarrow. Polars refuses all codes.
#
# For ids and codes: keep them as text, and check them with a pattern before a cast.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6 polars==2.1.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

TEXTS = ("0x1A", "0b11", "1_000", "1e3", "7.5", "+7", "007")
CASTS = {
    "pyarrow": lambda text: pa.array([text]).cast(pa.int64())[0].as_py(),
    "pandas": lambda text: int(pd.Series([text]).astype("int64")[0]),
    "pandas, Arrow": lambda text: int(pd.Series([text]).astype("int64[pyarrow]")[0]),
    "NumPy": lambda text: int(np.array([text]).astype(np.int64)[0]),
    "Polars": lambda text: pl.Series([text]).cast(pl.Int64)[0],
    "DuckDB": lambda text: duckdb.execute("SELECT TRY_CAST(? AS BIGINT)", [text]).fetchone()[0],
}
EXPECTED = {
    "pyarrow": [26, None, None, None, None, None, 7],
    "pandas": [None, None, 1000, None, None, 7, 7],
    "pandas, Arrow": [26, None, None, None, None, None, 7],
    "NumPy": [None, None, 1000, None, None, 7, 7],
    "Polars": [None, None, None, None, None, 7, 7],
    "DuckDB": [26, 3, 1000, 1000, 8, 7, 7],
}


def number(cast, text):
    """What a cast gives, None if it refuses the text."""
    try:
        return cast(text)
    except (ValueError, pa.ArrowInvalid, pl.exceptions.InvalidOperationError):
        return None


seen = {name: [number(cast, text) for text in TEXTS] for name, cast in CASTS.items()}
print(*TEXTS)
for name, numbers in seen.items():
    print(f"{name}: {numbers}")
sys.exit(seen != EXPECTED)
PROGRAM
