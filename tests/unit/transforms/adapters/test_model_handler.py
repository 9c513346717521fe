"""BertModelHandler in Beam's RunInference: everything that Beam offers for a handler works."""

import os
import pickle
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.ml.inference.base import (
    KeyedModelHandler,
    KeyModelMapping,
    MaybeKeyedModelHandler,
    ModelMetadata,
    RunInference,
)
from apache_beam.testing.util import assert_that, equal_to

import bert_embed
from bert_embed import BertModelHandler
from tests.support.beam import collect
from tests.support.models.heads import write_classifier, write_splade
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow


class Named(NamedTuple):
    text: str


@pytest.fixture(scope="module")
def other_bundle(model_of):
    return model_of(write_tiny_huggingface, seed=7).path


def test_every_kind_of_element_gets_its_prediction(tiny_bundle, tmp_path):
    elements = ["one", {"text": "two", "id": 2}, beam.Row(text="three", id=3), Named("four")]
    [results] = collect(tmp_path, elements, RunInference(BertModelHandler(tiny_bundle)))
    assert [result.example for result in results] == elements
    assert {result.model_id for result in results} == {tiny_bundle}
    wanted = bert_embed.load(tiny_bundle).encode(["one", "two", "three", "four"])
    assert_near([result.inference for result in results], wanted)
    assert {result.inference.dtype for result in results} == {np.dtype(np.float32)}
    assert all(result.inference.flags.owndata for result in results)


def test_columns_and_settings_are_those_that_are_named(tiny_bundle, tmp_path):
    handler = BertModelHandler(tiny_bundle, "q", "a", normalize=True, max_batch_size=1)
    [[result]] = collect(tmp_path, [{"q": "who", "a": "people"}], RunInference(handler))
    wanted = bert_embed.load(tiny_bundle, normalize=True).encode(["who"], ["people"])
    assert_near([result.inference], wanted)


def test_the_other_kinds_of_vectors(model_of, tmp_path):
    models = {
        "sparse": (write_splade,),
        "multi": (write_multi_vectors, "stanford"),
        "scores": (write_classifier, "distilbert", 3),
    }
    found = {}
    for kind, model in models.items():
        handler = BertModelHandler(model_of(*model).path, vectors=[kind])
        [[found[kind]]] = collect(tmp_path, ["the bank"], RunInference(handler))
    sparse, multi = found["sparse"].inference, found["multi"].inference
    assert sparse["indices"].shape == sparse["values"].shape
    assert (multi.ndim, multi.dtype) == (2, np.float32)
    assert found["scores"].inference.keys() == {f"label {n}" for n in range(3)}


@pytest.mark.parametrize("settings", [{}, {"large_model": True}, {"model_copies": 2}], ids=str)
def test_keys_stay_with_their_elements(tiny_bundle, tmp_path, settings):
    pairs = [("a", "one"), (2, {"text": "two"}), ("c", Named("three"))]
    wanted = bert_embed.load(tiny_bundle).encode(["one", "two", "three"])
    for keyed in (KeyedModelHandler, MaybeKeyedModelHandler):
        handler = keyed(BertModelHandler(tiny_bundle, **settings))
        [results] = collect(tmp_path, pairs, RunInference(handler))
        assert [key for key, _ in results] == ["a", 2, "c"]
        assert_near([result.inference for _, result in results], wanted)


def test_keys_choose_among_several_models(tiny_bundle, other_bundle, tmp_path):
    models = [
        KeyModelMapping(["a", "b"], BertModelHandler(tiny_bundle)),
        KeyModelMapping(["c"], BertModelHandler(other_bundle, dim=4)),
    ]
    handler = KeyedModelHandler(models, max_models_per_worker_hint=1)
    [results] = collect(tmp_path, [(key, "one") for key in "abc"], RunInference(handler))
    found = {key: (result.model_id, len(result.inference)) for key, result in results}
    assert found == {"a": (tiny_bundle, 32), "b": (tiny_bundle, 32), "c": (other_bundle, 4)}


def test_functions_before_and_after_and_batches_of_ones_own(tiny_bundle, tmp_path):
    handler = BertModelHandler(tiny_bundle).with_preprocess_fn(lambda element: element["deep"])
    handler = handler.with_preprocess_fn(lambda text: {"deep": text})
    handler = handler.with_postprocess_fn(lambda result: result.inference).with_postprocess_fn(len)
    assert collect(tmp_path, ["one"], RunInference(handler)) == [[32]]
    batches = RunInference(BertModelHandler(tiny_bundle).with_no_batching())
    [results] = collect(tmp_path, [["one", "two"], ["three"]], batches)
    assert [result.example for result in results] == ["one", "two", "three"]


