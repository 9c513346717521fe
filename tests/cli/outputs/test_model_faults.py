"""A model that fails for a moment costs no document; what it always fails on is rejected.

A block that hangs is given up; it is logged and can be left out, and the rest finishes.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.transforms.base import MLTransform

import bert_embed
from bert_embed.backends.runner import NOT_FINITE
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.pipeline.cli import main
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms import EmbedDocuments
from bert_embed.transforms.adapters.beam_ml import BertEmbeddings, BertModelHandler
from tests.support.beam import collect
from tests.support.command import block_records, embed, files, record, rejected
from tests.support.engines import load_watched
from tests.support.loads import ids, interrupted

pytestmark = pytest.mark.slow

WORDS = ["red", "river", "the", "bank", "seven", "stars", "a", "money"]
POISON = "z"


class Fault:
    """How the model fails; `at` takes the number of a call of the model, from 0, and its ids."""

    def __init__(self) -> None:
        self.lock, self.calls, self.at = threading.Lock(), 0, None

    def begin(self, at: Callable[[int, np.ndarray], Any] | None) -> None:
        self.calls, self.at = 0, at

    def meet(self, ids: np.ndarray) -> Any:
        with self.lock:
            call, self.calls = self.calls, self.calls + 1
        said = self.at and self.at(call, ids)
        if isinstance(said, Exception):
            raise said
        return said


FAULT = Fault()


def during(first: int, count: int, said: Any, call: int, ids: np.ndarray) -> Any:
    return said if first <= call < first + count else None


def every_second(call: int, ids: np.ndarray) -> Any:
    return RuntimeError("no answer") if call % 2 else None


class Moment:
    """From the third call on the model fails for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, 0.0

    def __call__(self, call: int, ids: np.ndarray) -> Any:
        if call == 2:
            self.end = time.monotonic() + self.seconds
        return RuntimeError("no answer") if time.monotonic() < self.end else None


def on_poison(number: int, call: int, ids: np.ndarray) -> Any:
    return ArithmeticError("a text would stand here") if (ids == number).any() else None


def always(call: int, ids: np.ndarray) -> Any:
    return RuntimeError("no answer")


