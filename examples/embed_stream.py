"""Embeds the lines of text files as the files appear in a folder: a Beam pipeline that streams.

Usage, from the clone's folder:
  python -m examples.embed_stream 'IN/*.txt' OUT SECONDS --prism_location build/prism
It looks for new files every second and stops after SECONDS; without that limit a stream goes on
until it is cancelled. OUT gets a file of JSON lines for each batch: `text` and `embedding`, or
`stage` and `reason` for a line that has no vector. Any other runner that streams can be named by
--runner; with Pub/Sub, `beam.io.ReadFromPubSub` takes the place of the first four steps.
"""

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed import EmbedDocuments

_LOOK = 1.0  # seconds between two looks into the folder


def main(pattern: str, out: str, seconds: float, flags: list[str]) -> None:
    """Streams until the time is over, on Prism unless the flags name another runner."""
    Path(out).mkdir(parents=True, exist_ok=True)
    options = PipelineOptions(["--runner=PrismRunner", "--streaming", *flags])
    with beam.Pipeline(options=options) as pipeline:
        files = pipeline | "Look" >> fileio.MatchContinuously(
            pattern, interval=_LOOK, stop_timestamp=time.time() + seconds
        )
        spread = files | "Spread" >> beam.Reshuffle()  # from the step that looks to all workers
        lines = spread | "Open" >> fileio.ReadMatches() | "Lines" >> beam.FlatMap(lines_of)
        embedded, rejected = lines | "Embed" >> EmbedDocuments("minilm")
        _ = (embedded, rejected) | beam.Flatten() | "Write" >> beam.ParDo(WriteBundles(out))


def lines_of(file: fileio.ReadableFile) -> list[str]:
    """The lines of a file that was found."""
    return file.read_utf8().splitlines()


class WriteBundles(beam.DoFn):
    """Writes what comes together into one file; a retried bundle may write its records again."""

    def __init__(self, out: str) -> None:
        self._out = Path(out)

    def start_bundle(self) -> None:
        self._lines: list[str] = []

    def process(self, record: dict[str, Any]) -> None:
        self._lines.append(json.dumps(record))

    def finish_bundle(self) -> None:
        if self._lines:
            path = self._out / f"{uuid.uuid4().hex}.jsonl"
            path.write_text("\n".join([*self._lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PATTERN OUT SECONDS [Beam's options]")
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:])
