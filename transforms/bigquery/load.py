"""Loads the files of a reconciled run into BigQuery tables, once: BigQuery accepts a job's id once.

The ids follow from run, table and disposition, so the job of that id says whether a load has
happened; rows that were deleted since do not count.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.kinds import KINDS
from bert_embed.formats.parquet_file import open_parquet
from bert_embed.run_record import Load
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote, join, open_raw
from bert_embed.transforms.activity import activity
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    bigquery_client,
    get_table,
    last_done,
    named_jobs,
    run_once,
    translate_errors,
)
from bert_embed.transforms.bigquery.schema import table_schema
from bert_embed.transforms.bigquery.tables import KindTable, TableLoad
from bert_embed.transforms.output_folder import OutputFolder, parse_name
from bert_embed.transforms.reconcile.totals import Totals
from bert_embed.transforms.reconcile.verdict import Verdict
from bert_embed.transforms.redact import RedactErrors

if TYPE_CHECKING:
    from google.cloud.bigquery import Table

MOST_URIS = 10_000  # that a load job takes
_MOST_JOB_BYTES = 14 << 40  # a load job takes 15 TB
_MOST_UPLOAD = 1 << 30  # of local files in one job
_STAGING_DAYS = 7
_DISPOSITIONS = {"append": "WRITE_APPEND", "truncate": "WRITE_TRUNCATE", "fail": "WRITE_EMPTY"}


def with_loads(verdict: Verdict, load: TableLoad, recorded: Mapping[str, Load]) -> Verdict:
    """Adds the loads of a run, or a problem, unless it has one or is refused.

    `recorded` are earlier loads.
    """
    if verdict.problems or verdict.refused:
        return verdict
    try:
        with RedactErrors("load"), activity("loading the table"):
            return replace(verdict, loads=_load_tables(load, verdict.totals, recorded))
    except ValueError as error:
        return replace(verdict, problems=(str(error),))


def _load_tables(load: TableLoad, totals: Totals, recorded: Mapping[str, Load]) -> dict[str, Load]:
    files = _vector_files(load, totals)
    loads = {}
    with bigquery_client(load.project) as client:
        for kind in load.kinds:
            target = KindTable(client, load, kind)
            with translate_errors(f"--output_table {target.name}"):
                earlier = recorded.get(kind)
                if earlier is not None and _is_kind_loaded(target, earlier):
                    loads[kind] = replace(earlier, now=False)
                    continue
                stored = _stored_schema(target, files[kind])
                table = target.ensure(table_schema(stored))
                loader = _Loader(target, stored, table, earlier.job if earlier else None)
                loads[kind] = loader.load(_groups(load, files[kind]), totals.counts["embedded"])
    return loads


def is_loaded(load: TableLoad, recorded: Mapping[str, Load]) -> bool:
    """Whether nothing is to be loaded of a finished run with these loads."""
    with bigquery_client(load.project) as client:
        for kind in load.kinds:
            target = KindTable(client, load, kind)
            with translate_errors(f"--output_table {target.name}"):
                if kind not in recorded or not _is_kind_loaded(target, recorded[kind]):
                    return False
    return True


def _is_kind_loaded(target: KindTable, recorded: Load) -> bool:
    table = get_table(target.client, target.name)
    if table is None or recorded.job is None:
        return table is not None
    if target.load.disposition == "truncate" or target.load.again:
        return bool(table.modified.isoformat() == recorded.modified)
    # `ended` was cut to seconds.
    return not _is_newer(table, datetime.fromisoformat(recorded.ended) + timedelta(seconds=1))


def _is_newer(table: "Table", ended: datetime | None) -> bool:
    """Whether a table was created after a job ended, and so without the job's rows."""
    return ended is not None and table.created > ended


def _vector_files(load: TableLoad, totals: Totals) -> dict[str, dict[str, int]]:
    """Names and sizes of each kind's files; InputError if the block records name others."""
    files: dict[str, dict[str, int]] = {kind: {} for kind in load.kinds}
    of_folder = {name: kind for kind in files for name in KINDS[kind].places}
    for name, size in OutputFolder(load.output).data_files().items():
        parsed = parse_name(name)
        if parsed is not None and parsed.kind in of_folder:
            files[of_folder[parsed.kind]][name] = size
    for kind in load.kinds:
        for count, size in (("files", len(files[kind])), ("bytes", sum(files[kind].values()))):
            written = sum(totals.written[folder, count] for folder in KINDS[kind].places)
            if size != written:
                raise InputError(
                    f"{load.output} holds {size} {count} of vectors of {kind}, the block records "
                    f"name {written}: nothing was loaded"
                )
    return files


