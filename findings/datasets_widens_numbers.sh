#!/usr/bin/env bash
# datasets 5.2.0: `with_format("numpy")` of vectors of int8, uint8, float16 and float64.
#
# One would guess that NumPy's arrays have the types that the file and `features` say.
#
# Seen: int8 and uint8 become int64, eight times the memory; float64 becomes float32 and loses digits; a list of
# float16 becomes float32, a single float16 of one row stays one.
#
# For readers: `with_format("numpy", dtype=...)`, or `with_format("arrow")`.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0 pyarrow==26.0.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

datasets.disable_progress_bars()
seen = []
for name in ("int8", "uint8", "float16", "float32", "float64"):
    numbers = pa.array(np.arange(6).astype(name))
    pq.write_table(pa.table({"v": pa.FixedSizeListArray.from_arrays(numbers, 3)}), f"{name}.parquet")
    data = datasets.load_dataset("parquet", data_files=f"{name}.parquet", split="train", cache_dir="cache")
    seen.append((data.features["v"].feature.dtype, str(data.with_format("numpy")[:]["v"].dtype)))
expected = [
    ("int8", "int64"),
    ("uint8", "int64"),
    ("float16", "float32"),
    ("float32", "float32"),
    ("float64", "float32"),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
