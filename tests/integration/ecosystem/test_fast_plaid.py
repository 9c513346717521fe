"""Multi-vectors in fast-plaid, by the recipe of docs/export.md, beside our exact search."""

import json
import random
import subprocess
from pathlib import Path

import numpy as np
import torch

import bert_embed
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.tiny import WORDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


def test_fast_plaid_finds_what_search_finds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_multi_vectors(tmp_path / "source", "stanford")
    words = random.Random(5)
    texts = [" ".join(words.choices(WORDS, k=words.randint(5, 15))) for _ in range(300)]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    queries = [" ".join(words.choices(text.split(), k=4)) for text in texts[:20]]
    (tmp_path / "queries.txt").write_text("\n".join(queries))

    def command(*arguments):
        # Beam and TensorFlow are in the other environment.
        words = [ROOT / ".venv" / "bin" / "bert-embed", *arguments]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    command("embed", "--input=in.txt", "--output=build/books", "--model=source")
    flags = ["--queries=queries.txt", "--by=multi", "--k=5", "--json"]
    lines = command("search", "build/books", *flags).splitlines()
    exact = [[hit["id"] for hit in json.loads(line)["hits"]] for line in lines]

    names = {}
    exec(PAGE.split("\n**fast-plaid**")[1].split("```python\n")[1].split("\n```")[0], names)
    ids = [document for document, _ in bert_embed.read_multi("build/books")]
    vectors = bert_embed.load("source").encode_query(queries, kind="multi")
    hits = names["index"].search(torch.tensor(np.stack(vectors.rows())), top_k=5)
    found = [[ids[row] for row, _ in hits_of_query] for hits_of_query in hits]
    best = [ours[0] == theirs[0] for ours, theirs in zip(exact, found, strict=True)]
    assert sum(best) >= 15  # it compares residuals of a few bits
    shared = [len({*ours} & {*theirs}) for ours, theirs in zip(exact, found, strict=True)]
    assert sum(shared) >= 85
