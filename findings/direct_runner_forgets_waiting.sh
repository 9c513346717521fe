#!/usr/bin/env bash
# Apache Beam 2.77.0, Python: DirectRunner, the default, loses elements that wait for a processing-time timer.
#
# One would guess: a DoFn that keeps elements in state and gives them when a processing-time timer fires gives all of
# them, and a GroupByKey behind it groups all, as FnApiRunner does and as Beam's programming guide describes.
# Seen: DirectRunner ends DONE with exit code 0, although the timer has not fired: of 8 elements none comes.
# Why: such a pipeline is given to BundleBasedDirectRunner, whose timers hold no watermark (a note in
# apache_beam/runners/direct/direct_userstate.py, `commit`), so that it takes the pipeline for finished.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0
cat >"$folder/wait.py" <<'PROGRAM'
import sys

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp


class Wait(beam.DoFn):
    HELD = BagStateSpec("held", StrUtf8Coder())
    WAITED = TimerSpec("waited", TimeDomain.REAL_TIME)

    def process(
        self,
        element,
        held=beam.DoFn.StateParam(HELD),
        waited=beam.DoFn.TimerParam(WAITED),
    ):
        held.add(element[1])
        waited.set(Timestamp.now() + 0.2)

    @on_timer(WAITED)
    def on_waited(self, held=beam.DoFn.StateParam(HELD)):
        texts = list(held.read())
        held.clear()
        yield from (("key", text) for text in texts)


with beam.Pipeline(options=PipelineOptions([f"--runner={sys.argv[1]}"])) as pipeline:
    _ = (
        pipeline
        | beam.Create([("key", text) for text in "abcdefgh"])
        | beam.Map(lambda pair: TimestampedValue(pair, 5)).with_output_types(tuple[str, str])
        | beam.WindowInto(FixedWindows(10))
        | beam.ParDo(Wait()).with_output_types(tuple[str, str])
        | beam.GroupByKey()
        | beam.MapTuple(lambda key, texts: print("group", len(list(texts)), flush=True))
    )
print("DONE")
PROGRAM
changed=0
for runner in FnApiRunner DirectRunner; do
  said="$("$folder/venv/bin/python" "$folder/wait.py" "$runner" 2>"$folder/log" | tr '\n' ' ')" ||
    said="failed: $(tail -n 1 "$folder/log")"
  echo "$runner: $said"
  [[ "$said" == "$([[ "$runner" == FnApiRunner ]] && echo "group 8 ")DONE " ]] || changed=1
done
exit "$changed"
