"""A block that hangs is given up, one that kills its process is logged; the rest finishes."""

import threading
from functools import partial

import pytest

from bert_embed.pipeline.run import graph
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.command import block_records, files, flags_of, ran, record, rejected, rows
from tests.support.engines import load_watched
from tests.support.forks import python

pytestmark = pytest.mark.slow

NEVER = threading.Event()
WORDS = ["red river", "the bank", "seven stars", "a money bank"]
POISON = "zz zz"
SMALL = {"block_bytes": 1000, "threads": 1}

# The command line, with a model that kills its process at a certain token.
KILLER = """
import os, signal, sys
from functools import partial
from bert_embed.pipeline.run import graph
from bert_embed.pipeline.cli import main
from tests.support.engines import load_watched
from bert_embed.transforms.infer import BlockModelHandler
def die(ids):
    if (ids == POISON_ID).any():
        os.kill(os.getpid(), signal.SIGKILL)
load = partial(load_watched, die)
graph.BlockModelHandler = partial(BlockModelHandler, load_engine=load)
sys.exit(main(sys.argv[1:]))
"""


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


def poison_id(bundle):
    from bert_embed.bundle.bundle import read_bundle

    return load_tokenizer(read_bundle(bundle)).encode(POISON)[1]


@pytest.fixture
def hanging(tiny_bundle, monkeypatch):
    """A model that hangs at the poison."""
    NEVER.clear()
    load = partial(load_watched, partial(hang, poison_id(tiny_bundle)))
    monkeypatch.setattr(graph, "BlockModelHandler", partial(BlockModelHandler, load_engine=load))
    yield
    NEVER.set()


def hang(number, ids):
    if (ids == number).any():
        NEVER.wait()


def test_a_hanging_block_is_named_and_can_be_left_out(run, corpus, poison, hanging, monkeypatch):
    message = "--skip_blocks 99: the run has 1 block, number 0 to 0"
    run.refused(corpus, message, skip_blocks="99")
    run.refused(corpus, "--skip_blocks must be block numbers with commas", skip_blocks="a")
    monkeypatch.setattr(graph, "INFERENCE_TIMEOUT", 2.0)
    output = run(corpus, code=1, **SMALL)
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


def test_a_block_that_kills_its_process_is_logged_left_out_and_taken_up_again(
    tmp_path, run, corpus, poison, tiny_bundle
):
    output = tmp_path / "out"
    program = KILLER.replace("POISON_ID", str(poison_id(tiny_bundle)))
    flags = flags_of(output, tiny_bundle, corpus, **SMALL)
    died = ran([*python(), "-c", program, "embed", *flags, "--default_sdk_harness_log_level=INFO"])
    place = f"{corpus}, bytes {1000 * poison} to {1000 * poison + 1000}"
    assert died.returncode == -9, died.stderr
    assert died.stderr.rstrip().endswith(f"block {poison} begins: {place}")
    done = len(block_records(output))
    run(corpus, **SMALL, skip_blocks=poison)
    assert record(output)["counts"]["parts_reused"] == done
    assert {each["reason"] for each in rejected(output)} == {"block skipped on request"}
    run(corpus, **SMALL, skip_blocks=poison)
    assert "nothing to do" in run.out
    # With a model that is mended, the same command without --skip_blocks does what is missing.
    run(corpus, **SMALL)
    assert files(output) == files(run(corpus, "whole", **SMALL))
    counts = record(output)["counts"]
    assert (counts["embedded"], counts["rejected"]) == (600, 0)
    assert counts["parts_reused"] == counts["parts"] - 1
    assert len(rows(output)["id"]) == 600