@dataclass(frozen=True)
class _Loader:
    """Loads files of one schema into one table, again if it was done by the job `replaced`."""

    target: KindTable
    stored: pa.Schema
    table: "Table"
    replaced: str | None

    def load(self, groups: Sequence[Sequence[str]], documents: int) -> Load:
        """Loads groups of files, a job each, unless that has been done."""
        target = self.target
        if not groups:
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            return Load(None, 0, ended, 0, ended, now=False)
        is_kept = target.staying_rows() > 0
        if len(groups) == 1:
            job, now = self._run(target.job_name, partial(self._start, groups[0]))
        else:
            job, now = self._run_staged(groups)
        if now and not is_kept:
            target.describe(self.table)
        table = target.client.get_table(target.name.path, timeout=PATIENCE)
        return Load(
            job=job.job_id,
            documents=documents,
            ended=(job.ended or datetime.now(UTC)).isoformat(timespec="seconds"),
            table_rows=target.rows(),
            modified=table.modified.isoformat() if now else "",
            now=now,
        )

    def _run(self, name: str, start: Callable[[str], Any]) -> tuple[Any, bool]:
        return run_once(self.target.client, self.target.location, name, start, self._is_void)

    def _is_void(self, job: Any) -> bool:
        """Whether a load is repeated: replacing the rows does no harm, adding them twice does."""
        if self.target.load.disposition == "truncate" or job.job_id == self.replaced:
            return True
        return _is_newer(self.table, job.ended)

    def _run_staged(self, groups: Sequence[Sequence[str]]) -> tuple[Any, bool]:
        """Loads by several jobs into a staging table, then copies it, all rows or none."""
        from google.cloud import bigquery

        client, location, name = self.target.client, self.target.location, self.target.job_name
        beside = f"{self.target.name.table}_{name.removeprefix('bert_embed_')}"
        staging = replace(self.target.name, table=beside, partition="")
        done = last_done(named_jobs(client, location, name))
        if done is None or self._is_void(done):
            table = bigquery.Table(staging.path, schema=self.table.schema)
            table.expires = datetime.now(UTC) + timedelta(days=_STAGING_DAYS)
            client.create_table(table, exists_ok=True, timeout=PATIENCE)
            table = client.get_table(staging.path, timeout=PATIENCE)
            for number, group in enumerate(groups):
                start = partial(self._start, group, staging=staging.path)
                job_name = f"{name}_{number:05d}"
                run_once(client, location, job_name, start, lambda job: _is_newer(table, job.ended))
        config = bigquery.CopyJobConfig(write_disposition=self._disposition)
        copied = self._run(
            name,
            lambda job_id: client.copy_table(
                staging.path,
                self.target.name.destination,
                job_id=job_id,
                location=location,
                job_config=config,
                timeout=PATIENCE,
            ),
        )
        client.delete_table(staging.path, not_found_ok=True, timeout=PATIENCE)
        return copied

    @property
    def _disposition(self) -> str:
        return _DISPOSITIONS[self.target.load.disposition]

    def _start(self, group: Sequence[str], job_id: str, staging: str | None = None) -> Any:
        """Starts a load job over some files, into the target or a staging table."""
        from google.cloud import bigquery

        names = {name.lower() for name in self.stored.names}
        options = bigquery.ParquetOptions()
        options.enable_list_inference = True  # else a list becomes records of records
        config = bigquery.LoadJobConfig(
            source_format="PARQUET",
            schema=[field for field in self.table.schema if field.name.lower() in names],
            write_disposition=_DISPOSITIONS["append"] if staging else self._disposition,
            labels={"bert_embed": self.target.load.run},
        )
        config.parquet_options = options
        named = {"job_id": job_id, "job_config": config, "location": self.target.location}
        client, output = self.target.client, self.target.load.output
        destination = staging or self.target.name.destination
        paths = [join(output, name) for name in group]
        if is_remote(output) and paths:
            return client.load_table_from_uri(paths, destination, timeout=PATIENCE, **named)
        with _one_file(paths, self.stored) as file:
            return client.load_table_from_file(file, destination, **named)


def _stored_schema(target: KindTable, files: Mapping[str, int]) -> pa.Schema:
    if not files:
        return target.columns
    with open_raw(join(target.load.output, next(iter(files)))) as file:
        return pq.read_schema(file).remove_metadata()


def _groups(load: TableLoad, files: Mapping[str, int]) -> list[list[str]]:
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
                _append(writer, path, schema)
        joined.seek(0)
        yield joined


def _append(writer: pq.ParquetWriter, path: str, schema: pa.Schema) -> None:
    """Writes a file's row groups; InputError if the file is damaged."""
    try:
        with open_parquet(path) as file:
            for number in range(file.metadata.num_row_groups):
                table = file.read_row_group(number, columns=schema.names)
                writer.write_table(table.select(schema.names).cast(schema))
    except (pa.ArrowException, OSError, KeyError) as error:
        if getattr(error, "errno", None) is not None:  # of the file system, not of Arrow
            raise
        raise InputError(f"{path} is damaged ({error}): nothing was loaded") from error
