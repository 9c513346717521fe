"""LoadTable: after the account, the files of a run into a BigQuery table, once."""

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from bert.result_files import FILE_STEMS
from transforms.accounting import Totals, Verdict
from transforms.bigquery import (
    PATIENCE,
    TableName,
    bigquery_client,
    done_job,
    get_table,
    run_once,
    told,
)
from transforms.files import is_remote, join, open_raw, sizes_in
from transforms.sinks.bigquery_schema import table_schema, vector_schema, with_modes
from transforms.sinks.bigquery_tables import dataset_location, ensure_table

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, SchemaField

DISPOSITIONS = {"append": "WRITE_APPEND", "truncate": "WRITE_TRUNCATE", "fail": "WRITE_EMPTY"}
MOST_URIS = 10_000  # that a load job takes
_MOST_JOB_BYTES = 14 << 40  # a load job takes 15 TB
_MOST_UPLOAD = 1 << 30  # of local files in one job
_STAGING_DAYS = 7


@dataclass(frozen=True)
class TableLoad:
    """What is loaded, and where to.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run; the jobs' names follow from it.
        table: Where the vectors go.
        disposition: One of `DISPOSITIONS`.
        project: Whose jobs these are.
        granularities: The kinds of vectors that the run makes.
        windows: Whether windows keep vectors of their own.
        most_uris: Files of a job.
        metadata: What the vectors are, as JSON; the description of a table that is made.
    """

    output: str
    run: str
    table: TableName
    disposition: str
    project: str
    granularities: tuple[str, ...] = ("sentence",)
    windows: bool = False
    most_uris: int = MOST_URIS
    metadata: str = "{}"

    def table_of(self, granularity: str) -> TableName:
        """Where one kind of vectors goes.

        The only kind and the vectors of whole texts go to the table itself, any other to a table
        beside it, such as `news_tokens`.
        """
        if granularity == "sentence" or len(self.granularities) == 1:
            return self.table
        return replace(self.table, table=f"{self.table.table}_{FILE_STEMS[granularity]}")

    @property
    def asked(self) -> dict[str, Any]:
        """What is loaded, as it stands in the run's record."""
        tables = {kind: self.table_of(kind).destination for kind in self.granularities}
        return {"tables": tables, "write_disposition": self.disposition}

    def job_name(self, granularity: str) -> str:
        """The same for the same vectors into the same table in the same way."""
        asked = f"{self.table_of(granularity).destination} {self.disposition}"
        return f"bert_embed_{self.run}_{hashlib.sha256(asked.encode()).hexdigest()[:12]}"


@dataclass
class LoadTable(beam.PTransform):
    """A Verdict to the same Verdict, its run's vectors loaded; with a problem if that failed.

    Nothing is loaded if the account does not add up.

    Attributes:
        load: What to load and where to; None if nothing is.
    """

    load: TableLoad | None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, verdicts: beam.PCollection[Verdict]) -> beam.PCollection[Verdict]:
        if self.load is None:
            return verdicts
        return verdicts | "Load" >> beam.ParDo(_Load(self.load))


class _Load(beam.DoFn):
    def __init__(self, load: TableLoad) -> None:
        self._load = load

    def process(self, verdict: Verdict) -> Iterator[Verdict]:
        if verdict.problems:
            yield verdict
            return
        try:
            load_tables(self._load, verdict.totals)
            yield verdict
        except ValueError as error:
            yield replace(verdict, problems=(str(error),))


def load_tables(load: TableLoad, totals: Totals) -> None:
    """Loads every kind of vectors; what an earlier attempt has loaded is not loaded again.

    Raises:
        ValueError: A job failed, or the folder holds other files than the reports name.
    """
    files = vector_files(load, totals)
    with bigquery_client(load.project) as client:
        for granularity in load.granularities:
            name = load.table_of(granularity)
            with told(f"--output_table {name}"):
                _load_kind(client, load, granularity, files[granularity])


