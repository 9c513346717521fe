"""Runs a transform on elements and hands back what came out, for tests of Beam transforms."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor


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


def inference_handlers(elements: Sequence[Any], transform: beam.PTransform) -> list[ModelHandler]:
    """The handlers that every RunInference within a transform holds, as Beam would run them."""
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    _ = pipeline | beam.Create(list(elements)) | transform
    visitor = _Handlers()
    pipeline.visit(visitor)
    return visitor.found


class _Handlers(PipelineVisitor):
    def __init__(self) -> None:
        self.found: list[ModelHandler] = []

    def enter_composite_transform(self, node: AppliedPTransform) -> None:
        if isinstance(node.transform, RunInference):
            self.found.append(vars(node.transform)["_model_handler"])
