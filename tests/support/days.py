"""Corpora of two days, and what a run says of the second: embedded, skipped, vanished."""

import json

import numpy as np

from tests.support.command import record

WORDS = ["red", "river", "bank", "of", "seven", "stars", "money", "vault"]


def write(path, texts, ids=None):
    """JSON lines of texts by id, in the order given."""
    lines = [json.dumps({"id": each, "text": text}) for each, text in (ids or texts.items())]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def some_texts(count, seed=0):
    chosen = np.random.default_rng(seed).choice(WORDS, (count, 5))
    return {f"d{n}": " ".join(row) for n, row in enumerate(chosen)}


def counts(output):
    found = record(output)["counts"]
    return tuple(found[name] for name in ("records", "embedded", "skipped", "rejected"))


def two_days(tmp_path):
    """Two states of a corpus: unchanged, changed, deleted and new documents, and a blank one."""
    first = some_texts(60)
    second = dict(first) | {"d3": "seven new stars", "d40": "", "new1": "money", "new2": "vault"}
    del second["d7"], second["d59"]
    return write(tmp_path / "day1.jsonl", first), write(tmp_path / "day2.jsonl", second)