PASSING = {
    "once": partial(during, 3, 1, RuntimeError("no answer")),
    "out of memory": partial(during, 3, 40, MemoryError()),
    "not finite": partial(during, 3, 1, NOT_FINITE),
    "30 ms": Moment(0.03),
    "every second call": every_second,
}


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that fails as FAULT says; rows are tried again after short pauses."""
    load = "bert_embed.transforms.infer.load_engine"
    monkeypatch.setattr(load, partial(load_watched, FAULT.meet))
    monkeypatch.setattr("bert_embed.backends.runner.PAUSES", (0.05, 0.1))
    FAULT.begin(None)
    yield
    FAULT.begin(None)


@pytest.fixture
def poison(tiny_bundle: str) -> partial:
    """Fails on each text with the poison."""
    (number,) = load_tokenizer(read_bundle(tiny_bundle)).encode(POISON)[1:-1]
    return partial(on_poison, number)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """1,200 different lines in some blocks; the 700th is the poison."""
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    lines = [" ".join(WORDS[n // 8**at % 8] for at in range(1 + n % 4)) for n in range(1200)]
    lines[700] = POISON
    path.write_text("\n".join(lines) + "\n")
    return path


SMALL = {"block_bytes": 4000, "threads": 1}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, tiny_bundle, corpus):
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return files(output)


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_a_fault_that_passes_costs_no_document(run, corpus, undisturbed, fault):
    FAULT.begin(fault)
    output = run(corpus, max_rejected=0, **SMALL)
    assert record(output)["counts"]["embedded"] == 1200
    assert files(output) == undisturbed


def test_one_document_is_tried_again(run):
    FAULT.begin(partial(during, 0, 1, MemoryError()))
    run({"in.txt": "the bank\n"}, max_rejected=0)
    assert FAULT.calls == 3  # beside one of the probe


def test_a_fault_that_lasts_fails_the_job_and_the_same_command_continues(run, corpus, undisturbed):
    FAULT.begin(lambda call, ids: always(call, ids) if call >= 30 else None)
    output = run(corpus, code=1, **SMALL)
    assert "rows: model error: RuntimeError; a row that is known to work failed, too" in run.err
    assert "the same command continues" in run.err
    assert "max_rejected" not in run.err
    assert record(output)["status"] == "failed"
    assert not list(output.glob("rejected/*"))
    finished = len(block_records(output))
    FAULT.begin(None)
    run(corpus, **SMALL)
    assert record(output)["counts"]["parts_reused"] == finished > 0
    assert files(output) == undisturbed


def test_a_text_on_which_the_model_fails_is_tried_by_each(run, corpus, undisturbed, poison, capsys):
    found = []
    FAULT.begin(poison)
    for _ in range(2):
        output = run(corpus, **SMALL)
        assert "the model failed on 1 text: the same command tries again\n" in run.out
        now = record(output)
        assert now["rejected"] == {"model error: ArithmeticError": 1}
        found.append((files(output), now["counts"]["embedded"], now["status"]))
    assert found[0] == found[1]
    assert [one["stage"] for one in rejected(output)] == ["infer"]
    parts = now["counts"]["parts"]
    assert now["counts"]["parts_reused"] == parts - 1
    again = f"1 of {parts} finished parts has texts on which the model failed: computed again\n"
    assert again in run.err
    assert main(["verify", str(output)]) == 0
    told = capsys.readouterr().out
    assert "all as written" in told
    assert "the model failed on 1 text: the same command tries again\n" in told

    # A job that breaks off meanwhile leaves no vector behind as finished, and loses none.
    FAULT.begin(always)
    run(corpus, code=1, **SMALL)
    FAULT.begin(None)
    run(corpus, **SMALL)
    assert files(output) == undisturbed
    run(corpus, **SMALL)
    assert "nothing to do" in run.out


@pytest.mark.parametrize("other", ["the bank\n", ""], ids=["one", "all"])
def test_what_the_model_failed_on_is_never_to_be_accepted(run, poison, other):
    source = {"in.txt": f"{other}{POISON}\n{POISON} {POISON}\n"}
    FAULT.begin(poison)
    for _ in range(2):
        output = run(source, code=3, max_rejected="1%")
        assert "the model failed on 2 of them, which the same command tries again" in run.err
        assert "--max_rejected 2" not in run.said
        assert "accepts" not in run.said
        assert record(output)["status"] == "refused"
    FAULT.begin(None)
    run(source, max_rejected="1%")


def test_ten_thousand_bad_texts_take_one_pause_a_part(run, poison, monkeypatch):
    """And at most seven calls of one row each, beside the halves of their batches."""
    slept = []
    monkeypatch.setattr("bert_embed.backends.runner.time.sleep", slept.append)
    lines = [f"{POISON} {WORDS[n % 8]} {WORDS[n // 8 % 8]} {n}" for n in range(300)]
    FAULT.begin(poison)
    output = run({"in.txt": "the bank\n" + "\n".join(lines)}, max_rejected="100%")
    assert record(output)["counts"]["embedded"] == 1
    assert slept.count(0.05) == 1
    assert FAULT.calls < 300 * (2 * 2 + 5) + 20


def test_a_hanging_block_is_named_and_left_out(
    run, corpus, undisturbed, poison, monkeypatch, caplog
):
    at = corpus.read_bytes().index(f"\n{POISON}\n".encode()) // 4000
    message = "--skip_blocks 99: the run has 1 block, number 0 to 0"
    run.refused(corpus, message, skip_blocks="99")
    run.refused(corpus, "--skip_blocks must be block numbers with commas", skip_blocks="a")
    never = threading.Event()
    FAULT.begin(lambda call, ids: poison(call, ids) and not never.wait())
    monkeypatch.setattr("bert_embed.pipeline.run.graph.INFERENCE_TIMEOUT", 2.0)
    level = logging.getLogger("bert_embed").level
    output = run(corpus, code=1, **SMALL, default_sdk_harness_log_level="INFO")
    assert logging.getLogger("bert_embed").level == level  # that of a process with other runs
    begins = f"block {at} begins: {corpus}, bytes {4000 * at} to {4000 * at + 4000}"
    assert begins in caplog.text + run.err
    assert f"error: the job failed: block {at}, {corpus}:" in run.err
    assert "the model hangs, no call came to an end in 2 s" in run.err
    assert "Traceback" not in run.err
    assert record(output)["status"] == "failed"
    done = len(block_records(output))
    run(corpus, **SMALL, skip_blocks=at)
    counts, refused = record(output)["counts"], rejected(output)
    assert counts["records"] == counts["embedded"] + counts["rejected"] == 1200
    assert counts["parts_reused"] == done
    assert record(output)["rejected"] == {"block skipped on request": counts["rejected"]}
    assert len(refused) == counts["rejected"]
    assert POISON in [each["record"] for each in refused]
    assert {each["stage"] for each in refused} == {"read"}
    run(corpus, **SMALL, skip_blocks=at)
    assert "nothing to do" in run.out
    # With a model that is mended, the same command without --skip_blocks does what is missing.
    FAULT.begin(None)
    never.set()
    run(corpus, **SMALL)
    assert files(output) == undisturbed
    counts = record(output)["counts"]
    assert (counts["embedded"], counts["parts_reused"]) == (1200, counts["parts"] - 1)


@pytest.mark.parametrize("killed", [False, True], ids=["done", "killed before run.json"])
@pytest.mark.parametrize("disposition", ["truncate", "append"])
def test_a_table_gets_each_row_once(bigquery, dataset, run, load, poison, disposition, killed):
    source = {"in.jsonl": [{"id": one, "text": one} for one in ("a", "bank", POISON)]}
    flags, said = {"write_disposition": disposition}, ""
    FAULT.begin(poison)
    output = load(source, **flags)
    assert ids(bigquery, dataset) == ["a", "bank"]
    if killed:
        interrupted(output)
    FAULT.begin(None)
    for _ in range(2):
        load(source, **flags)
        said += run.out
    if disposition == "append":
        assert ids(bigquery, dataset) == ["a", "bank"]
        assert record(output)["counts"]["embedded"] == 2
        assert f"the same command with --skip_existing {output} and another --output" in said
        load(source, "new", skip_existing=output, **flags)
    assert ids(bigquery, dataset) == ["a", "bank", POISON]
    assert "nothing to do" in said


def ml_transform(model: str, folder: Any) -> MLTransform:
    embeddings = BertEmbeddings(model, ["text"])
    return MLTransform(write_artifact_location=str(folder)).with_transform(embeddings)


# What embeds records of texts with a model and a folder, and the vector of what it gives.
CALLS: dict[str, tuple[Callable[[str, Any], beam.PTransform], Callable[[Any], Any]]] = {
    "documents": (lambda model, _: EmbedDocuments(model), itemgetter("embedding")),
    "handler": (lambda model, _: RunInference(BertModelHandler(model)), attrgetter("inference")),
    "MLTransform": (ml_transform, itemgetter("text")),
}


@pytest.mark.parametrize("texts", [["the bank"], ["the bank", "a river"]], ids=["one", "two"])
@pytest.mark.parametrize("call", CALLS)
def test_a_passing_fault_costs_no_element_of_other_pipelines(tmp_path, tiny_bundle, call, texts):
    wanted = sorted(bert_embed.load(tiny_bundle).encode(texts).tolist())
    met: list[int] = []

    def thrice(call: int, ids: np.ndarray) -> Any:
        """Fails on a text, not on what a model is tried with, which is shorter."""
        if len(met) == 3 or ids.shape[1] < 4:
            return None
        met.append(len(ids))
        return RuntimeError()

    FAULT.begin(thrice)
    made, vector = CALLS[call]
    records = [{"text": text} for text in texts]
    good, *bad = collect(tmp_path, records, made(tiny_bundle, tmp_path / "artifacts"))
    found = sorted(list(vector(each)) for each in good)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert bad in ([], [[]])
    assert len(met) == 3


@pytest.mark.parametrize("fault", [*PASSING], ids=PASSING)
@pytest.mark.parametrize("texts", [["the bank"], ["the bank", "a", "red river"] * 9])
def test_a_fault_that_passes_fails_no_call(tiny_bundle, fault, texts):
    load = partial(load_watched, FAULT.meet)
    encoder = Encoder(read_bundle(tiny_bundle), threads=1, load_engine=load)
    wanted = encoder.encode(texts, batch_tokens=8)
    if not isinstance(at := PASSING[fault], Moment) and fault != "every second call":
        at = partial(during, 0, 3, at.args[2])
    FAULT.begin(at)
    np.testing.assert_array_equal(encoder.encode(texts, batch_tokens=8), wanted)
    FAULT.begin(always)
    with pytest.raises(RuntimeError, match="model error: RuntimeError; a row that is known"):
        encoder.encode(texts)
