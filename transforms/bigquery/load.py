"""Loads the files of a reconciled run into a BigQuery table, once."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.output_files import vector_kinds
from bert_embed.run_record import Load
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote, join, open_raw
from bert_embed.transforms.activity import activity
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    TableName,
    bigquery_client,
    done_job,
    get_table,
    run_once,
    translate_errors,
)
from bert_embed.transforms.bigquery.schema import table_schema, with_modes
from bert_embed.transforms.bigquery.state import has_rows_of, note_load
from bert_embed.transforms.bigquery.table_load import DISPOSITIONS, KindLoad, TableLoad
from bert_embed.transforms.bigquery.tables import ensure_table
from bert_embed.transforms.output_folder import OutputFolder, parse_name
from bert_embed.transforms.reconcile.totals import Totals
from bert_embed.transforms.reconcile.verdict import Verdict
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

if TYPE_CHECKING:
    from google.cloud.bigquery import SchemaField

MOST_URIS = 10_000  # that a load job takes
_MOST_JOB_BYTES = 14 << 40  # a load job takes 15 TB
_MOST_UPLOAD = 1 << 30  # of local files in one job
_STAGING_DAYS = 7


@dataclass
class LoadTable(Step):
    """Loads the vectors of a run and adds that, or a problem, to its Verdict.

    Nothing is loaded if the reports do not add up.

    Attributes:
        load: What to load and where to; None to load nothing.
        recorded: The loads of an earlier attempt from its record, by kind of vectors.
    """

    load: TableLoad | None
    recorded: Mapping[str, Load] = field(default_factory=dict)

    def expand(self, verdicts: beam.PCollection[Verdict]) -> beam.PCollection[Verdict]:
        if self.load is None:
            return verdicts
        return verdicts | "Load" >> beam.Map(_with_loads, self.load, self.recorded)


def _with_loads(verdict: Verdict, load: TableLoad, recorded: Mapping[str, Load]) -> Verdict:
    if verdict.problems:
        return verdict
    try:
        with RedactErrors("load"), activity("loading the table"):
            return replace(verdict, loads=_load_tables(load, verdict.totals, recorded))
    except ValueError as error:
        return replace(verdict, problems=(str(error),))


def _load_tables(load: TableLoad, totals: Totals, recorded: Mapping[str, Load]) -> dict[str, Load]:
    """Loads every kind of vectors whose rows the table does not hold already.

    Returns:
        What to record for each kind.
    """
    files = _vector_files(load, totals)
    loads = {}
    with bigquery_client(load.project) as client:
        for kind in load.granularities:
            with translate_errors(f"--output_table {load.table_of(kind)}"):
                target = KindLoad(client, load, kind, list(files[kind]))
                stored = _stored_schema(target)
                table = ensure_table(target, table_schema(stored))
                loads[kind] = _Loader(target, stored, table.schema).load_once(
                    _groups(load, files[kind]), totals.counts["embedded"], recorded.get(kind)
                )
    return loads


def is_loaded(load: TableLoad, recorded: Mapping[str, Load]) -> bool:
    """Whether the tables still hold what a finished run loaded."""
    files = kind_files(load)
    with bigquery_client(load.project) as client:
        for kind in load.granularities:
            target = KindLoad(client, load, kind, list(files[kind]))
            with translate_errors(f"--output_table {target.name}"):
                if not _is_kind_loaded(target, recorded.get(kind)):
                    return False
    return True


def _is_kind_loaded(target: KindLoad, recorded: Load | None) -> bool:
    if recorded is None or recorded.job is None:
        return recorded is not None and get_table(target.client, target.name) is not None
    return has_rows_of(target, recorded.job, recorded.modified)


def kind_files(load: TableLoad) -> dict[str, dict[str, int]]:
    """Names and sizes of the existing files of each kind of vectors, sorted by name."""
    files: dict[str, dict[str, int]] = {kind: {} for kind in load.granularities}
    of_folder = {name: kind for kind in files for name in vector_kinds(kind)}
    for name, size in OutputFolder(load.output).data_files().items():
        found = parse_name(name)
        if found is not None and found.kind in of_folder:
            files[of_folder[found.kind]][name] = size
    return files


def _vector_files(load: TableLoad, totals: Totals) -> dict[str, dict[str, int]]:
    """Names and sizes of the files of each kind of vectors, sorted by name.

    Raises:
        ValueError: They are not the files that the reports name.
    """
    files = kind_files(load)
    for kind in load.granularities:
        for count, size in (("files", len(files[kind])), ("bytes", sum(files[kind].values()))):
            written = sum(totals.written[each, count] for each in vector_kinds(kind))
            if size != written:
                raise InputError(
                    f"{load.output} holds {size} {count} of vectors of {kind}, the reports name "
                    f"{written}: nothing was loaded"
                )
    return files


@dataclass(frozen=True)
class _Loader:
    """Loads files into one table.

    Attributes:
        target: What is loaded, and where to.
        stored: Schema of the files.
        there: Schema of the table.
    """

    target: KindLoad
    stored: pa.Schema
    there: Sequence["SchemaField"]

    @property
    def disposition(self) -> str:
        return DISPOSITIONS[self.target.load.disposition]

    def load_once(
        self,
        groups: Sequence[Sequence[str]],
        documents: int,
        recorded: Load | None,
    ) -> Load:
        """Loads groups of files, a job each, unless the table already holds their rows.

        A finished job of this load's name without a record has two possible causes: the record was
        not written, or the rows were removed since. What the table holds decides.
        """
        earlier = None if recorded is None else recorded.job
        if recorded and earlier and has_rows_of(self.target, earlier, recorded.modified):
            return replace(recorded, now=False)
        if not groups:
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            return Load(None, 0, ended, 0, ended, now=False)
        name, is_gone = self.target.job_name, cache(self._lost_rows)
        if len(groups) == 1:
            start = partial(self.start, groups[0], self.target.name.destination, self.disposition)
            job, now = self._run(name, start, is_gone)
        else:
            job, now = self._run_staged(name, groups, is_gone)
        return note_load(self.target, job, documents, now)

    def _lost_rows(self, job_id: str) -> bool:
        return not has_rows_of(self.target, job_id)

    def _run(
        self, name: str, start: Callable[[str], Any], is_gone: Callable[[str], bool]
    ) -> tuple[Any, bool]:
        client, location = self.target.client, self.target.location
        return run_once(client, location, name, start, lambda job: is_gone(job.job_id))

    def _run_staged(
        self, name: str, groups: Sequence[Sequence[str]], is_gone: Callable[[str], bool]
    ) -> tuple[Any, bool]:
        """Loads by several jobs into a staging table, then copies it, all rows or none."""
        from google.cloud import bigquery

        client, location = self.target.client, self.target.location
        beside = f"{self.target.name.table}_{name.removeprefix('bert_embed_')}"
        staging = replace(self.target.name, table=beside, partition="")
        done = done_job(client, location, name)
        if done is None or is_gone(done.job_id):
            table = bigquery.Table(staging.path, schema=self.there)
            table.expires = datetime.now(UTC) + timedelta(days=_STAGING_DAYS)
            client.create_table(table, exists_ok=True, timeout=PATIENCE)
            for number, group in enumerate(groups):
                start = partial(self.start, group, staging.path, DISPOSITIONS["append"])
                staged, is_lost = f"{name}_{number:05d}", partial(self._is_gone, staging)
                run_once(client, location, staged, start, is_lost)
        copied = self._run(name, partial(self._copy, staging), is_gone)
        client.delete_table(staging.path, not_found_ok=True, timeout=PATIENCE)
        return copied

    def start(self, group: Sequence[str], destination: str, disposition: str, job_id: str) -> Any:
        """Starts a load job over some files."""
        from google.cloud import bigquery

        there = [each.to_api_repr() for each in self.there]
        fields = with_modes(table_schema(self.stored), there)
        options = bigquery.ParquetOptions()
        options.enable_list_inference = True  # else a list becomes records of records
        config = bigquery.LoadJobConfig(
            source_format="PARQUET",
            schema=[bigquery.SchemaField.from_api_repr(field) for field in fields],
            write_disposition=disposition,
            labels={"bert_embed": self.target.load.run},
        )
        config.parquet_options = options
        named = {"job_id": job_id, "job_config": config, "location": self.target.location}
        client, output = self.target.client, self.target.load.output
        paths = [join(output, name) for name in group]
        if is_remote(output) and paths:
            return client.load_table_from_uri(paths, destination, timeout=PATIENCE, **named)
        with _one_file(paths, self.stored) as file:
            return client.load_table_from_file(file, destination, **named)

    def _copy(self, source: TableName, job_id: str) -> Any:
        from google.cloud import bigquery

        return self.target.client.copy_table(
            source.path,
            self.target.name.destination,
            job_id=job_id,
            location=self.target.location,
            job_config=bigquery.CopyJobConfig(write_disposition=self.disposition),
            timeout=PATIENCE,
        )

    def _is_gone(self, name: TableName, job: Any) -> bool:
        """Whether the staging table was dropped, or created again, after a job ended."""
        table = get_table(self.target.client, name)
        return table is None or (job.ended is not None and table.created > job.ended)


def _stored_schema(target: KindLoad) -> pa.Schema:
    if not target.files:
        return target.columns
    with open_raw(join(target.load.output, target.files[0])) as file:
        return pq.read_schema(file).remove_metadata()


def _groups(load: TableLoad, files: dict[str, int]) -> list[list[str]]:
    """The files of each job; one empty job if there are no files and the table must be emptied."""
    most = _MOST_JOB_BYTES if is_remote(load.output) else _MOST_UPLOAD
    groups: list[list[str]] = []
    left = -1
    for name, size in files.items():
        if size > left or len(groups[-1]) == load.most_uris:
            groups.append([])
            left = max(most, size)
        groups[-1].append(name)
        left -= size
    return groups or ([[]] if load.disposition == "truncate" else [])


@contextmanager
def _one_file(paths: Sequence[str], schema: pa.Schema) -> Iterator[BinaryIO]:
    """Joins local files to one, because each upload is a job, and a table has a daily limit."""
    with tempfile.TemporaryFile() as joined:
        with pq.ParquetWriter(joined, schema, compression="none", use_dictionary=False) as writer:
            for path in paths:
                writer.write_table(pq.read_table(path, schema=schema))
        joined.seek(0)
        yield joined
