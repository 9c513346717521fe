#!/usr/bin/env bash
# Apache Beam 2.77.0, Python: `RunInference(...).with_exception_handling()`.
#
# One would guess that the failed inferences are the elements that the model could not compute, as of other
# transforms with that method.
#
# Seen: they are whole batches: of a batch of five in which one is bad, five fail, as one element of the output.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions


class Model:
    def square(self, number):
        if number == 3:
            raise ValueError("three")
        return number * number


class Handler(ModelHandler):
    def load_model(self):
        return Model()

    def run_inference(self, batch, model, inference_args=None):
        return [(number, model.square(number)) for number in batch]

    def batch_elements_kwargs(self):
        return {"min_batch_size": 5, "max_batch_size": 5}


def keep(name):
    return beam.Map(lambda element: print(name, element, file=open("seen", "a")))


with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
    good, rest = (
        pipeline
        | beam.Create([range(10)])
        | beam.FlatMap(list)
        | RunInference(Handler()).with_exception_handling()
    )
    _ = good | "good" >> keep("good")
    _ = rest.failed_inferences | beam.Map(lambda failed: failed[0]) | "bad" >> keep("bad")
seen = sorted(open("seen").read().splitlines())
expected = ["bad [0, 1, 2, 3, 4]", *(f"good ({number}, {number * number})" for number in range(5, 10))]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
