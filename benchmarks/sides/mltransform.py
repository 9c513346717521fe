"""Beam's own way to vectors: MLTransform with SentenceTransformerEmbeddings, text to Parquet."""

import argparse
import tempfile

import apache_beam as beam
import pyarrow as pa
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.ml.transforms.embeddings.huggingface import SentenceTransformerEmbeddings
from apache_beam.options.pipeline_options import PipelineOptions


def main() -> None:
    """Embeds the lines of a file; rows of the output hold the line as `id`, and `embedding`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, help="texts; default: what Beam finds by itself")
    args = parser.parse_args()
    schema = pa.schema({"id": pa.string(), "text": pa.list_(pa.float32())})
    embeddings = SentenceTransformerEmbeddings(
        model_name=args.model,
        columns=["text"],
        min_batch_size=args.batch,
        max_batch_size=args.batch,
    )
    with (
        tempfile.TemporaryDirectory() as artifacts,
        beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline,
    ):
        transform = MLTransform(write_artifact_location=artifacts).with_transform(embeddings)
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromText(args.input)
            | "Name" >> beam.Map(lambda line: {"id": line, "text": line})
            | "Embed" >> transform
            | "Row" >> beam.Map(lambda row: row if isinstance(row, dict) else row._asdict())
            | "Write" >> beam.io.WriteToParquet(args.output, schema)
        )


if __name__ == "__main__":
    main()
