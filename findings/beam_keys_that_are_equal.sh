#!/usr/bin/env bash
# Apache Beam 2.77.0, Python: keys that Python finds equal and whose bytes differ, such as 1, 1.0 and True.
#
# One would guess that `CombinePerKey` gives what `GroupByKey` and then `CombineValues` give, of which its own code is made,
# and that `Distinct` keeps what `GroupByKey` keeps apart.
#
# Seen: `GroupByKey` compares the bytes of keys and has five groups of 1, 1.0, True, 0.0 and -0.0. `CombinePerKey`,
# `Count.PerElement` and `Distinct`, which first combine in a dictionary what a worker has at hand, have two, named by
# whichever key came first.
#
# For users whose ids are numbers in one file and fractions in another: make keys text before any of them.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import glob
import sys

import apache_beam as beam

PAIRS = [(1, 1), (1.0, 2), (True, 4), (0.0, 8), (-0.0, 16)]


def keep(name, values):
    """Writes what a transform gave, a value a line."""
    values | f"text of {name}" >> beam.Map(repr) | f"write {name}" >> beam.io.WriteToText(name)


def run(pairs):
    """What each transform gives for the pairs, sorted."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = pipeline | beam.Create(pairs)
        keep("group", made | beam.GroupByKey() | beam.MapTuple(lambda key, n: (key, sum(n))))
        keep("combine", made | beam.CombinePerKey(sum))
        keep("distinct", made | beam.Keys() | beam.Distinct())
        keep("count", made | "keys" >> beam.Keys() | beam.combiners.Count.PerElement())
    names = ("group", "combine", "distinct", "count")
    lines = {name: "".join(open(path).read() for path in glob.glob(f"{name}-*")) for name in names}
    return {name: sorted(text.splitlines()) for name, text in lines.items()}


first, reversed_ = run(PAIRS), run(PAIRS[::-1])
print(*first.items(), *reversed_.items(), sep="\n")
same = (
    len(first["group"]) == 5
    and first["group"] == reversed_["group"]
    and first["combine"] == ["(0.0, 24)", "(1, 7)"]
    and reversed_["combine"] == ["(-0.0, 24)", "(True, 7)"]
    and first["distinct"] == ["0.0", "1"]
    and first["count"] == ["(0.0, 2)", "(1, 3)"]
)
sys.exit(not same)
PROGRAM
