"""Our pipeline with a model that sleeps, on worker processes: what each of them did, and when."""

import argparse
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.null_model import noise
from pipeline import run_record
from pipeline.embed_job import build
from pipeline.embed_run import prepare
from pipeline.local_runners import run_pipeline
from pipeline.options import EmbedOptions
from transforms.inference import BertModelHandler, embedding_block
from transforms.tokenization import TokenBlock
from transforms.vectors import EmbeddingBlock

if TYPE_CHECKING:
    from bert.encoder import Encoder

NAME = "work.jsonl"  # in the output folder: a line a block


class WatchedHandler(BertModelHandler):
    """Runs the model and notes which process did so, from when to when.

    Args:
        notes: File that gets a line for each block.
        tokens_a_second: How fast a model to play that sleeps; None for the real one.
    """

    def __init__(self, notes: str, tokens_a_second: float | None, *args: Any) -> None:
        super().__init__(*args)
        self._notes, self._speed = notes, tokens_a_second

    def run_inference(
        self, batch: TokenBlock, model: "Encoder", inference_args: dict[str, Any] | None = None
    ) -> list[EmbeddingBlock]:
        start, spent = time.time(), time.process_time()
        if self._speed is None:
            made = super().run_inference(batch, model, inference_args)
        else:
            made = [_slept(batch, model, self._speed)]
        note = {"process": os.getpid(), "start": start, "stop": time.time()}
        note |= {"cpu": time.process_time() - spent, "block": batch.part.block}
        note |= {"tokens": int(batch.layout.num_tokens.sum())}
        with open(self._notes, "ab", buffering=0) as file:
            file.write(json.dumps(note).encode() + b"\n")
        return made


def _slept(block: TokenBlock, model: "Encoder", speed: float) -> EmbeddingBlock:
    """Noise for vectors, in the time that such a model would take."""
    from bert.document_vectors import GranularVectors
    from bert.row_runner import EmbeddedRows

    started = time.perf_counter()
    tokens = int(block.layout.num_tokens.sum())
    time.sleep(tokens / speed)
    width = model.spec.width(model.bundle.config)
    vectors = GranularVectors(noise(len(block), width))
    rows = EmbeddedRows(vectors.sentences, tokens=tokens, padded_tokens=tokens, batches=1)
    return embedding_block(block, rows, vectors, model.tokenizer, started)


def main() -> None:
    """Runs `embed` over a file or folder on so many worker processes of one thread."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--block_bytes", type=int)
    parser.add_argument("--tokens_a_second", type=float)
    args = parser.parse_args()
    flags = ["--runner=FnApiRunner", "--direct_running_mode=multi_processing"]
    flags.append(f"--direct_num_workers={args.workers}")
    options = EmbedOptions(
        input=(args.input,),
        output=args.output,
        model=args.model,
        block_bytes=args.block_bytes,
        threads=1,
        beam_args=tuple(flags),
    )
    run = prepare(options)
    record = run_record.start(run)
    handler = WatchedHandler(
        str(Path(run.output) / NAME),
        args.tokens_a_second,
        run.bundle.path,
        run.bundle.fingerprint,
        run.spec,
        run.text_spec,
        options.batch_tokens,
        options.threads,
    )
    run_pipeline(PipelineOptions(flags), partial(build, run=run, record=record, handler=handler))


if __name__ == "__main__":
    main()
