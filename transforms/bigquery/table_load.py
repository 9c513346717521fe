"""Defines TableLoad and KindLoad: what of a run is loaded into which tables, and how."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bert_embed.formats.output_files import BEAM_RAG, KINDS
from bert_embed.run_record import RunTables
from bert_embed.transforms.bigquery.client import PATIENCE, TableName
from bert_embed.transforms.bigquery.schema import RAG_SCHEMA, vector_schema

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

DISPOSITIONS = {"append": "WRITE_APPEND", "truncate": "WRITE_TRUNCATE", "fail": "WRITE_EMPTY"}


@dataclass(frozen=True)
class TableLoad:
    """What is loaded, and where to.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run; the jobs' names follow from it.
        table: Where the vectors go.
        disposition: One of `DISPOSITIONS`.
        project: Runs the jobs.
        most_uris: Files of a job.
        granularities: The kinds of vectors of the run.
        pieces: `window` or `chunk`, where these have vectors of their own; else None.
        texts: Whether the texts are kept.
        vectors: What the vectors are, as in the table's description.
    """

    output: str
    run: str
    table: TableName
    disposition: str
    project: str
    most_uris: int
    granularities: tuple[str, ...] = ("sentence",)
    pieces: str | None = None
    texts: bool = False
    vectors: Mapping[str, Any] = field(default_factory=dict)

    def table_of(self, granularity: str) -> TableName:
        """The table for one kind of vectors.

        The only kind and the vectors of whole texts go to the table itself, any other kind to
        another table, such as `news_tokens`.
        """
        if granularity == "sentence" or len(self.granularities) == 1:
            return self.table
        return replace(self.table, table=f"{self.table.table}_{KINDS[granularity]}")

    @property
    def is_rag(self) -> bool:
        """Whether the rows have the columns of Beam's RAG package."""
        return self.vectors.get("table_schema") == BEAM_RAG

    @property
    def requested(self) -> RunTables:
        """What is loaded, for the run's record."""
        tables = {kind: self.table_of(kind).destination for kind in self.granularities}
        return RunTables(tables, self.disposition)


@dataclass(frozen=True)
class KindLoad:
    """One kind of vectors of a load, which has a table of its own.

    Attributes:
        client: Of the project that runs the jobs.
        load: What is loaded.
        kind: Which of its kinds of vectors.
        files: Names of the files of that kind.
    """

    client: "Client"
    load: TableLoad
    kind: str
    files: Sequence[str]

    @property
    def name(self) -> TableName:
        """The table."""
        return self.load.table_of(self.kind)

    @property
    def columns(self) -> pa.Schema:
        """The columns of a file, without extra columns."""
        if self.load.is_rag:
            return RAG_SCHEMA
        return vector_schema(self.kind, self.load.pieces, self.load.texts)

    @property
    def job_name(self) -> str:
        """The same for the same vectors into the same table in the same way."""
        target = f"{self.name.destination} {self.load.disposition}"
        return f"bert_embed_{self.load.run}_{hashlib.sha256(target.encode()).hexdigest()[:12]}"

    @cached_property
    def location(self) -> str:
        """Where the table is stored, and so where its jobs must run."""
        dataset = self.client.get_dataset(
            f"{self.name.project}.{self.name.dataset}", timeout=PATIENCE
        )
        return str(dataset.location)
