"""Blocks that the model cannot do, on the cluster: each is named, and the rest finishes."""

import numpy as np
import pytest

from tests.integration.flink.conftest import BLOCK_BYTES
from tests.support.command import embed, flags_of, record, rejected, rows
from tests.support.flink.cluster import reports
from tests.support.flink.handlers import Faults
from tests.support.rounding import assert_near

POISON, HANGING, DEADLY = "vault", "robber", "money"  # each one token of the tiny model
PLACES = {POISON: 20, HANGING: 150, DEADLY: 250}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Lines of which three hold a word that is harmless by itself."""
    lines = [f"the river bank {n:03d} of seven" for n in range(300)]
    for word, number in PLACES.items():
        lines[number] = f"the {word} {number}"
    path = tmp_path_factory.mktemp("bad") / "in.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def harmless(corpus, tiny_bundle, tmp_path_factory):
    """The vector of each id, from the local runner and a sound model."""
    output = tmp_path_factory.mktemp("harmless") / "out"
    assert embed(output, tiny_bundle, corpus, block_bytes=BLOCK_BYTES, threads=1) == 0
    return vectors(output)


def vectors(output):
    found = rows(output)
    return dict(zip(found["id"], found["embedding"], strict=True))


def block_of(corpus, word):
    return corpus.read_bytes().index(word.encode()) // BLOCK_BYTES


def flags(output, model, corpus, **more):
    return flags_of(output, model, corpus, block_bytes=BLOCK_BYTES, **more)


def assert_same_vectors(found, harmless, without):
    assert found.keys() == harmless.keys() - without
    wanted = np.array([harmless[name] for name in found])
    assert_near(np.array(list(found.values())), wanted)


def test_a_bad_row_is_rejected_alone_and_large_batches_are_halved(
    tmp_path, cluster, corpus, tiny_bundle, harmless
):
    cluster.restart_jobs(False)
    output = tmp_path / "out"
    faults = Faults(words={POISON: "raise"}, most_rows=3)
    job = cluster.embed(*flags(output, tiny_bundle, corpus), faults=faults)
    assert job.returncode == 0, job.stderr
    (refused,) = rejected(output)
    assert (refused["stage"], refused["reason"]) == ("infer", "model error: ArithmeticError")
    assert refused["id"] not in vectors(output)
    assert_same_vectors(vectors(output), harmless, {refused["id"]})
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (300, 299, 1)


def test_what_hangs_is_named_and_what_kills_is_left_out(
    tmp_path, cluster, corpus, tiny_bundle, harmless
):
    cluster.restart_jobs(False)
    output = tmp_path / "out"
    command = flags(output, tiny_bundle, corpus)
    hanging, deadly = block_of(corpus, HANGING), block_of(corpus, DEADLY)

    # Both hang at first: by the time that one is missed, another worker may have done the other.
    faults = Faults(words={HANGING: "hang", DEADLY: "hang"})
    first = cluster.embed(*command, faults=faults)
    assert first.returncode == 1
    named = [f"error: the job failed: block {n}, {corpus}:" for n in (hanging, deadly)]
    assert any(error in first.stderr for error in named), first.stderr
    assert "the model hangs, no call came to an end in 3 s" in first.stderr
    done = reports(output)

    faults = Faults(words={DEADLY: "die"})
    second = cluster.embed(*command, faults=faults)
    assert second.returncode == 1
    assert "process died" in second.stderr
    assert done.items() <= reports(output).items()
    done = reports(output)

    skipped = [*command, f"--skip_blocks={deadly}", "--max_rejected=99%"]
    third = cluster.embed(*skipped, faults=faults)
    assert third.returncode == 0, third.stderr
    refused = rejected(output)
    assert {each["reason"] for each in refused} == {"block skipped on request"}
    assert_same_vectors(vectors(output), harmless, {each["id"] for each in refused})
    assert done.items() <= reports(output).items()
    counts = record(output)["counts"]
    assert counts["embedded"] + counts["rejected"] == counts["records"] == 300
    assert counts["parts_reused"] >= len(done)
