"""Runs a transform on elements and hands back what came out, for tests of Beam transforms."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


def collect(
    folder: Path, elements: Sequence[Any], transform: beam.PTransform, *flags: str
) -> list[list[Any]]:
    """Gives the transform the elements, and returns its collections, each as a list."""
    options = PipelineOptions(["--runner=FnApiRunner", *flags])
    with beam.Pipeline(options=options) as pipeline:
        made = pipeline | beam.Create(list(elements), reshuffle=False) | transform
        collections = [made] if isinstance(made, beam.PCollection) else list(made)
        for number, collection in enumerate(collections):
            _ = (
                collection
                | f"List {number}" >> beam.combiners.ToList()
                | f"Keep {number}" >> beam.Map(_keep, str(folder / f"collection-{number}"))
            )
    return [
        pickle.loads((folder / f"collection-{number}").read_bytes())
        for number in range(len(collections))
    ]


def _keep(elements: list[Any], path: str) -> None:
    Path(path).write_bytes(pickle.dumps(elements))
