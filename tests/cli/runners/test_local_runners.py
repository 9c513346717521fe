"""The same corpus on each of Beam's local runners: the same files, the same counts."""

import gzip
import json

import pytest

from tests.support.command import (
    RUNNERS,
    embed,
    files,
    finish,
    flags_of,
    record,
    rejected,
    rows,
    runner_flags,
    start,
)
from tests.support.daily import some_texts

pytestmark = pytest.mark.slow
SMALL = {"block_bytes": 4000, "threads": 1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, compressed text and JSON lines; small files that share blocks; records to reject."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"{name} {text}" for name, text in some_texts(1800).items()]
    (folder / "a.txt").write_text("\n".join([*texts[:800], "", *texts[800:1000]]))
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("\n".join(texts[1000:1400]))
    rows = [json.dumps({"id": f"c{n}", "text": text}) for n, text in enumerate(texts[1400:])]
    (folder / "c.jsonl").write_text("\n".join([*rows[:200], "{broken", *rows[200:], '{"id": "x"}']))
    for number in range(20):
        (folder / f"d{number:02d}.txt").write_text(f"small file {number}\n")
    return folder


@pytest.fixture(scope="module")
def expected(corpus, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("expected") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert len(files(output)) > 10
    return output


def counted(output):
    """All of the record that must not depend on who ran it."""
    kept = record(output)
    kept["counts"].pop("parts_reused", None)
    names = ("counts", "rejected", "tokens", "padding_share", "lengths", "files", "vectors")
    return {name: kept[name] for name in names if name in kept}


@pytest.mark.parametrize("name", RUNNERS)
def test_the_output_is_that_of_the_default_runner(tmp_path, corpus, expected, tiny_bundle, name):
    output = tmp_path / "out"
    finish(start("embed", *flags_of(output, tiny_bundle, corpus, **SMALL), *runner_flags(name)))
    assert files(output) == files(expected)
    assert counted(output) == counted(expected)
    assert counted(output)["counts"]["embedded"] == len(rows(output)["id"]) == 1820
    assert len(rejected(output)) == 3


def test_direct_runner_is_taken_for_the_local_one(run, corpus, expected, caplog):
    """Beam's own would try to download another runner, and start it."""
    output = run(corpus, runner="DirectRunner", **SMALL)
    assert "this run takes FnApiRunner" in caplog.text
    assert files(output) == files(expected)
