"""A stream through EmbedDocuments loses nothing in the windows behind it, and ends."""

import json
import time

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from bert_embed.transforms import EmbedDocuments
from tests.support.command import runner_flags

pytestmark = pytest.mark.slow

PATIENCE = 120  # seconds
WINDOWS = {"fixed": FixedWindows(60), "sliding": SlidingWindows(60, 30), "sessions": Sessions(25)}
TEXTS = (10, 31, 40, 100)  # each is a text at this second
EXPECTED = {
    "fixed": {0: [10, 31, 40], 60: [100]},
    "sliding": {-30: [10], 0: [10, 31, 40], 30: [31, 40], 60: [100], 90: [100]},
    "sessions": {10: [10, 31, 40], 100: [100]},
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


class Grouped(beam.DoFn):
    """Writes the texts of a window once it is closed."""

    def __init__(self, path):
        self._path = str(path)

    def process(self, element, window=beam.DoFn.WindowParam):
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([int(window.start), sorted(element[1])]) + "\n")


def run(steps, tmp_path, before):
    """Runs a stream; returns the seconds of the texts by the start of their window, by its kind.

    Args:
        before: Whether windows are there already when texts are embedded.
    """
    options = PipelineOptions([*runner_flags("prism"), "--streaming"])
    pipeline = beam.Pipeline(options=options)
    stream = pipeline | beam.Create([steps]) | beam.ParDo(Stream()).with_output_types(str)
    embed = EmbedDocuments("minilm", max_batch_seconds=2)
    embedded = None if before else (stream | embed).embedded
    for name, windows in WINDOWS.items():
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
    found = {}
    for name in WINDOWS:
        path = tmp_path / name
        lines = map(json.loads, path.read_text("utf-8").splitlines() if path.exists() else [])
        found[name] = dict(lines)
    return found


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
    (line,) = (tmp_path / "all").read_text("utf-8").splitlines()
    assert json.loads(line)[1] == list(numbers)
