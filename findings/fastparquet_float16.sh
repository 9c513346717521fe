#!/usr/bin/env bash
# fastparquet 2026.9.0: a column of float16, as pyarrow 26.0.1 writes it (Parquet's logical type FLOAT16).
#
# One would guess float16, as pandas with pyarrow, Polars and Daft read, or a refusal, as Spark 4.3 gives.
#
# Seen: bytes, without a word, with the zero bytes at their ends dropped: 0.0 is b'', 1.0 is b'\x00<'.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fastparquet==2026.9.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

numbers = pa.array(np.array([0, 1, 2, 3], np.float16))
vectors = pa.FixedSizeListArray.from_arrays(numbers, 2)
pq.write_table(pa.table({"vector": vectors, "number": numbers[:2]}), "halves.parquet")
seen = []
for engine in ("pyarrow", "fastparquet"):
    table = pd.read_parquet("halves.parquet", engine=engine)
    seen.append((engine, list(table["vector"][0]), list(table["number"])))
expected = [("pyarrow", [0.0, 1.0], [0.0, 1.0]), ("fastparquet", [b"", b"\x00<"], [b"", b"\x00<"])]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
