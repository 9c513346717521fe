"""The row-wise Beam way with a model that costs nothing: ReadFromText to WriteToParquet."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.null_model import noise
from bert.resolve import resolve_model

_BATCH = 1024  # rows; fixed, so that nothing is spent on finding a good size


class Tokenize(beam.DoFn):
    """Batches of texts to (text, ids) with tensorflow-text's fast tokenizer."""

    def __init__(self, vocabulary: Sequence[str], most: int) -> None:
        self._vocabulary, self._most = list(vocabulary), most

    def setup(self) -> None:
        import tensorflow_text as tft

        self._tokenizer = tft.FastBertTokenizer(self._vocabulary, lower_case_nfd_strip_accents=True)
        self._ends = self._vocabulary.index("[CLS]"), self._vocabulary.index("[SEP]")

    def process(self, texts: list[str]) -> Iterator[tuple[str, np.ndarray]]:
        ragged = self._tokenizer.tokenize(texts).merge_dims(1, -1)
        ids, splits = ragged.flat_values.numpy(), ragged.row_splits.numpy()
        first, last = self._ends
        for row, text in enumerate(texts):
            inner = ids[splits[row] : splits[row + 1]][: self._most - 2]
            yield text, np.concatenate(([first], inner, [last]))


class NullModel(ModelHandler[tuple[str, np.ndarray], PredictionResult, np.ndarray]):
    """Gives rows the vectors of `noise`; they are padded to a batch as a model would need it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def load_model(self) -> np.ndarray:
        return noise(_BATCH, self._width)

    def run_inference(
        self,
        batch: Sequence[tuple[str, np.ndarray]],
        model: np.ndarray,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        padded = np.zeros((len(batch), max(len(ids) for _, ids in batch)), np.int32)
        for row, (_, ids) in enumerate(batch):
            padded[row, : len(ids)] = ids
        return [
            PredictionResult(text, vector)
            for (text, _), vector in zip(batch, model[: len(padded)], strict=True)
        ]

    def batch_elements_kwargs(self) -> dict[str, int]:
        return {"min_batch_size": _BATCH, "max_batch_size": _BATCH}


def main() -> None:
    """Runs the pipeline over a text file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    bundle = resolve_model("minilm")
    vocabulary = bundle.load_tokenizer().vocab
    schema = pa.schema({"id": pa.string(), "embedding": pa.list_(pa.float32())})
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromText(args.input)
            | "Batch" >> beam.BatchElements(min_batch_size=_BATCH, max_batch_size=_BATCH)
            | "Tokenize" >> beam.ParDo(Tokenize(vocabulary, bundle.max_seq_length))
            | "Infer" >> RunInference(NullModel(bundle.config.hidden_size))
            | "Row" >> beam.Map(lambda each: {"id": each.example, "embedding": each.inference})
            | "Write" >> beam.io.WriteToParquet(args.output, schema, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main()
