"""EmbedDocuments in time and on many processes: windows, streams, models that are shared."""

import ast
import json
import re
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import PaneInfoTiming

import bert_embed
from bert_embed.transforms import EmbedDocuments
from tests.support.beam import collect, inference_handlers
from tests.support.command import runner_flags
from tests.support.forks import write_python
from tests.support.rounding import MINILM, assert_near

pytestmark = pytest.mark.slow


def _placed_in_time(record, timestamp=beam.DoFn.TimestampParam, where=beam.DoFn.WindowParam):
    text = record["text"] if "text" in record else record["record"]
    return text, float(timestamp), float(where.start), float(where.end)


TIMES = {"one": 1, "two": 3, "three": 15, " ": 4}
STARTS = {  # of the windows of each text
    "fixed": {"one": [0], "two": [0], "three": [10]},
    "sliding": {"one": [-5, 0], "two": [-5, 0], "three": [10, 15]},
}
WINDOWS = {"fixed": window.FixedWindows(10), "sliding": window.SlidingWindows(10, 5)}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("waiting", [None, 0.1], ids=["bundle", "waiting"])
def test_elements_keep_their_time_and_window(tiny_bundle, kind, waiting):
    wanted = [
        (text, TIMES[text], start, start + 10)
        for text, starts in STARTS[kind].items()
        for start in starts
    ]
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        embedded, rejected = (
            pipeline
            | beam.Create(TIMES.items())
            | beam.MapTuple(window.TimestampedValue)
            | beam.WindowInto(WINDOWS[kind])
            | EmbedDocuments(tiny_bundle, max_batch_seconds=waiting)
        )
        assert_that(embedded | "Embedded" >> beam.Map(_placed_in_time), equal_to(wanted))
        blanks = rejected | "Rejected" >> beam.Map(_placed_in_time) | beam.Map(lambda each: each[1])
        assert_that(blanks, equal_to([4.0] * len(STARTS[kind]["one"])), label="Blank")


@pytest.mark.parametrize(
    "flags",
    [
        "--runner=FnApiRunner",
        "--runner=DirectRunner",  # Beam's default
        "--runner=DirectRunner --streaming",
        "--runner=BundleBasedDirectRunner",
        "prism",
    ],
)
def test_groups_behind_texts_that_wait_are_whole(tiny_bundle, tmp_path, flags):
    flags = runner_flags(flags) if flags == "prism" else flags.split()
    groups = tmp_path / "groups"
    with beam.Pipeline(options=PipelineOptions(list(flags))) as pipeline:
        embedded, _ = (
            pipeline
            | beam.Create([("one", 1), ("two", 3), ("three", 15), ("four", 27)])
            | beam.MapTuple(window.TimestampedValue)
            | beam.WindowInto(window.FixedWindows(10))
            | EmbedDocuments(tiny_bundle, max_batch_seconds=0.1)
        )
        grouped = embedded | beam.Map(lambda record: (0, record["text"])) | beam.GroupByKey()
        _ = grouped | beam.ParDo(_Append(groups))
    lines = groups.read_text("utf-8").splitlines() if groups.exists() else []
    assert sorted(lines) == ["four", "one two", "three"]


class _Append(beam.DoFn):
    def __init__(self, path):
        self._path = str(path)

    def process(self, group):
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(" ".join(sorted(group[1])) + "\n")


def test_a_merged_session_stays_merged(tiny_bundle):
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        embedded, _ = (
            pipeline
            | beam.Create([("one", 1), ("two", 8), ("three", 30)])
            | beam.MapTuple(window.TimestampedValue)
            | beam.WindowInto(window.Sessions(10))
            | beam.GroupBy(lambda text: 0)
            | beam.FlatMap(lambda group: group[1])
            | EmbedDocuments(tiny_bundle)
        )
        places = embedded | beam.Map(_placed_in_time) | beam.Map(lambda each: (each[0], each[2:]))
        assert_that(places, equal_to([("one", (1, 18)), ("two", (1, 18)), ("three", (30, 40))]))


def _batch_sizes(pipeline):
    """Runs a pipeline; returns the distribution of the bytes of its model's batches."""
    result = pipeline.run()
    result.wait_until_finish()
    [sizes] = [
        metric.committed
        for metric in result.metrics().query()["distributions"]
        if metric.key.metric.name == "inference_request_batch_byte_size"
    ]
    return sizes


@pytest.mark.parametrize(
    "windowing", [window.FixedWindows(1), window.SlidingWindows(60, 5), window.Sessions(0.5)]
)
def test_windows_do_not_multiply_the_calls_of_the_model(tiny_bundle, windowing):
    """20 texts of 20 seconds, which have come together."""
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    times = [(f"text {second}", second) for second in range(20)]
    _ = (
        pipeline
        | beam.Create(times, reshuffle=False)
        | beam.MapTuple(window.TimestampedValue)
        | beam.WindowInto(windowing)
        | EmbedDocuments(tiny_bundle)
    )
    assert _batch_sizes(pipeline).count == 1


def _text_and_pane(record, pane=beam.DoFn.PaneInfoParam):
    return record["text"], (pane.is_first, pane.is_last, pane.timing, pane.index)


def _with_pane(text, pane=beam.DoFn.PaneInfoParam):
    return {"text": text, "pane": (pane.is_first, pane.is_last, pane.timing, pane.index)}


