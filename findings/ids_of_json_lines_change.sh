#!/usr/bin/env bash
# DuckDB 2.0.1, pyarrow 26.0.1, datasets 5.2.0, Polars 2.1.0: ids that are strings in JSON lines.
#
# One would guess that a JSON string is read as a string: JSON has strings and numbers, and nothing is to be
# inferred.
#
# Seen: DuckDB reads UUIDs as UUID, so that upper case becomes lower case and the id no longer equals itself
# elsewhere, and days as DATE. pyarrow and datasets read days as timestamps and keep the UUIDs. Polars keeps all
# strings. A column in which one value is no day stays a string, so the type of an id depends on the other rows.
#
# For readers of ids: name the types (DuckDB's `columns`, pyarrow's `explicit_schema`, datasets' `features`).
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1 datasets==5.2.0 polars==2.1.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import datasets
import duckdb
import polars as pl
import pyarrow.json

datasets.disable_progress_bars()
with open("ids.jsonl", "w") as file:
    file.write('{"day": "2024-01-01", "uuid": "6F9619FF-8B86-D011-B42D-00CF4FC964FF"}\n')
    file.write('{"day": "2024-01-02", "uuid": "6F9619FF-8B86-D011-B42D-00CF4FC964FE"}\n')
rows = {
    "duckdb": dict(zip(("day", "uuid"), duckdb.sql("from 'ids.jsonl'").fetchall()[0])),
    "pyarrow": pyarrow.json.read_json("ids.jsonl").to_pylist()[0],
    "datasets": datasets.load_dataset("json", data_files="ids.jsonl", split="train", cache_dir="cache")[0],
    "polars": pl.read_ndjson("ids.jsonl").to_dicts()[0],
}
seen = [(name, type(row["day"]).__name__, str(row["uuid"])[:8]) for name, row in rows.items()]
expected = [
    ("duckdb", "date", "6f9619ff"),
    ("pyarrow", "datetime", "6F9619FF"),
    ("datasets", "datetime", "6F9619FF"),
    ("polars", "str", "6F9619FF"),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
