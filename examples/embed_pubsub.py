"""Embed the texts of a Pub/Sub subscription, on Dataflow.

Usage, from the clone's folder: python -m examples.embed_pubsub TEXTS VECTORS REJECTED [Beam's
options]
TEXTS is a subscription (projects/PROJECT/subscriptions/NAME) whose messages are texts in UTF-8
with the attribute `id`; VECTORS and REJECTED are topics (projects/PROJECT/topics/NAME), which get
a JSON object for each. Pub/Sub delivers a message at least once.
"""

import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed import EmbedDocuments


def record(message: PubsubMessage) -> dict[str, Any]:
    """What EmbedDocuments takes of a message."""
    try:
        text = message.data.decode()
    except UnicodeDecodeError:
        text = None  # which EmbedDocuments rejects; an error would come again and again
    return {"id": message.attributes.get("id"), "text": text}


def encoded(record: dict[str, Any]) -> bytes:
    """A record as a message."""
    return json.dumps(record).encode()


def main(texts: str, vectors: str, rejected: str, flags: list[str]) -> None:
    """Runs the pipeline until it is cancelled."""
    options = PipelineOptions(["--runner=DataflowRunner", "--streaming", *flags])
    with beam.Pipeline(options=options) as pipeline:
        messages = pipeline | beam.io.ReadFromPubSub(subscription=texts, with_attributes=True)
        records = messages | "Record" >> beam.Map(record)
        found = records | EmbedDocuments("minilm")
        for topic, results in zip((vectors, rejected), found, strict=True):
            sent = results | f"Encode {topic}" >> beam.Map(encoded)
            _ = sent | f"Write {topic}" >> beam.io.WriteToPubSub(topic)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} TEXTS VECTORS REJECTED [Beam's options]")
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
