"""Embed the lines of text files in a Beam pipeline of one's own.

Usage, from the clone's folder: python -m examples.embed_documents IN OUT [Beam's options]
IN is a file or a glob. OUT-00000-of-00001.jsonl gets a record of `text` and `embedding` for each
line, and OUT.rejected-00000-of-00001.jsonl the lines that have no vector, with the reason.
"""

import json
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed import EmbedDocuments


def main(source: str, out: str, flags: list[str]) -> None:
    """Runs the pipeline, on Beam's own local runner unless the flags name another."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *flags])) as pipeline:
        lines = pipeline | "Read" >> beam.io.ReadFromText(source)
        embedded, rejected = lines | "Embed" >> EmbedDocuments(model="minilm")
        for records, prefix in ((embedded, out), (rejected, f"{out}.rejected")):
            name = prefix.rpartition("/")[2]
            _ = (
                records
                | f"Lines of {name}" >> beam.Map(json.dumps)
                | f"Write {name}" >> beam.io.WriteToText(prefix, ".jsonl")
            )


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} IN OUT [Beam's options]")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
