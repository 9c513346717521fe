"""Loads the files of a reconciled run into BigQuery tables, once.

The ids of its jobs follow from run and table, so the job of that id says whether a load has
happened, with whatever disposition; rows that were deleted since do not count.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.errors import InputError, counted
from bert_embed.bundle.fingerprints import difference
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.columns import METADATA_KEY, open_parquet
from bert_embed.results.run_record import Load, RunTables
from bert_embed.settings import KIND_OF
from bert_embed.storage.files import is_remote, join, open_raw
from bert_embed.transforms.bigquery.client import (
    PARTITION_TYPES,
    PATIENCE,
    TableName,
    bigquery_client,
    get_table,
    last_done,
    named_jobs,
    run_once,
    translate_errors,
)
from bert_embed.transforms.bigquery.fields import Field, mismatch, table_schema, vector_schema
from bert_embed.transforms.bigquery.read import described_settings
from bert_embed.transforms.ledger import Totals, Verdict
from bert_embed.transforms.output_folder import OutputFolder, parse_name
from bert_embed.transforms.steps import RedactErrors, activity

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table


_Result = TypeVar("_Result")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class TableLoad:
    """What is loaded, and where to; the jobs' names follow from the fingerprint `run`."""

    output: str
    run: str
    table: TableName
    disposition: str  # `append`, `truncate` or `fail`
    project: str  # runs the jobs
    kinds: tuple[str, ...] = ("sentence",)
    pieces: str | None = None  # `window` or `chunk`, where these have vectors of their own
    texts: bool = False
    vectors: Mapping[str, Any] = field(default_factory=dict)  # what they are, as in the description
    states: Mapping[str, str] = field(default_factory=dict)  # of the tables, by kind, for people
    again: bool = False  # repeat a recorded load if the table has changed since
    # When tables that the run skips, too, had changed last as their rows were compared with its
    # input, as in `Load.modified`.
    compared: Mapping[str, str] = field(default_factory=dict)

    def table_of(self, kind: str) -> TableName:
        """The table itself for whole texts or the only kind, else another as `news_tokens`."""
        if kind == "sentence" or len(self.kinds) == 1:
            return self.table
        return replace(self.table, table=f"{self.table.table}_{KINDS[kind].folder}")

    @property
    def replaces(self) -> bool:
        """Whether a load replaces the rows that are there."""
        return self.disposition == "truncate"

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
    def compared(self) -> str | None:
        """When the table had changed last as it was compared with the input; None if it was not."""
        return self.load.compared.get(str(self.name))

    @property
    def job_name(self) -> str:
        """The same for the same vectors into the same table.

        Of the runs that compared their input with one state of the table all have the same, so that
        BigQuery accepts the load of one of them.
        """
        return self.named(self.load.run if self.compared is None else _hashed(self.compared))

    def named(self, what: str) -> str:
        """The name of a job that fills the table."""
        return f"bert_embed_{what}_{_hashed(self.name.destination)}"

    def is_ours(self, job: Any) -> bool:
        """Whether a load or copy job is this run's."""
        return bool((job.labels or {}).get(_LABEL) == self.load.run)

    def check_unchanged(self, table: "Table | None" = None) -> None:
        """InputError if others changed the table since the run compared its input with it."""
        if self.compared is None:
            return
        table = table or self.client.get_table(self.name.path, timeout=PATIENCE)
        if table.modified.isoformat() != self.compared:
            raise self.changed(f"changed at {table.modified.isoformat(timespec='seconds')}")

    def changed(self, how: str) -> InputError:
        """What to say of a table that others changed."""
        return self._refused(
            f" {how}, after this run compared its input with it: others may have loaded the same "
            "documents; overwrite compares again, and embeds only what the table lacks",
            "overwrite",
        )

    def _refused(self, why: str, *settings: str) -> InputError:
        return InputError(f"{_SETTING} {self.name}{why}", _SETTING, *settings)

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
        if not self.load.replaces:
            return self.rows(whole=True)
        return self.rows(whole=True) - self.rows() if self.name.partition else 0

    def ensure(self, fields: Sequence[Field]) -> "Table":
        """The table, created if it does not exist; InputError if it cannot hold the fields."""
        from google.api_core.exceptions import PreconditionFailed
        from google.cloud import bigquery

        table = get_table(self.client, self.name)
        if table is None:
            schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
            created = bigquery.Table(self.name.path, schema=schema)
            created.description = json.dumps({METADATA_KEY: dict(self.load.vectors)})
            if self.name.partition:
                partitions = PARTITION_TYPES[len(self.name.partition)]
                created.time_partitioning = bigquery.TimePartitioning(type_=partitions)
            self.client.create_table(created, exists_ok=True, timeout=PATIENCE)
            table = self.client.get_table(self.name.path, timeout=PATIENCE)
        self._check_fields(table, fields)
        self._check_vectors(table)
        if self.compared is None and not self.rows(whole=True):
            with suppress(PreconditionFailed):  # whoever changed it meanwhile describes it
                return self.describe(table)
        return table

    def check(self, extra: pa.Schema | None, recorded: Load | None = None) -> bool:
        """Returns whether the table is there.

        InputError if the table cannot take vectors and extra columns.
        `recorded` is the load in the run's record: only who started a job may see it.
        """
        from google.api_core.exceptions import NotFound

        name, dataset = self.name, f"{self.name.project}.{self.name.dataset}"
        unusable = f"{_SETTING} {name}: dataset {dataset} cannot be used"
        with translate_errors(unusable, _SETTING):
            try:
                _ = self.location  # asks the service
            except NotFound as error:
                raise self._refused(
                    f": there is no dataset {name.dataset} in project {name.project}; make it "
                    "where the bucket of the files is: "
                    f"`bq --location=REGION mk --dataset {name.project}:{name.dataset}`"
                ) from error
        fields = table_schema(pa.schema([*self.columns, *(extra or ())]))
        table = get_table(self.client, name)
        if table is None:
            return False
        if table.table_type != "TABLE":
            raise self._refused(f" is a {table.table_type.lower()}, which cannot be loaded")
        self._check_fields(table, fields)
        if name.partition:
            ours, parts = PARTITION_TYPES[len(name.partition)], table.time_partitioning
            if parts is None or parts.type_ != ours:
                theirs = "not partitioned by time" if parts is None else f"by {parts.type_.lower()}"
                raise self._refused(
                    f": ${name.partition} is a partition by {ours.lower()}, but the table is "
                    f"{theirs}"
                )
            if parts.field and parts.field.lower() not in {one["name"].lower() for one in fields}:
                raise self._refused(
                    f": the rows of ${name.partition} must have its time in their column "
                    f"{parts.field}, which these do not have: name it in extra_columns",
                    "extra_columns",
                )
        fails = self.load.disposition == "fail"
        fails = fails and not (recorded and _is_kind_loaded(self, recorded))
        count = self.rows() if fails else 0
        done = last_done(named_jobs(self.client, self.location, self.job_name)) if count else None
        if count and (recorded or not done or _is_newer(table, done.ended)):
            raise self._refused(
                f" has {counted(count, 'row')} already, and write_disposition is fail: choose "
                "append or truncate, or another table",
                "write_disposition",
            )
        self._check_vectors(table)
        if self.compared is not None and not recorded:
            jobs = named_jobs(self.client, self.location, self.job_name)
            if not any(self.is_ours(job) and not job.error_result for job in jobs):
                self.check_unchanged(table)
        return True

    def _check_fields(self, table: "Table", fields: Sequence[Field]) -> None:
        why = mismatch(fields, [field.to_api_repr() for field in table.schema])
        if why is not None:
            raise self._refused(
                f" cannot take these vectors: {why}; choose another table, or change its columns"
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
            raise self._refused(
                f" holds other vectors than this run would add: {differs}; choose another table, "
                "or write_disposition truncate to replace them",
                "write_disposition",
            )

    def describe(self, table: "Table") -> "Table":
        """Describes the vectors of a table; a description that somebody else wrote stays.

        Gives the table as it is then; PreconditionFailed if it changed since it was read.
        """
        ours = json.dumps({METADATA_KEY: dict(self.load.vectors)})
        is_others = table.description and described_settings(table.description) is None
        if is_others or table.description == ours:
            return table
        table.description = ours
        return self.client.update_table(table, ["description"], timeout=PATIENCE)


MOST_URIS = 10_000  # that a load job takes
_MOST_JOB_BYTES = 10**13  # a load job takes 15 TB, and six hours
_MOST_UPLOAD = 1 << 30  # of local files in one job
_STAGING_DAYS = 7
_LABEL = "bert_embed"  # of jobs, with their run
_SETTING = "output_table"
_DISPOSITIONS = {"append": "WRITE_APPEND", "truncate": "WRITE_TRUNCATE", "fail": "WRITE_EMPTY"}


def with_loads(verdict: Verdict, load: TableLoad, recorded: Mapping[str, Load]) -> Verdict:
    """Adds the loads of a run, or a problem, unless it has one or is refused.

    `recorded` are earlier loads.
    """
    if verdict.problems or verdict.refused:
        return verdict
    totals = verdict.totals

    def loaded(target: KindTable) -> Load:
        earlier = recorded.get(target.kind)
        same = earlier is not None and earlier.documents == totals.counts["embedded"]
        if earlier is not None and same and _is_kind_loaded(target, earlier):
            return replace(earlier, now=False)
        of_kind, stored = files[target.kind], target.columns
        if of_kind:
            with open_raw(join(load.output, next(iter(of_kind)))) as file:
                stored = pq.read_schema(file).remove_metadata()
        table = target.ensure(table_schema(stored))
        loader = _Loader(target, stored, table, earlier.job if earlier else None)
        return loader.load(job_files(load, of_kind), totals.counts["embedded"])

    try:
        with RedactErrors("load"), activity("loading the table"):
            files = _vector_files(load, totals)
            return replace(verdict, loads=_of_tables(load, loaded))
    except ValueError as error:
        return replace(verdict, problems=(str(error),))


def _of_tables(load: TableLoad, function: Callable[[KindTable], _Result]) -> dict[str, _Result]:
    """What a function gives for the table of each kind, first for that which may refuse rows."""
    results = {}
    with bigquery_client(load.project) as client:
        for kind in sorted(
            load.kinds, key=lambda kind: str(load.table_of(kind)) not in load.compared
        ):
            target = KindTable(client, load, kind)
            with translate_errors(f"{_SETTING} {target.name}", _SETTING):
                results[kind] = function(target)
    return results


def is_loaded(load: TableLoad, recorded: Mapping[str, Load]) -> bool:
    """Whether nothing is to be loaded of a finished run with these loads."""
    if not recorded.keys() >= {*load.kinds}:
        return False
    of_kinds = _of_tables(load, lambda target: _is_kind_loaded(target, recorded[target.kind]))
    return all(of_kinds.values())


def has_load_job(load: TableLoad) -> bool:
    """Whether a job has loaded vectors of the run, or is about to."""
    jobs = _of_tables(load, lambda one: named_jobs(one.client, one.location, one.job_name))
    return any(not job.error_result for of_kind in jobs.values() for job in of_kind)


def _is_kind_loaded(target: KindTable, recorded: Load) -> bool:
    table = get_table(target.client, target.name)
    if table is None or recorded.job is None:
        return table is not None
    if target.load.replaces or target.load.again:
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
        if job.ended is None:  # the answer to an upload says less
            job.reload(timeout=PATIENCE)
        rows = target.rows()
        modified = self._modified(job, rows, now, described=now and not is_kept)
        return Load(
            job=job.job_id,
            documents=documents,
            ended=job.ended.isoformat(timespec="seconds"),
            table_rows=rows,
            modified="" if modified is None else modified.isoformat(),
            now=now,
        )

    def _modified(self, job: Any, rows: int, now: bool, described: bool) -> datetime | None:
        """When a job changed the table; None if others may have changed it since.

        Those that add rows to what a job loaded that ended `now` do not count; after one that
        replaced all, `rows`, those that there are, must be its own.
        """
        from google.api_core.exceptions import PreconditionFailed

        table = self.target.client.get_table(self.target.name.path, timeout=PATIENCE)
        own_rows = getattr(job, "output_rows", None)  # which a copy does not tell
        is_other, replaces = table.modified > job.ended, self.target.load.replaces
        if (is_other and not now) or (replaces and (is_other or own_rows not in (None, rows))):
            return None
        try:
            return (self.target.describe(table) if described else table).modified
        except PreconditionFailed:
            return None

    def _run(self, name: str, start: Callable[[str], Any]) -> tuple[Any, bool]:
        """Runs the job that fills the table; InputError if another run's has filled it."""
        target = self.target

        def checked(job_id: str) -> Any:
            if self.replaced is None:
                target.check_unchanged()
            return start(job_id)

        settings = name, checked, self._is_void, self._disposition
        job, now = run_once(target.client, target.location, *settings)
        if target.compared is not None and not target.is_ours(job):
            raise target.changed(f"was filled by job {job.job_id} of another run")
        return job, now

    def _is_void(self, job: Any) -> bool:
        """Whether a load is repeated: replacing the rows does no harm, adding them twice does."""
        if self.target.load.replaces or job.job_id == self.replaced:
            return True
        return _is_newer(self.table, job.ended)

    def _run_staged(self, groups: Sequence[Sequence[str]]) -> tuple[Any, bool]:
        """Loads by several jobs into a staging table, then copies it, all rows or none."""
        from google.cloud import bigquery

        target = self.target
        client, location, name = target.client, target.location, target.job_name
        # Another folder's files may be grouped otherwise: its jobs are not these.
        parts = f"{target.named(target.load.run)}_{_hashed(json.dumps(groups))[:8]}"
        beside = f"{target.name.table}_{parts.removeprefix('bert_embed_')}"
        staging = replace(target.name, table=beside, partition="")
        done = last_done(named_jobs(client, location, name))
        if done is None or self._is_void(done):
            if self.replaced is None:
                target.check_unchanged()
            table = bigquery.Table(staging.path, schema=self.table.schema)
            table.expires = datetime.now(UTC) + timedelta(days=_STAGING_DAYS)
            client.create_table(table, exists_ok=True, timeout=PATIENCE)
            table = client.get_table(staging.path, timeout=PATIENCE)
            for number, group in enumerate(groups):
                start = partial(self._start, group, staging=staging.path)
                run_once(
                    client,
                    location,
                    f"{parts}_{number:05d}",
                    start,
                    lambda job: _is_newer(table, job.ended),
                    _DISPOSITIONS["append"],
                )
        config = bigquery.CopyJobConfig(
            write_disposition=self._disposition, labels={_LABEL: target.load.run}
        )
        copied = self._run(
            name,
            lambda job_id: client.copy_table(
                staging.path,
                target.name.destination,
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

        names, disposition = {name.lower() for name in self.stored.names}, self._disposition
        if staging:
            disposition = _DISPOSITIONS["append"]
        # What replaces a table's rows also replaces its columns: those that the files lack stay.
        whole = disposition == _DISPOSITIONS["truncate"]
        options = bigquery.ParquetOptions()
        options.enable_list_inference = True  # else a list becomes records of records
        config = bigquery.LoadJobConfig(
            source_format="PARQUET",
            schema=[field for field in self.table.schema if whole or field.name.lower() in names],
            write_disposition=disposition,
            labels={_LABEL: self.target.load.run},
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


def job_files(load: TableLoad, files: Mapping[str, int]) -> list[list[str]]:
    """The files of each job; one empty job if there are no files and the table must be emptied."""
    most = _MOST_JOB_BYTES if is_remote(load.output) else _MOST_UPLOAD
    groups: list[list[str]] = []
    left = -1
    for name, size in files.items():
        if size > left or len(groups[-1]) == MOST_URIS:
            groups.append([])
            left = max(most, size)
        groups[-1].append(name)
        left -= size
    return groups or ([[]] if load.replaces else [])


@contextmanager
def _one_file(paths: Sequence[str], schema: pa.Schema) -> Iterator[BinaryIO]:
    """Joins local files to one, because each upload is a job, and a table has a daily limit.

    InputError if a file is damaged.
    """
    with tempfile.TemporaryFile() as joined:
        with pq.ParquetWriter(joined, schema, compression="none", use_dictionary=False) as writer:
            for path in paths:
                try:
                    with open_parquet(path) as file:
                        for number in range(file.metadata.num_row_groups):
                            table = file.read_row_group(number, columns=schema.names)
                            writer.write_table(table.select(schema.names).cast(schema))
                except (pa.ArrowException, OSError, KeyError) as error:
                    if getattr(error, "errno", None) is not None:  # of the file system, not Arrow
                        raise
                    raise InputError(f"{path} is damaged ({error}): nothing was loaded") from error
        joined.seek(0)
        yield joined
