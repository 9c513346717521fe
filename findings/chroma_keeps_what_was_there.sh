#!/usr/bin/env bash
# chromadb 1.5.9: adding, upserting and updating what is or is not there.
#
# One would guess that `add` of an id that is there is refused or replaces it, that `upsert` replaces a record, and
# that `update` of an id that is not there is refused.
#
# Seen: `add` does nothing and says nothing, the old vector stays; `upsert` merges the metadata, so that keys that
# are gone stay; `update` of a missing id does nothing and says nothing.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet chromadb==1.5.9 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import chromadb

texts = chromadb.EphemeralClient().create_collection("texts", embedding_function=None)
texts.add(ids=["a"], embeddings=[[1.0, 0.0]], metadatas=[{"title": "old", "year": 1999}])
texts.add(ids=["a"], embeddings=[[0.0, 1.0]], metadatas=[{"title": "new"}])
vector = texts.get(ids=["a"], include=["embeddings"])["embeddings"][0].tolist()
seen = [("the vector after add", vector)]
texts.upsert(ids=["a"], embeddings=[[0.0, 1.0]], metadatas=[{"title": "new"}])
record = texts.get(ids=["a"], include=["embeddings", "metadatas"])
seen.append(("after upsert", record["embeddings"][0].tolist(), record["metadatas"][0]))
texts.update(ids=["b"], embeddings=[[0.0, 1.0]])
seen.append(("records after update of another id", texts.count()))
expected = [
    ("the vector after add", [1.0, 0.0]),
    ("after upsert", [0.0, 1.0], {"title": "new", "year": 1999}),
    ("records after update of another id", 1),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
