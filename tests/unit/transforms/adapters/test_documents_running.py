"""EmbedDocuments in time and on many processes: windows, streams, models that are shared."""

import sys
from functools import partial

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import PaneInfoTiming

from bert_embed.transforms import EmbedDocuments
from tests.support.beam import collect
from tests.support.command import PROCESSES
from tests.support.forks import write_python

pytestmark = pytest.mark.slow


def in_time(pipeline, seconds, windowing, reshuffle=False):
    """Texts by their second, in windows."""
    return (
        pipeline
        | beam.Create(seconds.items(), reshuffle)
        | beam.MapTuple(window.TimestampedValue)
        | beam.WindowInto(windowing)
    )


def grouped(texts):
    """The same texts behind a group of each window."""
    return texts | beam.GroupBy(lambda text: 0) | beam.FlatMap(lambda group: group[1])


def _placed(
    record,
    timestamp=beam.DoFn.TimestampParam,
    where=beam.DoFn.WindowParam,
    pane=beam.DoFn.PaneInfoParam,
):
    """The text, and the time, window and pane in which it is."""
    text = record["text"] if "text" in record else record["record"]["text"]
    panes = pane.is_first, pane.is_last, pane.timing, pane.index
    return text, (float(timestamp), float(where.start), float(where.end), *panes)


@pytest.mark.parametrize(
    ("windowing", "group", "places"),
    [
        (window.FixedWindows(10), False, 4),
        (window.FixedWindows(10), True, 4),
        (window.SlidingWindows(10, 5), False, 8),
        (window.Sessions(10), True, 4),  # merged
    ],
)
def test_elements_keep_their_time_window_and_pane(tiny_bundle, windowing, group, places):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        seconds = {"one": 1, "two": 8, "three": 30, " ": 4}
        texts = in_time(pipeline, seconds, windowing, reshuffle=not group)
        texts = grouped(texts) if group else texts
        records = texts | "Record" >> beam.Map(lambda text: {"text": text})
        behind = tuple(records | EmbedDocuments(tiny_bundle)) | beam.Flatten()
        both = records | "Before" >> beam.Map(_placed), behind | "Behind" >> beam.Map(_placed)
        assert_that(both | beam.CoGroupByKey(), partial(_assert_equal, group, places))


def _assert_equal(group, places, pairs):
    assert sum(len(before) for _, (before, _) in pairs) == places
    timing = PaneInfoTiming.ON_TIME if group else PaneInfoTiming.UNKNOWN
    for _, (before, behind) in pairs:
        assert list(before) == list(behind)
        assert {place[5] for place in before} == {timing}


def _distribution(pipeline, name):
    """Runs a pipeline; returns the distributions of a name."""
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query()["distributions"]
    return [metric.committed for metric in found if metric.key.metric.name == name]


@pytest.mark.parametrize(
    "windowing", [window.FixedWindows(1), window.SlidingWindows(60, 5), window.Sessions(0.5)]
)
def test_windows_do_not_multiply_the_calls_of_the_model(tiny_bundle, windowing):
    """20 texts of 20 seconds, which have come together."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = in_time(pipeline, {f"text {n}": n for n in range(20)}, windowing) | EmbedDocuments(
        tiny_bundle
    )
    [sizes] = _distribution(pipeline, "inference_request_batch_byte_size")
    assert sizes.count == 1


def test_a_stream_is_embedded_as_it_comes(tiny_bundle):
    stream = TestStream()
    for watermark, texts in ((0, {"one": 1, "two": 3}), (5, {"three": 8}), (11, {"four": 15})):
        values = [window.TimestampedValue(text, at) for text, at in texts.items()]
        stream = stream.advance_watermark_to(watermark).add_elements(values)
    # The runner that plays streams.
    options = PipelineOptions(["--runner=BundleBasedDirectRunner", "--streaming"])
    with beam.Pipeline(options=options) as pipeline:
        windows = (
            pipeline
            | stream.advance_watermark_to_infinity()
            | beam.WindowInto(window.FixedWindows(10))
        )
        embedded, _ = windows | EmbedDocuments(tiny_bundle)
        groups = (
            embedded
            | beam.Map(lambda record: (len(record["embedding"]), record["text"]))
            | beam.GroupByKey()
            | beam.MapTuple(lambda width, texts: (width, sorted(texts)))
        )
        assert_that(groups, equal_to([(32, ["one", "three", "two"]), (32, ["four"])]))


def test_batches_pass_the_type_check_at_runtime(tiny_bundle, tmp_path):
    transform = EmbedDocuments(tiny_bundle)
    [[row], _] = collect(tmp_path, ["one"], transform, "--performance_runtime_type_check")
    assert row["text"] == "one"


def test_batches_are_bounded_by_their_texts(tiny_bundle):
    """16 texts of 100,000 characters: two batches and more of a million at most."""
    texts = [f"{number} " + "word " * 20_000 for number in range(16)]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    transform = EmbedDocuments(tiny_bundle, long_text="reject")
    _, rejected = pipeline | beam.Create(texts) | transform
    assert_that(rejected | beam.combiners.Count.Globally(), equal_to([16]))
    [sizes] = _distribution(pipeline, "inference_request_batch_byte_size")
    assert sizes.count >= 2
    assert sizes.max <= 1 << 20


@pytest.mark.parametrize("large", [False, True])
def test_processes_share_a_large_model(tiny_bundle, tmp_path, monkeypatch, large):
    monkeypatch.setattr(sys, "executable", write_python(tmp_path))  # of the workers
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *PROCESSES]))
    texts = pipeline | beam.Create([f"text {number}" for number in range(4000)])
    _ = texts | beam.Reshuffle() | EmbedDocuments(tiny_bundle, large_model=large)
    loads = _distribution(pipeline, "load_model_latency_milli_secs")
    assert sum(each.count for each in loads) == (1 if large else 2)
