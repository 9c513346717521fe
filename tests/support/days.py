"""Corpora of two days, and what a run says of the second: embedded, skipped, vanished."""

import json

import numpy as np

from tests.support.command import embed, record

THREE_DAYS = {
    "monday": {1: "the first of all", 2: "two", 3: "three"},
    "tuesday": {1: "the first, written again", 2: "two", 3: "three"},
    "wednesday": {1: "the first of all", 2: "two", 3: "three, written again", 4: "four"},
}
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


def three_days(folder, outputs, bundle, **flags):
    """Writes the inputs of three days, and an output a day, each of what the days before lack."""
    for day, texts in THREE_DAYS.items():
        source = write(folder / f"{day}.jsonl", texts)
        earlier = {"skip_existing": outputs} if day != "monday" else {}
        assert embed(outputs / day, bundle, source, **flags, **earlier) == 0