def test_elements_keep_their_pane(tiny_bundle):
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        records = (
            pipeline
            | beam.Create([("one", 1), ("two", 2), ("three", 11)], reshuffle=False)
            | beam.MapTuple(window.TimestampedValue)
            | beam.WindowInto(window.FixedWindows(10))
            | beam.GroupBy(lambda text: 0)
            | beam.FlatMap(lambda group: group[1])
            | "Before" >> beam.Map(_with_pane)
        )
        embedded, _ = records | EmbedDocuments(tiny_bundle)
        behind = embedded | "Behind" >> beam.Map(_text_and_pane)
        before = records | beam.Map(lambda record: (record["text"], record["pane"]))
        assert_that(before, _panes_that_a_group_gave, label="Given")
        pairs = (before, behind) | beam.CoGroupByKey()
        assert_that(pairs, _equal_panes, label="Kept")


def _panes_that_a_group_gave(panes):
    assert len(panes) == 3
    assert {timing for _, (_, _, timing, _) in panes} == {PaneInfoTiming.ON_TIME}


def _equal_panes(pairs):
    assert len(pairs) == 3
    for _, (before, behind) in pairs:
        assert list(before) == list(behind)


@pytest.mark.parametrize("waiting", [None, 5], ids=["bundle", "waiting"])
def test_a_stream_is_embedded_as_it_comes(tiny_bundle, waiting):
    stream = (
        TestStream()
        .advance_watermark_to(0)
        .add_elements([window.TimestampedValue(text, at) for text, at in (("one", 1), ("two", 3))])
        .advance_watermark_to(5)
        .add_elements([window.TimestampedValue("three", 8)])
        .advance_watermark_to(11)
        .add_elements([window.TimestampedValue("four", 15)])
        .advance_watermark_to_infinity()
    )
    options = PipelineOptions(["--runner=BundleBasedDirectRunner"])  # the one that plays streams
    options.view_as(StandardOptions).streaming = True
    with beam.Pipeline(options=options) as pipeline:
        embedded, _ = (
            pipeline
            | stream
            | beam.WindowInto(window.FixedWindows(10))
            | EmbedDocuments(tiny_bundle, max_batch_seconds=waiting)
        )
        grouped = (
            embedded
            | beam.Map(lambda record: (len(record["embedding"]), record["text"]))
            | beam.GroupByKey()
            | beam.MapTuple(lambda width, texts: (width, sorted(texts)))
        )
        assert_that(grouped, equal_to([(32, ["one", "three", "two"]), (32, ["four"])]))


def test_batches_that_wait_pass_the_type_check_at_runtime(tiny_bundle):
    options = PipelineOptions(["--runner=FnApiRunner", "--performance_runtime_type_check"])
    with beam.Pipeline(options=options) as pipeline:
        texts = pipeline | beam.Create(["one"])
        embedded, _ = texts | EmbedDocuments(tiny_bundle, max_batch_seconds=1)
        assert_that(embedded | beam.Map(lambda record: record["text"]), equal_to(["one"]))


def test_waiting_batches_are_bounded_by_their_texts(tiny_bundle):
    """40 texts of 100,000 characters: four batches and more of a million at most."""
    texts = [f"{number} " + "word " * 20_000 for number in range(40)]
    options = PipelineOptions(["--runner=FnApiRunner"])
    pipeline = beam.Pipeline(options=options)
    transform = EmbedDocuments(tiny_bundle, max_batch_seconds=30, long_text="reject")
    _, rejected = pipeline | beam.Create(texts) | transform
    assert_that(rejected | beam.combiners.Count.Globally(), equal_to([40]))
    sizes = _batch_sizes(pipeline)
    assert sizes.count >= 4
    assert sizes.max <= 1 << 20


@pytest.mark.parametrize("large", [False, True])
def test_large_model_reaches_run_inference(tiny_bundle, tmp_path, large):
    transform = EmbedDocuments(tiny_bundle, large_model=large)
    handlers = inference_handlers(["one"], transform)
    assert [each.share_model_across_processes() for each in handlers] == [large]
    embedded, rejected = collect(tmp_path, ["one", "two", " "], transform)
    wanted = bert_embed.load(tiny_bundle).encode(["one", "two"])
    assert_near([each["embedding"] for each in embedded], wanted)
    assert len(rejected) == 1


@pytest.mark.parametrize("large", [False, True])
def test_processes_share_a_large_model(tiny_bundle, tmp_path, monkeypatch, large):
    monkeypatch.setattr(sys, "executable", write_python(tmp_path))  # of the workers
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *flags]))
    texts = [f"text {number}" for number in range(4000)]
    _ = (
        pipeline
        | beam.Create(texts)
        | beam.Reshuffle()
        | EmbedDocuments(tiny_bundle, large_model=large)
    )
    result = pipeline.run()
    result.wait_until_finish()
    loads = [
        each.committed.count
        for each in result.metrics().query()["distributions"]
        if each.key.metric.name == "load_model_latency_milli_secs"
    ]
    assert sum(loads) == (1 if large else 2)


@pytest.mark.parametrize("words", ["ReadFromText", "MLTransform"])
def test_the_manual_runs_as_it_stands(minilm, tmp_path, monkeypatch, capsys, words):
    manual = (Path(__file__).resolve().parents[4] / "docs" / "beam.md").read_text("utf-8")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "in.txt").write_text("one text\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
    exec(next(block for block in blocks if words in block), {})
    if words == "ReadFromText":
        record = json.loads((tmp_path / "vectors-00000-of-00001.jsonl").read_text("utf-8"))
    else:
        shown, refused = sorted(capsys.readouterr().out.splitlines(), key=len, reverse=True)
        record = ast.literal_eval(shown)
        assert refused == "{'id': 2, 'text': ' '} InputError('text: empty text')"
    assert record["text"] == "one text"
    wanted = bert_embed.load("minilm").encode(["one text"])[0]
    assert_near(record["embedding"], wanted, MINILM)