def test_a_failed_batch_is_given_back(tiny_bundle):
    handler = BertModelHandler(tiny_bundle, max_batch_size=1)
    wanted = [
        "NoTextError('text: not a string or a record. Embeddings can only be generated on str, "
        "not on int (element 0 of its batch)')",
        "NoColumnError('text: missing text. Data does not contain the following columns: text. "
        "It has title (element 0 of its batch)')",
        "InputError('text: no tokens (element 0 of its batch)')",
    ]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        texts = pipeline | beam.Create(["one", 7, {"title": "secret"}, "\0", "two"], False)
        results, failed = texts | RunInference(handler).with_exception_handling(timeout=300)
        examples = results | beam.Map(lambda result: result.example)
        assert_that(examples, equal_to(["one", "two"]))
        reasons = failed.failed_inferences | "Why" >> beam.MapTuple(lambda _, error: error[1])
        assert_that(reasons, equal_to(wanted), label="Reasons")


@pytest.mark.parametrize(
    ("handler", "element", "error"),
    [
        (BertModelHandler, ("key", "one"), TypeError),
        (lambda model: KeyedModelHandler(BertModelHandler(model)), "one", Exception),
        (BertModelHandler, {"text": 1}, TypeError),
        (BertModelHandler, {"other": "one"}, RuntimeError),
        (BertModelHandler, {"text": ""}, ValueError),
    ],
    ids=["pair", "no pair", "int", "no column", "empty"],
)
def test_without_exception_handling_it_fails(tiny_bundle, tmp_path, handler, element, error):
    with pytest.raises(error):
        collect(tmp_path, [element], RunInference(handler(tiny_bundle)))


def test_beam_measures_and_counts(tiny_bundle):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    texts = pipeline | beam.Create(["a", "bé", "c"], reshuffle=False)
    _ = texts | RunInference(BertModelHandler(tiny_bundle, max_batch_size=2, min_batch_size=2))
    result = pipeline.run()
    result.wait_until_finish()
    metrics = result.metrics().query(MetricsFilter().with_namespace("BertEmbed"))
    kinds = [metrics[kind] for kind in ("counters", "distributions")]
    found = {each.key.metric.name: each.committed for kind in kinds for each in kind}
    assert found["num_inferences"] == 3
    assert found["inference_request_batch_size"].max == 2
    assert found["inference_request_batch_byte_size"].sum == 5
    assert found["inference_batch_latency_micro_secs"].count == 2
    assert found["load_model_latency_milli_secs"].count == 1


def test_batches_are_as_asked_for(tiny_bundle, tmp_path):
    for given in (
        {"min_batch_size": 2},
        {"max_batch_size": 8},
        {"max_batch_size": 8, "max_batch_duration_secs": 1, "element_size_fn": len},
    ):
        assert BertModelHandler(tiny_bundle, **given).batch_elements_kwargs() == given
    waiting = {"max_batch_duration_secs": 0.1, "batch_length_fn": len}
    handler = BertModelHandler(tiny_bundle, **waiting, batch_bucket_boundaries=[2, 4])
    [results] = collect(tmp_path, ["a", "the bank", "bb"], RunInference(handler))
    assert sorted(result.example for result in results) == ["a", "bb", "the bank"]


def test_what_beam_asks_of_a_batch(tiny_bundle):
    handler, long = BertModelHandler(tiny_bundle), "word " * 1024
    weigh = handler.batch_elements_kwargs()["element_size_fn"]
    elements = ["one", long, ("key", long), {"text": long}, Named(long), ("key", Named(long)), 7]
    assert list(map(weigh, elements)) == [1, 5, 5, 5, 5, 5, 1]
    assert handler.get_num_bytes(["é", {"text": "ab", "id": 1}]) == 4
    keyed = KeyedModelHandler(handler).get_num_bytes([("k", "ab")])
    assert keyed == len(pickle.dumps(("k",))) + 2
    shared = [
        BertModelHandler(tiny_bundle, **settings).share_model_across_processes()
        for settings in ({}, {"large_model": True}, {"model_copies": 3})
    ]
    assert shared == [False, True, True]
    assert BertModelHandler(tiny_bundle, model_copies=3).model_copies() == 3


def test_variables_are_set_before_the_model_is_loaded(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_TRIED", "no")
    handler = BertModelHandler(tiny_bundle, env_vars={"BERT_TRIED": "yes"})
    collect(tmp_path, ["one"], RunInference(handler))
    assert os.environ["BERT_TRIED"] == "yes"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("updated", [False, True])
def test_a_side_input_replaces_the_model(tiny_bundle, other_bundle, large, updated):
    """With nothing in it, the model stays."""
    model = other_bundle if updated else tiny_bundle
    wanted = bert_embed.load(model, dim=4).encode("one")
    handler = BertModelHandler(tiny_bundle, dim=4, large_model=large)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        models = [ModelMetadata(other_bundle, "new")] if updated else []
        metadata = pipeline | "Models" >> beam.Create(models)
        texts = pipeline | beam.Create(["one"])
        results = texts | RunInference(handler, model_metadata_pcoll=metadata)
        found = results | beam.Map(
            lambda result: (result.model_id, bool(np.allclose(result.inference, wanted, atol=1e-5)))
        )
        assert_that(found, equal_to([(model, True)]))
