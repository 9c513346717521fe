"""EmbedBlocks: rows of token ids in, vectors out, through Beam's RunInference."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler, RunInference

from bert.vector_spec import VectorSpec
from transforms.dead_letter import Rejected
from transforms.tokenization import TokenBlock
from transforms.vectors import EmbeddingBlock

if TYPE_CHECKING:
    from bert.encoder import EmbeddedRows, Encoder


class BertModelHandler(ModelHandler[TokenBlock, EmbeddingBlock, "Encoder"]):
    """Runs a bundle's encoder over TokenBlocks, a block a call; batches are cut inside.

    Args:
        bundle: Folder of the model bundle; opened on workers only.
        fingerprint: The model's; a bundle that has another one is refused.
        spec: What a vector is.
        batch_tokens: Most tokens of a batch, padding included.
        threads: Threads the model computes on; None for as many as the process may use.
    """

    def __init__(
        self,
        bundle: str,
        fingerprint: str,
        spec: VectorSpec,
        batch_tokens: int,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self._bundle, self.fingerprint, self._spec = bundle, fingerprint, spec
        self._batch_tokens, self._threads = batch_tokens, threads

    def load_model(self) -> "Encoder":
        from bert.bundle import read_bundle
        from bert.encoder import Encoder

        bundle = read_bundle(self._bundle)
        if bundle.fingerprint != self.fingerprint:
            raise ValueError(
                f"{self._bundle} holds another model than when the job started: fingerprint "
                f"{bundle.fingerprint}, expected {self.fingerprint}"
            )
        return Encoder(bundle, self._spec, threads=self._threads)

    def run_inference(
        self,
        batch: TokenBlock,  # a batch already, see should_skip_batching
        model: "Encoder",
        inference_args: dict[str, Any] | None = None,
    ) -> list[EmbeddingBlock]:
        """Embeds a block; a list of one, because RunInference counts the failures of lists only."""
        block, started = batch, time.perf_counter()
        rows = model.embed_rows(block.input_ids, block.row_splits, batch_tokens=self._batch_tokens)
        embedded = embedding_block(block, rows, started)
        Metrics.counter("infer", "documents").inc(len(embedded))
        Metrics.counter("infer", "tokens").inc(rows.tokens)
        Metrics.counter("infer", "padded_tokens").inc(rows.padded_tokens)
        return [embedded]

    def get_num_bytes(self, batch: TokenBlock) -> int:
        return batch.nbytes

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def should_skip_batching(self) -> bool:
        return True


@dataclass
class EmbedBlocks(beam.PTransform):
    """TokenBlocks to EmbeddingBlocks.

    Attributes:
        handler: Loads the model and runs it.
    """

    handler: BertModelHandler

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[EmbeddingBlock]:
        infer = RunInference(self.handler, model_identifier=self.handler.fingerprint)
        return blocks | "Infer" >> infer.with_output_types(EmbeddingBlock)


def embedding_block(block: TokenBlock, rows: "EmbeddedRows", started: float) -> EmbeddingBlock:
    """Gives every document its row's vector; documents of a row that failed are rejected."""
    failed = np.isin(block.row, list(rows.failed)) if rows.failed else np.zeros(len(block), bool)
    rejected = tuple(
        Rejected(
            block.ids[document].as_py(),
            block.sources[document].as_py(),
            "infer",
            rows.failed[int(block.row[document])],
        )
        for document in np.flatnonzero(failed)
    )
    kept = np.flatnonzero(~failed)
    in_place = not rejected and len(kept) == len(rows.vectors)  # each document its own row
    return EmbeddingBlock(
        part=block.part.then("infer", time.perf_counter() - started, rejected),
        ids=block.ids.take(pa.array(kept)) if rejected else block.ids,
        vectors=rows.vectors if in_place else rows.vectors[block.row[kept]],
        num_tokens=block.num_tokens[kept],
        truncated=block.truncated[kept],
        text_hash=block.text_hash[kept],
        computed_tokens=rows.tokens,
        padded_tokens=rows.padded_tokens,
        batches=rows.batches,
    )
