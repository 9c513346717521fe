"""EmbedDocuments in time and on many processes: windows, streams, models that are shared."""

import json
import sys
import time

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming

from bert_embed.transforms import EmbedDocuments
from tests.support.beam import collect
from tests.support.command import PROCESSES, runner_flags
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
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        transform = EmbedDocuments(tiny_bundle, max_batch_seconds=waiting)
        embedded, rejected = in_time(pipeline, TIMES, WINDOWS[kind], reshuffle=True) | transform
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
    times = {"one": 1, "two": 3, "three": 15, "four": 27}
    with beam.Pipeline(options=PipelineOptions(list(flags))) as pipeline:
        texts = in_time(pipeline, times, window.FixedWindows(10), reshuffle=True)
        embedded, _ = texts | EmbedDocuments(tiny_bundle, max_batch_seconds=0.1)
        groups = embedded | beam.Map(lambda record: (0, record["text"])) | beam.GroupByKey()
        _ = groups | beam.ParDo(Grouped(tmp_path / "groups"))
    assert groups_of(tmp_path / "groups") == [[0, ["one", "two"]], [10, ["three"]], [20, ["four"]]]


def groups_of(path):
    """What `Grouped` wrote, by the start of windows."""
    return sorted(map(json.loads, path.read_text("utf-8").splitlines()))


class Grouped(beam.DoFn):
    """Writes the texts of a window once it is closed."""

    def __init__(self, path):
        self._path = str(path)

    def process(self, element, window=beam.DoFn.WindowParam):
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([int(window.start), sorted(element[1])]) + "\n")


def test_a_merged_session_stays_merged(tiny_bundle):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        texts = in_time(pipeline, {"one": 1, "two": 8, "three": 30}, window.Sessions(10))
        embedded, _ = grouped(texts) | EmbedDocuments(tiny_bundle)
        places = embedded | beam.Map(_placed_in_time) | beam.Map(lambda each: (each[0], each[2:]))
        assert_that(places, equal_to([("one", (1, 18)), ("two", (1, 18)), ("three", (30, 40))]))


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


def _text_and_pane(record, pane=beam.DoFn.PaneInfoParam):
    return record["text"], (pane.is_first, pane.is_last, pane.timing, pane.index)


def test_elements_keep_their_pane(tiny_bundle):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        texts = in_time(pipeline, {"one": 1, "two": 2, "three": 11}, window.FixedWindows(10))
        records = grouped(texts) | "Record" >> beam.Map(lambda text: {"text": text})
        embedded, _ = records | EmbedDocuments(tiny_bundle)
        before = records | "Before" >> beam.Map(_text_and_pane)
        behind = embedded | "Behind" >> beam.Map(_text_and_pane)
        assert_that((before, behind) | beam.CoGroupByKey(), _equal_panes)


def _equal_panes(pairs):
    assert len(pairs) == 3
    for _, (before, behind) in pairs:
        assert list(before) == list(behind)
        assert [timing for _, _, timing, _ in before] == [PaneInfoTiming.ON_TIME]


@pytest.mark.parametrize("waiting", [None, 5], ids=["bundle", "waiting"])
def test_a_stream_is_embedded_as_it_comes(tiny_bundle, waiting):
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
        embedded, _ = windows | EmbedDocuments(tiny_bundle, max_batch_seconds=waiting)
        groups = (
            embedded
            | beam.Map(lambda record: (len(record["embedding"]), record["text"]))
            | beam.GroupByKey()
            | beam.MapTuple(lambda width, texts: (width, sorted(texts)))
        )
        assert_that(groups, equal_to([(32, ["one", "three", "two"]), (32, ["four"])]))


def test_batches_that_wait_pass_the_type_check_at_runtime(tiny_bundle, tmp_path):
    transform = EmbedDocuments(tiny_bundle, max_batch_seconds=1)
    [[row], _] = collect(tmp_path, ["one"], transform, "--performance_runtime_type_check")
    assert row["text"] == "one"


def test_waiting_batches_are_bounded_by_their_texts(tiny_bundle):
    """16 texts of 100,000 characters: two batches and more of a million at most."""
    texts = [f"{number} " + "word " * 20_000 for number in range(16)]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    transform = EmbedDocuments(tiny_bundle, max_batch_seconds=30, long_text="reject")
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


