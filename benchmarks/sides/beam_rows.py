"""Beam's own way to run a TensorFlow encoder, ReadFromText to WriteToParquet, row by row.

A line becomes a row of 128 ids, and TFModelHandlerTensor runs our model as a SavedModel with the
interface of TF Hub's.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
from apache_beam.ml.inference.base import KeyedModelHandler, PredictionResult, RunInference
from apache_beam.ml.inference.tensorflow_inference import TFModelHandlerTensor
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed.backends.tensorflow.model import TensorFlowModule, save
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.text.tokenizer import load_tokenizer

_LENGTH = 128


class Tokenize(beam.DoFn):
    """Batches of texts to (text, ids) with tensorflow-text's fast tokenizer."""

    def __init__(self, bundle: Bundle) -> None:
        self._vocabulary, self._most = load_tokenizer(bundle).vocab, bundle.max_seq_length

    def setup(self) -> None:
        import tensorflow_text as tft

        words = list(self._vocabulary)
        self._tokenizer = tft.FastBertTokenizer(words, lower_case_nfd_strip_accents=True)
        self._ends = words.index("[CLS]"), words.index("[SEP]")

    def process(self, texts: list[str]) -> Iterator[tuple[str, np.ndarray]]:
        ragged = self._tokenizer.tokenize(texts).merge_dims(1, -1)
        ids, splits = ragged.flat_values.numpy(), ragged.row_splits.numpy()
        first, last = self._ends
        for row, text in enumerate(texts):
            inner = ids[splits[row] : splits[row + 1]][: self._most - 2]
            yield text, np.concatenate(([first], inner, [last]))


def padded_row(row: tuple[str, np.ndarray]) -> tuple[str, tf.Tensor]:
    """A row to int32 `[128]`, zeros behind its ids."""
    text, ids = row
    inner = np.append(ids[: _LENGTH - 1], ids[-1]) if len(ids) > _LENGTH else ids
    return text, tf.constant(np.pad(inner, (0, _LENGTH - len(inner))), tf.int32)


class SavedModelHandler(TFModelHandlerTensor):
    """The handler with a SavedModel, which Keras 3, that it would load it with, does not open."""

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.path = path

    def load_model(self) -> Any:
        return tf.saved_model.load(self.path)


def vectors(
    model: Any, batch: Sequence[tf.Tensor], arguments: dict[str, Any], name: str | None = None
) -> list[PredictionResult]:
    """Gives a batch to an encoder of TF Hub's interface and pools what it says of the tokens."""
    ids = tf.stack(batch)
    mask = tf.cast(ids != 0, tf.int32)
    named = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    made = mean(model(named, **arguments)["sequence_output"], mask).numpy()
    return [PredictionResult(row, vector) for row, vector in zip(batch, made, strict=True)]


@tf.function
def mean(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the means over the tokens at unit length, float32 `[batch, hidden]`."""
    weight = tf.cast(mask, tf.float32)[:, None, :]
    return tf.math.l2_normalize((weight @ hidden)[:, 0] / tf.reduce_sum(weight, -1), -1)


def main() -> None:
    """Embeds the lines of a file; rows of the output hold the line as `id`, and `embedding`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch", type=int, default=32, help="rows")
    args = parser.parse_args()
    bundle = resolve_model("minilm")
    schema = pa.schema({"id": pa.string(), "embedding": pa.list_(pa.float32())})
    size = {"min_batch_size": args.batch, "max_batch_size": args.batch}
    saved_model = tempfile.mkdtemp(prefix="saved_model-")
    save(TensorFlowModule(bundle), saved_model)
    handler = SavedModelHandler(saved_model, inference_fn=vectors, **size)
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromText(args.input)
            | "Batch" >> beam.Map(lambda line: [line])
            | "Tokenize" >> beam.ParDo(Tokenize(bundle))
            | "Pad" >> beam.Map(padded_row)
            | "Infer" >> RunInference(KeyedModelHandler(handler))
            | "Pair" >> beam.MapTuple(lambda line, result: (line, result.inference))
            | "Row" >> beam.MapTuple(lambda line, vector: {"id": line, "embedding": vector})
            | "Write" >> beam.io.WriteToParquet(args.output, schema, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main()
