"""A block that hangs is given up; it is logged and can be left out, and the rest finishes."""

import threading
from functools import partial

import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.pipeline.run import graph
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.command import block_records, files, record, rejected
from tests.support.engines import load_watched

pytestmark = pytest.mark.slow

NEVER = threading.Event()
WORDS = ["red river", "the bank", "seven stars", "a money bank"]
POISON = "zz zz"
SMALL = {"block_bytes": 1000, "threads": 1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """600 lines in blocks of 1,000 bytes; the 300th is the poison."""
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    lines = [f"{WORDS[n % 4]} {n:03d}" for n in range(600)]
    lines[300] = POISON
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def poison(corpus):
    """Number of the block with the poison."""
    return corpus.read_bytes().index(POISON.encode()) // 1000


@pytest.fixture
def hanging(tiny_bundle, monkeypatch):
    """A model that hangs at the poison."""
    NEVER.clear()
    number = load_tokenizer(read_bundle(tiny_bundle)).encode(POISON)[1]
    load = partial(load_watched, partial(hang, number))
    monkeypatch.setattr(graph, "BlockModelHandler", partial(BlockModelHandler, load_engine=load))
    yield
    NEVER.set()


def hang(number, ids):
    if (ids == number).any():
        NEVER.wait()


def test_a_hanging_block_is_named_and_left_out(run, corpus, poison, hanging, monkeypatch, caplog):
    message = "--skip_blocks 99: the run has 1 block, number 0 to 0"
    run.refused(corpus, message, skip_blocks="99")
    run.refused(corpus, "--skip_blocks must be block numbers with commas", skip_blocks="a")
    monkeypatch.setattr(graph, "INFERENCE_TIMEOUT", 2.0)
    output = run(corpus, code=1, **SMALL, default_sdk_harness_log_level="INFO")
    begins = f"block {poison} begins: {corpus}, bytes {1000 * poison} to {1000 * poison + 1000}"
    assert begins in caplog.text + run.err
    assert f"error: the job failed: block {poison}, {corpus}:" in run.err
    assert "the model hangs, no call came to an end in 2 s" in run.err
    assert "Traceback" not in run.err
    assert record(output)["status"] == "failed"
    done = len(block_records(output))
    run(corpus, **SMALL, skip_blocks=poison)
    counts = record(output)["counts"]
    assert counts["records"] == 600
    assert counts["embedded"] + counts["rejected"] == 600
    assert counts["parts_reused"] == done
    assert record(output)["rejected"] == {"block skipped on request": counts["rejected"]}
    refused = rejected(output)
    assert len(refused) == counts["rejected"]
    assert POISON in [each["record"] for each in refused]
    assert {each["stage"] for each in refused} == {"read"}
    run(corpus, **SMALL, skip_blocks=poison)
    assert "nothing to do" in run.out
    # With a model that is mended, the same command without --skip_blocks does what is missing.
    monkeypatch.undo()
    run(corpus, **SMALL)
    assert files(output) == files(run(corpus, "whole", **SMALL))
    counts = record(output)["counts"]
    assert (counts["embedded"], counts["parts_reused"]) == (600, counts["parts"] - 1)
