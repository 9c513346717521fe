#!/usr/bin/env bash
# orjson 3.13.0: whole numbers of twenty digits and more.
#
# One would guess that a whole number in JSON is read as an int, as `json` and msgspec do, or refused.
#
# Seen: up to 2**64 - 1 it is an int; from 2**64 on, and below -2**63, orjson gives a float without a word, so that
# two ids that differ in their last digits become one.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet orjson==3.13.0 msgspec==0.23.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import json
import sys

import msgspec
import orjson

first, second = "18446744073709551617", "18446744073709551618"
seen = [
    (name, type(loads(first)).__name__, loads(first) == loads(second))
    for name, loads in (("json", json.loads), ("msgspec", msgspec.json.decode), ("orjson", orjson.loads))
]
expected = [("json", "int", False), ("msgspec", "int", False), ("orjson", "float", True)]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
