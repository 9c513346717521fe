#!/usr/bin/env bash
# Apache Beam 2.77.0, Python: what it takes to build a pipeline.
#
# One would guess that the options of a pipeline are parsed once, so that a step more costs what a step is.
#
# Seen: with each typed Map some twelve parsers of command lines are made, each with all options of one kind: 151 for ten
# steps, 1,351 for 110, more than half of the time in which the pipeline is built.
#
# Why: `is_consistent_with` of apache_beam/typehints asks the options of the pipeline, for each pair of type hints, whether
# beartype is switched off, and `PipelineOptions.view_as` parses anew whenever it is called.
#
# For users with many short jobs or tests: few steps with more in each; `--no_pipeline_type_check` is no way out, as the types
# of elements, and with them coders, are then not inferred.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import argparse
import cProfile
import pstats
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

made = 0


class Counted(argparse.ArgumentParser):
    def __init__(self, *args, **settings):
        global made
        made += 1
        super().__init__(*args, **settings)


def build(steps):
    """Builds a pipeline of so many steps."""
    texts = beam.Pipeline() | beam.Create(["a"])
    for step in range(steps):
        typed = beam.Map(str.upper).with_input_types(str).with_output_types(str)
        texts = texts | str(step) >> typed


build(1)
whole = cProfile.Profile()
whole.runcall(build, 60)
stats = pstats.Stats(whole).stats
view = PipelineOptions.view_as.__code__
views = stats[view.co_filename, view.co_firstlineno, "view_as"][3]
share = views / sum(own for _, _, own, _, _ in stats.values())

# Beam's own options make their parsers through the module's name.
sys.modules["apache_beam.options.pipeline_options"]._BeamArgumentParser.__bases__ = (Counted,)
counts = []
for steps in (10, 110):
    made = 0
    build(steps)
    counts.append(made)
print(f"parsers: {counts[0]} for 10 steps, {counts[1]} for 110; {share:.0%} of the time")
sys.exit(not (counts[1] - counts[0] >= 1000 and share > 0.25))
PROGRAM
