"""A block that hangs is given up, one that kills its process is named; the rest finishes."""

import json
import shutil
import threading
from functools import partial

import pytest

from bert_embed.pipeline.run import graph
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.command import block_records, embed, files, flags_of, ran, record, rejected, rows
from tests.support.engines import load_watched
from tests.support.forks import python

pytestmark = pytest.mark.slow

NEVER = threading.Event()
WORDS = ["red river", "the bank", "seven stars", "a money bank"]
POISON = "zz zz"
SMALL = {"block_bytes": 1000, "threads": 1}

# The command line, with a model that kills its process at a certain token.
KILLER = """
import os, signal, sys, time
from functools import partial
from bert_embed.pipeline.run import graph
from bert_embed.pipeline.cli import main
from tests.support.engines import load_watched
from bert_embed.transforms.infer import BlockModelHandler
def die(ids):
    if (ids == POISON_ID).any():
        time.sleep(float(os.environ["DYING_SECONDS"]))
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


def test_a_hanging_block_is_named_and_can_be_left_out(
    tmp_path, corpus, poison, tiny_bundle, hanging, capsys, monkeypatch
):
    monkeypatch.setattr(graph, "INFERENCE_TIMEOUT", 2.0)
    flags = dict(SMALL)
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 1
    told = capsys.readouterr().err
    assert f"error: the job failed: block {poison}, {corpus}:" in told
    assert "the model hangs, no call came to an end in 2 s" in told
    assert "Traceback" not in told
    assert record(tmp_path / "out")["status"] == "failed"
    assert not list((tmp_path / "out").glob("_state/working/*")), "the process lived on"
    done = len(block_records(tmp_path / "out"))

    flags["skip_blocks"] = str(poison)
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 0
    counts = record(tmp_path / "out")["counts"]
    assert counts["records"] == 600
    assert counts["embedded"] + counts["rejected"] == 600
    assert counts["parts_reused"] == done
    assert record(tmp_path / "out")["rejected"] == {"block skipped on request": counts["rejected"]}
    refused = rejected(tmp_path / "out")
    assert len(refused) == counts["rejected"]
    assert POISON in [each["record"] for each in refused]
    assert {each["stage"] for each in refused} == {"read"}
    assert not (tmp_path / "out" / "_state" / "working").exists()


def run_deadly(bundle, *words, seconds=0.0):
    """The command line with a model that dies within so long; returns what it said."""
    program = KILLER.replace("POISON_ID", str(poison_id(bundle)))
    done = ran([*python(), "-c", program, "embed", *words], DYING_SECONDS=str(seconds))
    assert done.returncode == -9, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def deaths(corpus, tiny_bundle, tmp_path_factory):
    """A run whose process died once, in `1`, and twice, in `2`; and what the second one said."""
    folder = tmp_path_factory.mktemp("deaths")
    flags = flags_of(folder / "2", tiny_bundle, corpus, **SMALL)
    run_deadly(tiny_bundle, *flags)
    shutil.copytree(folder / "2", folder / "1")
    return folder, run_deadly(tiny_bundle, *flags)


@pytest.fixture
def output(deaths, tmp_path):
    """The output of the run whose process died twice."""
    return shutil.copytree(deaths[0] / "2", tmp_path / "out")


def test_a_block_that_kills_its_process_is_named_left_out_and_taken_up_again(
    tmp_path, corpus, poison, tiny_bundle, capsys, deaths, output
):
    place = f"{corpus}, bytes {1000 * poison} to {1000 * poison + 1000}"
    assert f"note: a process died on block {poison} ({place})\n" in deaths[1]
    done = len(block_records(output))

    assert embed(output, tiny_bundle, corpus, **SMALL, skip_blocks=poison) == 0
    assert record(output)["counts"]["parts_reused"] == done
    assert {each["reason"] for each in rejected(output)} == {"block skipped on request"}
    assert not (output / "_state" / "working").exists()
    assert embed(output, tiny_bundle, corpus, **SMALL, skip_blocks=poison) == 0
    assert "nothing to do" in capsys.readouterr().out

    # With a model that is mended, the same command without --skip_blocks does what is missing.
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert embed(tmp_path / "whole", tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == files(tmp_path / "whole")
    counts = record(output)["counts"]
    assert (counts["embedded"], counts["rejected"]) == (600, 0)
    assert counts["parts_reused"] == counts["parts"] - 1
    assert len(rows(output)["id"]) == 600


def test_each_death_counts(output, corpus, poison, tiny_bundle, capsys):
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    told = capsys.readouterr().err
    assert "), 2 times\n" in told
    assert f"skip it with --skip_blocks {poison}\n" in told


def test_a_mark_of_another_machine_may_be_of_work_that_goes_on(deaths, corpus, tiny_bundle, capsys):
    output = deaths[0] / "1"
    (mark,) = (output / "_state" / "working").iterdir()
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"host": "elsewhere"}))
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert "), unless it still runs on another machine" in capsys.readouterr().err


def test_deaths_are_told_of_runs_in_cloud_storage(tmp_path, corpus, poison, tiny_bundle, gcs):
    gcs.client.create_bucket("deaths")
    flags = flags_of("gs://deaths/out", tiny_bundle, corpus, **SMALL)
    run_deadly(tiny_bundle, *flags, seconds=2)
    told = run_deadly(tiny_bundle, *flags, seconds=2)
    assert f"note: a process died on block {poison} (" in told
    assert embed("gs://deaths/out", tiny_bundle, corpus, **SMALL, skip_blocks=poison) == 0
    left = [each.name for each in gcs.client.list_blobs("deaths", prefix="out/_state/working/")]
    assert left == []


def test_a_block_the_run_does_not_have_cannot_be_left_out(tmp_path, corpus, tiny_bundle, capsys):
    assert embed(tmp_path / "out", tiny_bundle, corpus, skip_blocks="99") == 2
    assert "--skip_blocks 99: the run has 1 block, number 0 to 0" in capsys.readouterr().err
    assert embed(tmp_path / "out", tiny_bundle, corpus, skip_blocks="a") == 2
    assert "--skip_blocks must be block numbers with commas" in capsys.readouterr().err
