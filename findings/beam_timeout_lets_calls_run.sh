#!/usr/bin/env bash
# Apache Beam 2.77.0, Python: `with_exception_handling(timeout=...)`.
#
# One would guess that a call which takes too long is ended: its element is among the failed ones, so what the call does
# did not happen, and the pipeline's process ends with the pipeline.
#
# Seen: the pipeline goes on and ends in time, the element is among the failed ones with TimeoutError, and the call runs on
# in its thread: its row is written after the pipeline was done. The process waits for it, so that one call that never comes
# back keeps a job's process for ever.
#
# For users who send failed elements elsewhere: what the call writes may be there as well. With `use_subprocess=True` the
# call was ended.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0
cd "$folder"
cat > program.py <<'PROGRAM'
import time

import apache_beam as beam


def write(number):
    """Appends to a table, for one element only after eight seconds."""
    time.sleep(8 if number == 1 else 0)
    with open("table", "a") as file:
        file.write(f"{number}\n")
    return number


with beam.Pipeline("FnApiRunner") as pipeline:
    made = pipeline | beam.Create([0, 1, 2])
    _, failed = made | beam.Map(write).with_exception_handling(timeout=2)
    pairs = failed | "name" >> beam.Map(lambda one: f"{one[0]} {one[1][0].__name__}")
    pairs | beam.io.WriteToText("failed", shard_name_template="")
with open("table") as file:
    print("when the pipeline was done:", *file.read().split())
PROGRAM
venv/bin/python program.py 2> /dev/null
echo "failed: $(cat failed)"
echo "when the process ended: $(sort table | paste -sd ' ')"
[ "$(cat failed)" = "1 TimeoutError" ] && [ "$(sort table | paste -sd ' ')" = "0 1 2" ]
