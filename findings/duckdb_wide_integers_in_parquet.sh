#!/usr/bin/env bash
# DuckDB 2.0.1: ids of 128 bits, such as md5_number() gives, and sums of BIGINT, which are HUGEINT, in Parquet.
#
# One would guess that COPY to Parquet keeps them, or says that Parquet has no such integers: the same query keeps
# them as decimals where it gives Arrow, and all their digits in CSV and JSON.
#
# Seen: the column is written as DOUBLE, without a word. Ids that differ behind the sixteenth digit are one id
# afterwards, and so they are in the frame that df() gives; joined by them, texts get the vectors of others.
#
# For writers of ids: cast them to VARCHAR, or to DECIMAL(38, 0) where they fit.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1 pandas==3.1.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import duckdb

IDS = [9007199254740992, 9007199254740993]
ids = f"SELECT unnest({IDS})::HUGEINT AS id"
made = "SELECT md5_number('a') AS id, sum(1::BIGINT) AS n"
for form in ("parquet", "csv", "json"):
    duckdb.sql(f"COPY ({ids}) TO 'ids.{form}'")
duckdb.sql(f"COPY ({made}) TO 'made.parquet'")
types = [tuple(map(str, duckdb.sql(query).types)) for query in (made, "FROM 'made.parquet'")]
different = {
    "parquet": len(set(duckdb.sql("FROM 'ids.parquet'").fetchall())),
    "frame": duckdb.sql(ids).df()["id"].nunique(),
    "arrow": len(set(duckdb.sql(ids).to_arrow_table()["id"].to_pylist())),
    **{form: sum(str(IDS[1]) in line for line in open(f"ids.{form}")) + 1 for form in ("csv", "json")},
}
print(types, different)
expected = {"parquet": 1, "frame": 1, "arrow": 2, "csv": 2, "json": 2}
sys.exit(types != [("UHUGEINT", "HUGEINT"), ("DOUBLE", "DOUBLE")] or different != expected)
PROGRAM
