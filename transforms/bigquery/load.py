"""Loads the files of a reconciled run into a BigQuery table, once."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from bert.formats.output_files import vector_kinds
from storage.errors import InputError
from storage.files import is_remote, join, open_raw
from transforms.bigquery.client import (
    PATIENCE,
    TableName,
    bigquery_client,
    done_job,
    get_table,
    run_once,
    translate_errors,
)
from transforms.bigquery.schema import table_schema, vector_schema, with_modes
from transforms.bigquery.state import Loaded, has_rows_of, note_load
from transforms.bigquery.table_load import DISPOSITIONS, TableLoad
from transforms.bigquery.tables import dataset_location, ensure_table
from transforms.output_folder import OutputFolder, parse_name
from transforms.reconcile.totals import Totals
from transforms.reconcile.verdict import Verdict
from transforms.records.step import Step
from transforms.redact import RedactErrors

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, SchemaField

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
    recorded: Mapping[str, Any] = field(default_factory=dict)

    def expand(self, verdicts: beam.PCollection[Verdict]) -> beam.PCollection[Verdict]:
        if self.load is None:
            return verdicts
        return verdicts | "Load" >> beam.ParDo(_Load(self.load, self.recorded))


class _Load(beam.DoFn):
    def __init__(self, load: TableLoad, recorded: Mapping[str, Any]) -> None:
        self._load, self._recorded = load, recorded

    def process(self, verdict: Verdict) -> Iterator[Verdict]:
        if verdict.problems:
            yield verdict
            return
        try:
            with RedactErrors("load"):
                loads = load_tables(self._load, verdict.totals, self._recorded)
            yield replace(verdict, loads=loads)
        except ValueError as error:
            yield replace(verdict, problems=(str(error),))


def load_tables(
    load: TableLoad, totals: Totals, recorded: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Loads every kind of vectors whose rows the table does not hold already.

    Args:
        load: What to load.
        totals: The sum of the reports.
        recorded: The loads of an earlier attempt from its record, by kind.

    Returns:
        What to record for each kind: the fields of `Loaded`, and `now`, whether this attempt loaded
        it.

    Raises:
        ValueError: A job failed, or the folder holds other files than the reports name.
    """
    files = vector_files(load, totals)
    loads = {}
    with bigquery_client(load.project) as client:
        for kind in load.granularities:
            with translate_errors(f"--output_table {load.table_of(kind)}"):
                loader = _loader(client, load, kind, list(files[kind]))
                earlier = recorded.get(kind)
                loads[kind] = loader.load_once(
                    _groups(load, files[kind]),
                    totals.counts["embedded"],
                    None if earlier is None else recorded_load(earlier),
                )
    return loads


def recorded_load(row: Mapping[str, Any]) -> Loaded:
    """A load as `load_tables` gave it, from the run's record."""
    return Loaded(**{name: value for name, value in row.items() if name != "now"})


def is_loaded(load: TableLoad, recorded: Mapping[str, Any]) -> bool:
    """Whether the tables still hold what a finished run loaded."""
    files = kind_files(load)
    with bigquery_client(load.project) as client:
        for kind in load.granularities:
            name = load.table_of(kind)
            with translate_errors(f"--output_table {name}"):
                if not _is_kind_loaded(client, load, kind, list(files[kind]), recorded.get(kind)):
                    return False
    return True


def _is_kind_loaded(
    client: "Client", load: TableLoad, kind: str, files: list[str], row: Mapping[str, Any] | None
) -> bool:
    if row is None or row["job"] is None:
        return row is not None and get_table(client, load.table_of(kind)) is not None
    location = dataset_location(client, load.table_of(kind))
    return has_rows_of(client, load, kind, files, location, row["job"], row["modified"])


def kind_files(load: TableLoad) -> dict[str, dict[str, int]]:
    """Names and sizes of the existing files of each kind of vectors, sorted by name."""
    files: dict[str, dict[str, int]] = {kind: {} for kind in load.granularities}
    of_folder = {name: kind for kind in files for name in vector_kinds(kind)}
    for name, size in OutputFolder(load.output).data_files().items():
        found = parse_name(name)
        if found is not None and found.kind in of_folder:
            files[of_folder[found.kind]][name] = size
    return files


def vector_files(load: TableLoad, totals: Totals) -> dict[str, dict[str, int]]:
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


def _loader(client: "Client", load: TableLoad, kind: str, files: list[str]) -> "_Loader":
    schema = _stored_schema(load, kind, files)
    target = load.table_of(kind)
    location = dataset_location(client, target)
    table = ensure_table(client, load, kind, table_schema(schema))
    return _Loader(client, load, kind, files, location, schema, table.schema)


