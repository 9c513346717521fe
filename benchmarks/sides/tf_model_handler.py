"""Beam's own way to run a TensorFlow encoder: TFModelHandlerTensor, rows padded to 128.

A line becomes a row of 128 ids in a DoFn, RunInference batches rows; text to Parquet. The encoder
is our bundle, a SavedModel with the interface of TF Hub's.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from apache_beam.ml.inference.base import KeyedModelHandler, PredictionResult, RunInference
from apache_beam.ml.inference.tensorflow_inference import TFModelHandlerTensor
from apache_beam.options.pipeline_options import PipelineOptions

from bert.resolve import resolve_model

_LENGTH = 128


class Tokenize(beam.DoFn):
    """A line to the line and int32 `[128]`, zeros behind its ids."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._vocabulary = list(vocabulary)

    def setup(self) -> None:
        import tensorflow_text as tft

        self._tokenizer = tft.FastBertTokenizer(self._vocabulary, lower_case_nfd_strip_accents=True)
        self._ends = self._vocabulary.index("[CLS]"), self._vocabulary.index("[SEP]")

    def process(self, line: str) -> Iterator[tuple[str, tf.Tensor]]:
        inner = self._tokenizer.tokenize([line]).merge_dims(1, -1).flat_values[: _LENGTH - 2]
        ids = tf.concat([[self._ends[0]], tf.cast(inner, tf.int32), [self._ends[1]]], 0)
        yield line, tf.pad(ids, [[0, _LENGTH - len(ids)]])


class SavedModelHandler(TFModelHandlerTensor):
    """The handler with a SavedModel, which Keras 3, that it would load it with, does not open."""

    def load_model(self) -> Any:
        return tf.saved_model.load(self._model_uri)


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch", type=int, default=32, help="rows")
    args = parser.parse_args()
    bundle = resolve_model("minilm")
    vocabulary = bundle.load_tokenizer().vocab
    size = {"min_batch_size": args.batch, "max_batch_size": args.batch}
    handler = SavedModelHandler(str(bundle.path), inference_fn=vectors, **size)
    schema = pa.schema({"id": pa.string(), "embedding": pa.list_(pa.float32())})
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromText(args.input)
            | "Tokenize" >> beam.ParDo(Tokenize(vocabulary))
            | "Infer" >> RunInference(KeyedModelHandler(handler))
            | "Row" >> beam.MapTuple(lambda line, made: {"id": line, "embedding": made.inference})
            | "Write" >> beam.io.WriteToParquet(args.output, schema)
        )


if __name__ == "__main__":
    main()
