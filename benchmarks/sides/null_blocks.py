"""Our pipeline with a model that costs nothing: all runs but the graph of the encoder."""

import argparse
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.null_model import noise
from pipeline import run_record
from pipeline.embed_job import build
from pipeline.embed_run import prepare
from pipeline.options import EmbedOptions
from transforms.inference import BertModelHandler

if TYPE_CHECKING:
    from bert.encoder import Encoder


# As on accelerators, the models for which this side of the work counts; with these sentences it is
# about as many rows as a batch of the rows' way has.
BATCH_TOKENS = 16384


class NullHandler(BertModelHandler):
    """Loads the encoder and puts noise in the place of its graph.

    The graph is all that is left out: batches are planned, padded and scattered back by the
    encoder as always.
    """

    def load_model(self) -> "Encoder":
        encoder = super().load_model()
        width = encoder.spec.width(encoder.bundle.config)
        graph = _null_graph(width)
        encoder._runner._graph = lambda *key: graph  # type: ignore[method-assign]
        return encoder


def _null_graph(width: int) -> Any:
    vectors = noise(BATCH_TOKENS, width)

    def graph(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> Any:
        return {"sentences": vectors[: len(ids)]}

    graph.widths = {"sentences": width}  # type: ignore[attr-defined]
    return graph


def main() -> None:
    """Runs `embed` over text files with the null model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--block_bytes", type=int)
    parser.add_argument("--dim", type=int)
    args = parser.parse_args()
    embed(
        EmbedOptions(
            input=(args.input,),
            output=args.output,
            block_bytes=args.block_bytes,
            dim=args.dim,
            batch_tokens=BATCH_TOKENS,
            overwrite=True,
        )
    )


def embed(options: EmbedOptions) -> None:
    """Runs the job that the options ask for with the null model."""
    run = prepare(options)
    record = run_record.start(run)
    handler = NullHandler(
        run.bundle.path,
        run.bundle.fingerprint,
        run.spec,
        run.text_spec,
        options.batch_tokens,
        options.threads,
    )
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        build(pipeline, run, record, handler)


if __name__ == "__main__":
    main()