@dataclass(frozen=True)
class _Loader:
    """Loads files into one table.

    Attributes:
        client: Of the project that runs the jobs.
        load: What is loaded.
        kind: Which of its kinds of vectors.
        files: Names of the files.
        location: Where the jobs run.
        stored: Schema of the files.
        there: Schema of the table.
    """

    client: "Client"
    load: TableLoad
    kind: str
    files: list[str]
    location: str
    stored: pa.Schema
    there: Sequence["SchemaField"]

    @property
    def target(self) -> TableName:
        return self.load.table_of(self.kind)

    @property
    def disposition(self) -> str:
        return DISPOSITIONS[self.load.disposition]

    def load_once(
        self, groups: Sequence[Sequence[str]], documents: int, recorded: Loaded | None
    ) -> dict[str, Any]:
        """Loads groups of files, a job each, unless the table already holds their rows.

        If a job under the name of this load is finished, either its record was not written or its
        rows were removed since; the table decides.
        """
        if (
            recorded is not None
            and recorded.job
            and self._has_rows(recorded.job, recorded.modified)
        ):
            return asdict(recorded) | {"now": False}
        if not groups:
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            return asdict(Loaded(None, 0, ended, 0, ended)) | {"now": False}
        name, is_gone = self.load.job_name(self.kind), cache(self._lost_rows)
        if len(groups) == 1:
            start = partial(self.start, groups[0], self.target.destination, self.disposition)
            job, now = self._run(name, start, is_gone)
        else:
            job, now = self._run_staged(name, groups, is_gone)
        loaded = note_load(self.client, self.load, self.kind, job, documents)
        return asdict(loaded) | {"now": now}

    def _has_rows(self, job_id: str, modified: str | None = None) -> bool:
        return has_rows_of(
            self.client, self.load, self.kind, self.files, self.location, job_id, modified
        )

    def _lost_rows(self, job_id: str) -> bool:
        return not self._has_rows(job_id)

    def _run(
        self, name: str, start: Callable[[str], Any], is_gone: Callable[[str], bool]
    ) -> tuple[Any, bool]:
        return run_once(self.client, self.location, name, start, lambda job: is_gone(job.job_id))

    def _run_staged(
        self, name: str, groups: Sequence[Sequence[str]], is_gone: Callable[[str], bool]
    ) -> tuple[Any, bool]:
        """Loads by several jobs into a staging table, then copies it, all rows or none."""
        from google.cloud import bigquery

        beside = f"{self.target.table}_{name.removeprefix('bert_embed_')}"
        staging = replace(self.target, table=beside, partition="")
        done = done_job(self.client, self.location, name)
        if done is None or is_gone(done.job_id):
            table = bigquery.Table(staging.path, schema=self.there)
            table.expires = datetime.now(UTC) + timedelta(days=_STAGING_DAYS)
            self.client.create_table(table, exists_ok=True, timeout=PATIENCE)
            for number, group in enumerate(groups):
                start = partial(self.start, group, staging.path, DISPOSITIONS["append"])
                staged, is_lost = f"{name}_{number:05d}", partial(self._is_gone, staging)
                run_once(self.client, self.location, staged, start, is_lost)
        copied = self._run(name, partial(self._copy, staging), is_gone)
        self.client.delete_table(staging.path, not_found_ok=True, timeout=PATIENCE)
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
            labels={"bert_embed": self.load.run},
        )
        config.parquet_options = options
        named = {"job_id": job_id, "job_config": config, "location": self.location}
        paths = [join(self.load.output, name) for name in group]
        if is_remote(self.load.output) and paths:
            return self.client.load_table_from_uri(paths, destination, timeout=PATIENCE, **named)
        with _one_file(paths, self.stored) as file:
            return self.client.load_table_from_file(file, destination, **named)

    def _copy(self, source: TableName, job_id: str) -> Any:
        from google.cloud import bigquery

        return self.client.copy_table(
            source.path,
            self.target.destination,
            job_id=job_id,
            location=self.location,
            job_config=bigquery.CopyJobConfig(write_disposition=self.disposition),
            timeout=PATIENCE,
        )

    def _is_gone(self, name: TableName, job: Any) -> bool:
        """Whether the staging table was dropped, or created again, after a job ended."""
        table = get_table(self.client, name)
        return table is None or (job.ended is not None and table.created > job.ended)


def _stored_schema(load: TableLoad, kind: str, files: list[str]) -> pa.Schema:
    if not files:
        return vector_schema(kind, load.windows)
    with open_raw(join(load.output, files[0])) as file:
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
