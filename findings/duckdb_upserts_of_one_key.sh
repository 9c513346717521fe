#!/usr/bin/env bash
# DuckDB 2.0.1: a key that stands twice in one upsert.
#
# One would guess that the last row wins, as in SQLite's INSERT OR REPLACE and in two statements, or that MERGE
# refuses, as the SQL standard, PostgreSQL and BigQuery do.
#
# Seen: INSERT OR REPLACE keeps the first of both; MERGE inserts both rows if the key is new, and if it is not,
# updates it twice without an error, and the last wins.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sqlite3
import sys

import duckdb

REPLACE = "insert or replace into t values ('a', 1), ('a', 2)"
MERGE = (
    "merge into u using (values ('a', {}), ('a', {})) s(id, v) on u.id = s.id "
    "when matched then update set v = s.v when not matched then insert values (s.id, s.v)"
)
lite = sqlite3.connect(":memory:")
duck = duckdb.connect()
for each in (lite, duck):
    each.execute("create table t (id varchar primary key, v int)")
    each.execute(REPLACE)
duck.execute("create table u (id varchar, v int)")
seen = [(name, each.execute("select * from t").fetchall()) for name, each in (("SQLite", lite), ("DuckDB", duck))]
duck.execute(MERGE.format(1, 2))
seen.append(("MERGE, a new key", sorted(duck.execute("select * from u").fetchall())))
duck.execute("delete from u where v = 1")
duck.execute(MERGE.format(3, 4))
seen.append(("MERGE, a key of the table", duck.execute("select * from u").fetchall()))
expected = [
    ("SQLite", [("a", 2)]),
    ("DuckDB", [("a", 1)]),
    ("MERGE, a new key", [("a", 1), ("a", 2)]),
    ("MERGE, a key of the table", [("a", 4)]),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