def vector_files(load: TableLoad, totals: Totals) -> dict[str, dict[str, int]]:
    """Names and sizes of the files of each kind of vectors, sorted by name.

    Raises:
        ValueError: They are not the files that the reports name.
    """
    found = sorted(sizes_in(load.output).items())
    files: dict[str, dict[str, int]] = {}
    for kind in load.granularities:
        ours = re.compile(rf"{FILE_STEMS[kind]}-\d{{7,}}-\d{{5,}}\.parquet")
        files[kind] = {name: size for name, size in found if ours.fullmatch(name)}
    rejected = [size for name, size in found if re.fullmatch(r"rejected-[\d-]+\.jsonl", name)]
    sizes = [size for kind in files.values() for size in kind.values()] + rejected
    if len(sizes) != totals.counts["files"] or sum(sizes) != totals.counts["bytes"]:
        raise ValueError(
            f"{load.output} holds {len(sizes)} files of {sum(sizes)} bytes, the reports name "
            f"{totals.counts['files']} of {totals.counts['bytes']}: nothing was loaded"
        )
    return files


def _load_kind(client: "Client", load: TableLoad, kind: str, files: dict[str, int]) -> None:
    schema = _stored_schema(load, kind, files)
    target = load.table_of(kind)
    table = ensure_table(client, target, table_schema(schema), load.metadata)
    loader = _Loader(client, load, target, dataset_location(client, target), schema, table.schema)
    name, groups = load.job_name(kind), _groups(load, files)
    if len(groups) == 1:
        start = partial(loader.start, groups[0], target.destination, loader.disposition)
        loader.run(name, target, start)
    elif groups:
        loader.run_staged(name, groups)


@dataclass(frozen=True)
class _Loader:
    """The jobs that bring files into one table.

    Attributes:
        client: Of the project whose jobs they are.
        load: What is loaded.
        target: Where to.
        location: Where the jobs run.
        stored: Schema of the files.
        there: Schema of the table.
    """

    client: "Client"
    load: TableLoad
    target: TableName
    location: str
    stored: pa.Schema
    there: Sequence["SchemaField"]

    @property
    def disposition(self) -> str:
        return DISPOSITIONS[self.load.disposition]

    def run(self, name: str, into: TableName, start: Callable[[str], Any]) -> None:
        """Runs a job into a table once, and again if the table was dropped since."""
        run_once(self.client, self.location, name, start, partial(self._is_gone, into))

    def run_staged(self, name: str, groups: Sequence[Sequence[str]]) -> None:
        """Several jobs into a table beside the target, then a copy, which appears whole or not."""
        from google.cloud import bigquery

        beside = f"{self.target.table}_{name.removeprefix('bert_embed_')}"
        staging = replace(self.target, table=beside, partition="")
        done = done_job(self.client, self.location, name)
        if done is None or self._is_gone(self.target, done):
            made = bigquery.Table(staging.path, schema=self.there)
            made.expires = datetime.now(UTC) + timedelta(days=_STAGING_DAYS)
            self.client.create_table(made, exists_ok=True, timeout=PATIENCE)
            for number, group in enumerate(groups):
                start = partial(self.start, group, staging.path, DISPOSITIONS["append"])
                self.run(f"{name}_{number:05d}", staging, start)
        self.run(name, self.target, partial(self._copy, staging))
        self.client.delete_table(staging.path, not_found_ok=True, timeout=PATIENCE)

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
        """Whether a table was dropped since a job ended, and made anew or not."""
        table = get_table(self.client, name)
        return table is None or (job.ended is not None and table.created > job.ended)


def _stored_schema(load: TableLoad, kind: str, files: dict[str, int]) -> pa.Schema:
    if not files:
        return vector_schema(kind, load.windows)
    with open_raw(join(load.output, next(iter(files)))) as file:
        return pq.read_schema(file).remove_metadata()


def _groups(load: TableLoad, files: dict[str, int]) -> list[list[str]]:
    """The files of each job; without any one empty job where the table is to be emptied."""
    most = _MOST_JOB_BYTES if is_remote(load.output) else _MOST_UPLOAD
    groups: list[list[str]] = []
    room = -1
    for name, size in files.items():
        if size > room or len(groups[-1]) == load.most_uris:
            groups.append([])
            room = max(most, size)
        groups[-1].append(name)
        room -= size
    return groups or ([[]] if load.disposition == "truncate" else [])


@contextmanager
def _one_file(paths: Sequence[str], schema: pa.Schema) -> Iterator[BinaryIO]:
    """Local files as one, because an upload is a job and a table takes only so many a day."""
    with tempfile.TemporaryFile() as made:
        with pq.ParquetWriter(made, schema, compression="none", use_dictionary=False) as writer:
            for path in paths:
                writer.write_table(pq.read_table(path, schema=schema))
        made.seek(0)
        yield made
