"""Defines TableLoad; checks, creates and describes the tables that take its vectors."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bert_embed.fingerprints import difference
from bert_embed.formats.kinds import KINDS
from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.run_record import RunTables
from bert_embed.specs import KIND_OF
from bert_embed.storage.errors import InputError
from bert_embed.storage.plurals import counted
from bert_embed.transforms.bigquery.client import (
    PARTITION_TYPES,
    PATIENCE,
    TableName,
    get_table,
    last_done,
    named_jobs,
    translate_errors,
)
from bert_embed.transforms.bigquery.earlier_table import described_settings
from bert_embed.transforms.bigquery.schema import (
    Field,
    mismatch,
    table_schema,
    vector_schema,
)

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table


@dataclass(frozen=True)
class TableLoad:
    """What is loaded, and where to; the jobs' names follow from the fingerprint `run`."""

    output: str
    run: str
    table: TableName
    disposition: str  # `append`, `truncate` or `fail`
    project: str  # runs the jobs
    most_uris: int  # most files of a job
    kinds: tuple[str, ...] = ("sentence",)
    pieces: str | None = None  # `window` or `chunk`, where these have vectors of their own
    texts: bool = False
    vectors: Mapping[str, Any] = field(default_factory=dict)  # what they are, as in the description
    again: bool = False  # repeat a recorded load if the table has changed since

    def table_of(self, kind: str) -> TableName:
        """The table itself for whole texts or the only kind, else another as `news_tokens`."""
        if kind == "sentence" or len(self.kinds) == 1:
            return self.table
        return replace(self.table, table=f"{self.table.table}_{KINDS[kind].folder}")

    @property
    def requested(self) -> RunTables:
        """What is loaded, for the run's record."""
        tables = {kind: self.table_of(kind).destination for kind in self.kinds}
        return RunTables(tables, self.disposition)


@dataclass(frozen=True)
class KindTable:
    """The table of one kind of vectors of a load; `client` belongs to the project of its jobs."""

    client: "Client"
    load: TableLoad
    kind: str

    @property
    def name(self) -> TableName:
        """The table's name, with the partition."""
        return self.load.table_of(self.kind)

    @property
    def columns(self) -> pa.Schema:
        """The columns of a file, without extra columns."""
        return vector_schema(self.kind, self.load.pieces, self.load.texts, self.load.vectors)

    @property
    def job_name(self) -> str:
        """The same for the same vectors into the same table in the same way."""
        target = f"{self.name.destination} {self.load.disposition}"
        return f"bert_embed_{self.load.run}_{hashlib.sha256(target.encode()).hexdigest()[:12]}"

    @cached_property
    def location(self) -> str:
        """Where the table is stored, and so where its jobs must run."""
        dataset = f"{self.name.project}.{self.name.dataset}"
        return str(self.client.get_dataset(dataset, timeout=PATIENCE).location)

    def rows(self, whole: bool = False) -> int:
        """Rows of the partition, or of the whole table; counted anew, as metadata are late."""
        from google.cloud.bigquery import SchemaField, TableReference

        name = replace(self.name, partition="") if whole else self.name
        rows = self.client.list_rows(
            TableReference.from_string(name.destination),
            selected_fields=[SchemaField("id", "STRING")],
            max_results=1,
            timeout=PATIENCE,
        )
        next(iter(rows), None)
        return int(rows.total_rows or 0)

    def staying_rows(self) -> int:
        """How many rows of the whole table stay there when a run is loaded."""
        if self.load.disposition != "truncate":
            return self.rows(whole=True)
        return self.rows(whole=True) - self.rows() if self.name.partition else 0

    def ensure(self, fields: Sequence[Field]) -> "Table":
        """The table, created if it does not exist; InputError if it cannot hold the fields."""
        from google.cloud import bigquery

        table = get_table(self.client, self.name)
        if table is None:
            schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
            created = bigquery.Table(self.name.path, schema=schema)
            created.description = self._description
            if self.name.partition:
                partitions = PARTITION_TYPES[len(self.name.partition)]
                created.time_partitioning = bigquery.TimePartitioning(type_=partitions)
            self.client.create_table(created, exists_ok=True, timeout=PATIENCE)
            table = self.client.get_table(self.name.path, timeout=PATIENCE)
        self._check_fields(table, fields)
        self._check_vectors(table)
        if not self.rows(whole=True):
            self.describe(table)
        return table

    def check(self, extra: pa.Schema | None, is_loaded: bool = False) -> None:
        """Raises InputError if the table cannot take vectors and extra columns.

        `is_loaded` says that the run's record has its load: only who started a job may see it.
        """
        from google.api_core.exceptions import NotFound

        name, flag = self.name, f"--output_table {self.name}"
        with translate_errors(f"{flag}: dataset {name.project}.{name.dataset} cannot be used"):
            try:
                _ = self.location  # asks the service
            except NotFound as error:
                raise InputError(
                    f"{flag}: there is no dataset {name.dataset} in project {name.project}; make "
                    "it where the bucket of the files is: "
                    f"`bq --location=REGION mk --dataset {name.project}:{name.dataset}`"
                ) from error
        fields = table_schema(pa.schema([*self.columns, *(extra or ())]))
        table = get_table(self.client, name)
        if table is None:
            return
        if table.table_type != "TABLE":
            raise InputError(f"{flag} is a {table.table_type.lower()}, which cannot be loaded")
        self._check_fields(table, fields)
        if name.partition:
            ours, parts = PARTITION_TYPES[len(name.partition)], table.time_partitioning
            if parts is None or parts.type_ != ours:
                raise InputError(
                    f"{flag}: ${name.partition} is a partition by {ours.lower()}, but the table is "
                    f"{'not partitioned by time' if parts is None else 'by ' + parts.type_.lower()}"
                )
        must_be_empty = self.load.disposition == "fail" and not is_loaded
        count = self.rows() if must_be_empty else 0
        if count and last_done(named_jobs(self.client, self.location, self.job_name)) is None:
            raise InputError(
                f"{flag} has {counted(count, 'row')} already, and --write_disposition is fail: "
                "choose append or truncate, or another table"
            )
        self._check_vectors(table)

    def _check_fields(self, table: "Table", fields: Sequence[Field]) -> None:
        why = mismatch(fields, [field.to_api_repr() for field in table.schema])
        if why is not None:
            raise InputError(
                f"--output_table {self.name} cannot take these vectors: {why}; choose another "
                "table, or change its columns"
            )

    def _check_vectors(self, table: "Table") -> None:
        """Compares with the description, if it is ours, of rows that stay."""
        settings = described_settings(table.description)
        if settings is None or not self.staying_rows():
            return
        free = () if self.kind != "sentence" else ("token_shape", "word_pooling")
        theirs, ours = (
            {**one, "heads": one.get("heads", {}).get(self.kind)}
            for one in (settings, self.load.vectors)
        )
        differs = difference(theirs, ours, ("granularity", "vectors", *KIND_OF, *free))
        if differs is not None:
            raise InputError(
                f"--output_table {self.name} holds other vectors than this run would add: "
                f"{differs}; choose another table, or --write_disposition truncate to replace them"
            )

    def describe(self, table: "Table") -> None:
        """Describes the vectors of a table; a description that somebody else wrote stays."""
        from google.cloud.bigquery import Table

        if table.description and described_settings(table.description) is None:
            return
        if table.description != self._description:
            changed = Table(self.name.path)
            changed.description = self._description
            self.client.update_table(changed, ["description"], timeout=PATIENCE)

    @property
    def _description(self) -> str:
        return json.dumps({METADATA_KEY: dict(self.load.vectors)})
