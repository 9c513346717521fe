#!/usr/bin/env bash
# Apache Beam 2.77.0 and pandas 3.1.1: `ReadFromJson` and `ReadFromCsv`.
#
# One would guess that they work with the pandas that an installation of both brings, or that they say which one
# they need.
#
# Seen: they fail when the pipeline is built, with "type object 'DataFrame' has no attribute 'first'": Beam's
# dataframes wrap methods that pandas 3 has not. The extra `apache-beam[dataframe]` pins an older pandas.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0 pandas==3.1.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import apache_beam as beam

with open("lines.csv", "w") as file:
    file.write("id,text\n1,one\n")
seen = []
for name in ("ReadFromJson", "ReadFromCsv"):
    try:
        beam.Pipeline() | getattr(beam.io, name)("lines.csv")
        seen.append((name, "built"))
    except AttributeError as error:
        seen.append((name, str(error)))
expected = [(name, "type object 'DataFrame' has no attribute 'first'") for name in ("ReadFromJson", "ReadFromCsv")]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
