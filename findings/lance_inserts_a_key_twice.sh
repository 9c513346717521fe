#!/usr/bin/env bash
# pylance 14.0.2: `merge_insert` with a key that stands twice in what is merged.
#
# One would guess that an upsert by key leaves one row a key, or refuses both times.
#
# Seen: if the table has the key, it is refused as ambiguous; if it has not, both rows are inserted, and each later
# merge of that key updates both.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pylance==14.0.2 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import lance
import pyarrow as pa

lance.write_dataset(pa.table({"id": ["a"], "v": [1]}), "t.lance")


def upsert(ids, values):
    merge = lance.dataset("t.lance").merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(pa.table({"id": ids, "v": values}))
    return [tuple(row.values()) for row in lance.dataset("t.lance").to_table().sort_by("id").to_pylist()]


seen = [("a new key twice", upsert(["b", "b"], [2, 3]))]
seen.append(("again, once", upsert(["b"], [4])))
try:
    seen.append(("a key of the table twice", upsert(["a", "a"], [5, 6])))
except OSError as error:
    seen.append(("a key of the table twice", "Ambiguous" in str(error)))
expected = [
    ("a new key twice", [("a", 1), ("b", 2), ("b", 3)]),
    ("again, once", [("a", 1), ("b", 4), ("b", 4)]),
    ("a key of the table twice", True),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
