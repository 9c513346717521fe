"""Our pipeline with a model that costs nothing, or that sleeps, on one or more worker processes."""

import argparse
import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np

from bert_embed.backends.choose import load_engine
from bert_embed.backends.protocol import Engine, PaddedRows, Shape
from bert_embed.bundle.bundle import Bundle
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import build
from bert_embed.pipeline.run.prepare import prepare
from bert_embed.pipeline.runners.beam import pipeline_options
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.transforms.blocks import EmbeddingBlock, TokenBlock
from bert_embed.transforms.infer import BlockModelHandler

if TYPE_CHECKING:
    from bert_embed.model import Embedder

NAME = "work.jsonl"  # in the output folder: a line for each block, with `--notes`
_MOST_ROWS = 1 << 14  # of a batch


class NullEngine:
    """The real engine with its model in memory, whose graphs are left out.

    Batches are planned, padded and scattered back as always.
    """

    def __init__(self, engine: Engine, bundle: Bundle) -> None:
        self.at_once, self.device = engine.at_once, engine.device
        self.batching, self.modules = engine.batching, engine.modules
        self._config = bundle.config

    def graph(self, spec: VectorSpec, wanted: OutputSpec, prompt_tokens: int) -> "NullGraph":
        return NullGraph(spec.pooled_width(self._config))


class NullGraph:
    """Gives noise."""

    def __init__(self, width: int) -> None:
        # No zeros, which Parquet packs to nothing, where real vectors take all their bytes.
        self._vectors = np.random.default_rng(0).standard_normal((_MOST_ROWS, width), np.float32)

    def __call__(self, rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
        return {"sentences": self._vectors[: len(rows.mask)]}


def load_null(bundle: Bundle, *rest: Any) -> NullEngine:
    """Loads the model as always, and gives the engine that does without it."""
    return NullEngine(load_engine(bundle, *rest), bundle)


class NotingHandler(BlockModelHandler):
    """Notes which process ran the model on a block, and from when to when.

    Each block may take the time that a model of a certain speed would take, asleep.
    """

    def __init__(self, notes: str, speed: float | None, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **named)
        self.notes, self.tokens_a_second = notes, speed

    def run_inference(
        self, batch: TokenBlock, model: "Embedder", inference_args: dict[str, Any] | None = None
    ) -> list[EmbeddingBlock]:
        start, spent = time.time(), time.process_time()
        made = super().run_inference(batch, model, inference_args)
        tokens = int(batch.layout.num_tokens.sum())
        if self.tokens_a_second is not None:
            time.sleep(tokens / self.tokens_a_second)
        note = {"process": os.getpid(), "start": start, "stop": time.time()}
        note |= {"cpu": time.process_time() - spent, "block": batch.part.block, "tokens": tokens}
        with open(self.notes, "ab", buffering=0) as file:
            file.write(json.dumps(note).encode() + b"\n")
        return made


def main() -> None:
    """Runs `embed` over a file or folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--block_bytes", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--output_dtype", default="float32")
    parser.add_argument("--workers", type=int, help="processes of one thread; default: this one")
    parser.add_argument("--tokens_a_second", type=float, help="of a model that sleeps")
    parser.add_argument("--real", action="store_true", help="the real model")
    parser.add_argument("--notes", action="store_true", help="of each worker, and sleep")
    args = parser.parse_args()
    flags = []
    if args.workers:
        flags.append("--direct_running_mode=multi_processing")
        flags.append(f"--direct_num_workers={args.workers}")
    options = Options(
        input=(args.input,),
        output=args.output,
        model=args.model,
        block_bytes=args.block_bytes,
        dim=args.dim,
        output_dtype=args.output_dtype,
        threads=1 if args.workers else None,
        overwrite=True,
        beam_args=tuple(flags),
    )
    run = prepare(options)
    make = BlockModelHandler
    if args.notes:
        make = partial(NotingHandler, str(Path(run.output) / NAME), args.tokens_a_second)
    handler = make(
        run.work.bundle.path,
        run.work.bundle.fingerprint,
        run.work.vector_spec,
        run.work.text_spec,
        options.batch_tokens,
        options.threads,
        load_engine=None if args.real else load_null,
    )
    with state.claimed(run) as record:
        work = partial(build, run=run, record=record, handler=handler)
        with beam.Pipeline(options=pipeline_options(options.job, flags)) as pipeline:
            work(pipeline)


if __name__ == "__main__":
    main()
