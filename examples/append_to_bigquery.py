"""Append vectors to a BigQuery table by the Storage Write API: its rows can be queried at once.

Usage, from the clone's folder: python -m examples.append_to_bigquery IN TABLE [Beam's options]
IN is a file of JSON lines with the strings `id` and `text`; TABLE is PROJECT.DATASET.TABLE, which
must be there, with the columns `id STRING` and `embedding ARRAY<FLOAT64>`. A retried bundle writes
its rows again. In a stream, give BatchElements `max_batch_duration_secs`.
"""

import json
import sys
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from google.cloud import bigquery_storage_v1 as storage  # of the extra gcp
from google.cloud.bigquery_storage_v1.writer import AppendRowsStream

from bert_embed import EmbedDocuments

SCHEMA = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.float64()))])


class AppendRows(beam.DoFn):
    """Appends each batch of records, and waits for the service's answer."""

    def __init__(self, table: str) -> None:
        project, dataset, name = table.split(".")
        self._stream = f"projects/{project}/datasets/{dataset}/tables/{name}/streams/_default"

    def setup(self) -> None:
        """Opens the table's default stream."""
        schema = {"serialized_schema": SCHEMA.serialize().to_pybytes()}
        first = storage.types.AppendRowsRequest(
            write_stream=self._stream, arrow_rows={"writer_schema": schema}
        )
        self.stream = AppendRowsStream(storage.BigQueryWriteClient(), first)

    def process(self, records: list[dict[str, Any]]) -> None:
        """Appends records, or raises the error of the service."""
        rows = pa.RecordBatch.from_pylist(records, SCHEMA).serialize().to_pybytes()
        request = storage.types.AppendRowsRequest(
            write_stream=self._stream, arrow_rows={"rows": {"serialized_record_batch": rows}}
        )
        self.stream.send(request).result()

    def teardown(self) -> None:
        """Closes the stream."""
        if self.stream.is_active:
            self.stream.close()


def main(source: str, table: str, flags: list[str]) -> None:
    """Runs the pipeline, on Beam's own local runner unless the flags name another."""
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *flags])) as pipeline:
        records = pipeline | beam.io.ReadFromText(source) | "Record" >> beam.Map(json.loads)
        embedded, _rejected = records | EmbedDocuments("minilm")
        batches = embedded | beam.BatchElements(min_batch_size=1, max_batch_size=500)
        _ = batches | beam.ParDo(AppendRows(table))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} IN TABLE [Beam's options]")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