PATIENCE = 120  # seconds
BEHIND = {"fixed": FixedWindows(60), "sliding": SlidingWindows(60, 30), "sessions": Sessions(25)}
TEXTS = (10, 31, 40, 100)  # each is a text at this second
EXPECTED = {
    "fixed": [[0, [10, 31, 40]], [60, [100]]],
    "sliding": [[-30, [10]], [0, [10, 31, 40]], [30, [31, 40]], [60, [100]], [90, [100]]],
    "sessions": [[10, [10, 31, 40]], [100, [100]]],
}


class Steps(RestrictionProvider):
    """The steps of a stream, one after the other."""

    def initial_restriction(self, element):
        return OffsetRange(0, len(element))

    def create_tracker(self, restriction):
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element, restriction):
        return restriction.size()

    def truncate(self, element, restriction):
        return None


_STEPS = beam.DoFn.RestrictionParam(Steps())
_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class Stream(beam.DoFn):
    """Gives texts, moves the watermark on, and waits, as its element says."""

    @beam.DoFn.unbounded_per_element()
    def process(self, element, tracker=_STEPS, watermark=_WATERMARK):
        place = tracker.current_restriction().start
        while tracker.try_claim(place):
            what, value = element[place]
            if what == "text":
                yield TimestampedValue(f"text {value}", value)
            elif what == "watermark":
                watermark.set_watermark(Timestamp(value))
            else:
                tracker.defer_remainder(Duration(value))
                return
            place += 1


def run(steps, tmp_path, before):
    """Runs a stream; returns the groups of the seconds of its texts, by the kind of windows.

    Args:
        before: Whether windows are there already when texts are embedded.
    """
    options = PipelineOptions([*runner_flags("prism"), "--streaming"])
    pipeline = beam.Pipeline(options=options)
    stream = pipeline | beam.Create([steps]) | beam.ParDo(Stream()).with_output_types(str)
    embed = EmbedDocuments("minilm", max_batch_seconds=2)
    embedded = None if before else (stream | embed).embedded
    for name, windows in BEHIND.items():
        into = f"Into {name}" >> beam.WindowInto(windows)
        if embedded is None:
            vectors = (stream | into | f"Embed {name}" >> embed).embedded
        else:
            vectors = embedded | into
        _ = (
            vectors
            | f"Pair {name}" >> beam.Map(lambda record: ("all", int(record["text"].split()[1])))
            | f"Group {name}" >> beam.GroupByKey()
            | f"Write {name}" >> beam.ParDo(Grouped(tmp_path / name))
        )
    state = pipeline.run().wait_until_finish(duration=PATIENCE * 1000)
    assert state == "DONE", f"the stream is {state} after {PATIENCE} s"
    return {name: groups_of(tmp_path / name) for name in BEHIND}


@pytest.mark.parametrize("before", [False, True], ids=["windows behind", "windows before"])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[::-1]], ids=["in order", "newest first"])
def test_every_element_reaches_its_windows(tmp_path, minilm, texts, before):
    # The source lets the watermark pass the older elements while they wait for their batch, which
    # began with the first one, in a bundle of its own.
    first, *others = [("text", second) for second in texts]
    steps = [first, ("wait", 0.3), *others, ("wait", 0.3), ("watermark", 92), ("wait", 4)]
    assert run([*steps, ("watermark", 400), ("wait", 1)], tmp_path, before) == EXPECTED


class Slow:
    """Takes longer to pickle than Prism waits for a bundle's progress."""

    def __reduce__(self):
        time.sleep(0.25)
        return Slow, ()


def test_a_slow_bundle_loses_nothing(tmp_path, minilm):
    numbers = range(4)
    records = [{"text": f"text {number}", "slow": Slow()} for number in numbers]
    pipeline = beam.Pipeline(options=PipelineOptions(runner_flags("prism")))
    embed = EmbedDocuments("minilm", max_batch_seconds=1)
    _ = (
        (pipeline | beam.Create(records, reshuffle=False) | embed).embedded
        | beam.Map(lambda record: ("all", int(record["text"].split()[1])))
        | beam.GroupByKey()
        | beam.ParDo(Grouped(tmp_path / "all"))
    )
    assert pipeline.run().wait_until_finish(duration=PATIENCE * 1000) == "DONE"
    [[_, found]] = groups_of(tmp_path / "all")
    assert found == list(numbers)
