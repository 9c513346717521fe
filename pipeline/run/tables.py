"""Resolves the BigQuery tables of a run, and the earlier outputs that it skips."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bert_embed.base.errors import InputError, StorageError, required
from bert_embed.bundle.cache import cache_folder
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import NO_ID_COLUMN, RELATIVE_PLACES, Options
from bert_embed.pipeline.run.columns import check_extra_name, named_columns
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import Source, Work
from bert_embed.pipeline.runners.beam import BeamFlags
from bert_embed.results.chain import earlier_runs
from bert_embed.results.names import kinds_of
from bert_embed.results.run_record import Load, QueryRows, read_record
from bert_embed.storage.files import FileInfo, join
from bert_embed.storage.gcs import QUICK
from bert_embed.transforms.bigquery.client import (
    PARTITION_TYPES,
    PATIENCE,
    NoCredentials,
    TableName,
    bigquery_client,
    check_column,
    dry_query,
    first_request,
    get_table,
    table_name,
    translate_errors,
)
from bert_embed.transforms.bigquery.fields import create_statement, table_schema, vector_schema
from bert_embed.transforms.bigquery.load import KindTable, TableLoad
from bert_embed.transforms.bigquery.read import TableRequest, table_state
from bert_embed.transforms.listing import listing_digest
from bert_embed.transforms.parts import InputFile
from bert_embed.transforms.read.columns import Columns, no_column
from bert_embed.transforms.read.records import CAN_BE

if TYPE_CHECKING:
    from google.cloud.bigquery import Client


_DATASET = "_bert_embed"  # the underscore keeps it out of the console's lists
_KEPT_DAYS = 7
_INTEGERS = ("INTEGER", "INT64")
_LISTED = {
    "STRING": pa.string(),
    "INTEGER": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
}
_TYPES = _LISTED | {
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}


class QueryNotRun(Exception):
    """A dry run leaves out the query that would give the rows; its columns are checked."""


def job_project(options: Options, table: TableName | None) -> str:
    """The project that runs jobs and pays: `--project`, else the table's own project."""
    project = BeamFlags.of(options.beam_args)["project"] or (table and table.project)
    if not project:
        raise UsageError("--query requires --project, the project that runs it and pays for it")
    return str(project)


def find_input(options: Options, state: OutputState) -> Source:
    """The table to read, the query's result if there is a query.

    QueryNotRun: a dry run of a query that has not run.
    """
    if options.id_column in (NO_ID_COLUMN, RELATIVE_PLACES):
        raise UsageError("--id_column must be a column: rows of a table have no place")
    name, query, expired, shown = None, options.query, None, "--query"
    if query is None:
        name, shown = table_name(options.input[0], "input"), f"--input {options.input[0]}"
        if name.partition:
            raise UsageError(f"{shown} names a partition; select it with --query")
        shown = f"--input {name}"
    with bigquery_client(job_project(options, name)) as client:
        if options.limit is not None:
            # The query may end with a comment, which only the end of its line ends.
            rows = f"`{name.path}`" if name else f"(\n{(query or '').rstrip().rstrip(';')}\n)"
            query = f"SELECT * FROM {rows} LIMIT {options.limit}"
        if query is not None:
            with translate_errors("--query"):
                checked = dry_query(client, query)  # before it costs anything
            if checked.statement_type not in (None, "SELECT"):
                raise UsageError(f"--query must be one SELECT, this is {checked.statement_type}")
            if checked.schema:
                schema = tuple(field.to_api_repr() for field in checked.schema)
                _table_columns(options, schema, shown)
            name, expired = _query_rows(client, query, checked.location or "US", options, state)
        with translate_errors(f"{shown} cannot be read"):
            name = required(name, "table")
            facts = expired or _facts(client, name, shown)
            # A complete run whose rows expired keeps its fingerprint, and reads nothing.
            columns = _table_columns(options, facts.schema, shown)
            snapshot = facts.modified
            if not expired:
                snapshot, count = _count(client, name)
                # The rest of a wide table must not count: its blocks would hold next to no text.
                names = ", ".join(f"`{column}`" for column in columns.names)
                job = dry_query(client, f"SELECT {names} FROM `{name.path}`")
                read = min(facts.bytes, job.total_bytes_processed or facts.bytes)
                facts = replace(facts, rows=count, bytes=read)
        project = client.project
    # As an entry of a listing: name, size and time identify its state.
    info = FileInfo(f"{name} with {facts.rows} rows", facts.bytes, facts.modified)
    file = InputFile(info, "bigquery", None, facts.bytes)
    return Source(
        patterns=(str(name),),
        files=[file],
        digest=listing_digest([file]),
        columns=columns,
        documents=facts.rows,
        table=TableRequest(name, snapshot, facts.rows, facts.bytes, project, columns),
        query_rows=None if query is None else facts,
        expired=expired is not None,
    )


def _facts(client: "Client", name: TableName, shown: str) -> QueryRows:
    """Size, time and schema of a table, its rows not yet counted."""
    table = get_table(client, name, **first_request())
    if table is None:
        raise UsageError(f"{shown}: no such table exists, and no file of that name either")
    cure = f"read it with --query 'SELECT * FROM `{name.path}`"
    if table.table_type not in ("TABLE", "SNAPSHOT"):
        what = f"a {table.table_type.lower()}, which has no rows of its own"
        raise UsageError(f"{shown} is {what}: {cure}'")
    if table.require_partition_filter:
        what = "read with a filter on its partitions alone"
        raise UsageError(f"{shown} is {what}: {cure} WHERE …'")
    schema = tuple(field.to_api_repr() for field in table.schema)
    return QueryRows(name.path, 0, table.num_bytes or 0, table.modified.timestamp(), schema)


def _count(client: "Client", name: TableName) -> tuple[float, int]:
    """A moment by the service's own clock, and how many rows the table had then."""

    def one(sql: str) -> Any:
        return next(iter(client.query(sql, timeout=PATIENCE).result())).found

    now = one("SELECT CURRENT_TIMESTAMP() AS found")
    moment = now if isinstance(now, datetime) else datetime.now(UTC)
    at = moment.astimezone(UTC).isoformat(sep=" ")
    rows = f"SELECT COUNT(*) AS found FROM `{name.path}` FOR SYSTEM_TIME AS OF TIMESTAMP '{at}'"
    return moment.timestamp(), int(one(rows))


def _table_columns(options: Options, schema: tuple[dict[str, Any], ...], shown: str) -> Columns:
    """The columns that the options name, of usable types; `shown` names the table."""
    columns = replace(named_columns(options), id=options.id_column or "id")
    present = {  # types, and whether these are REPEATED
        field["name"]: (field["type"].upper(), field.get("mode", "").upper() == "REPEATED")
        for field in schema
    }

    def of_column(flag: str, name: str) -> tuple[str, bool, str]:
        if "." in name:
            field = f"SELECT {name} AS {name.rpartition('.')[2]}, …"
            raise UsageError(f"--{flag} {name}: fields of a STRUCT are read with --query '{field}'")
        check_column(name, flag)
        if name not in present:
            raise no_column(flag, name, f"no column of {shown}", present)
        kind, often = present[name]
        return kind, often, f"--{flag} {name} of {shown} is {kind}{' REPEATED' * often}"

    lists = ["text_column"] if len(columns.texts) == 1 else []
    for name, flag in {name: flag for flag, name in reversed(columns.requested)}.items():
        kind, often, said = of_column(flag, name)
        is_id = flag == "id_column"
        if kind not in ("STRING", *_INTEGERS * is_id) or (often and flag not in lists):
            raise UsageError(f"{said}; it must be STRING{' or INT64' * is_id}")
    extra: dict[str, pa.DataType] = {}
    for name in options.extra_columns or ():
        check_extra_name(name, options.keep_text)
        kind, often, said = of_column("extra_columns", name)
        value_type = (_LISTED if often else _TYPES).get(kind)
        if value_type is None:
            raise UsageError(f"{said}; {CAN_BE}")
        extra[name] = pa.list_(value_type) if often else value_type
    id_type = "int64" if present[columns.id or "id"][0] in _INTEGERS else "string"
    return replace(columns, extra=pa.schema(extra.items()) if extra else None, id_type=id_type)


def _query_rows(
    client: "Client", query: str, location: str, options: Options, state: OutputState
) -> tuple[TableName, QueryRows | None]:
    """The table with the rows of a query, which runs unless an earlier attempt of this run did it.

    The table's name follows from the query and the output folder. While the folder holds an
    unfinished run, the same command reads the same rows again; our own dataset keeps them for
    seven days. Of a complete run that has outlived its rows, the second value is what run.json
    says of them; else it is None.
    """
    dataset = f"{client.project}.{_DATASET}_{location.lower().replace('-', '_')}"
    digest = hashlib.sha256(f"{query}\n{state.folder.path}".encode()).hexdigest()[:24]
    name = table_name(f"{dataset}.query_{digest}", "query")
    with translate_errors("--query"):
        exists = get_table(client, name) is not None
    record = state.record
    expired = record.query_rows if record and not exists and not options.overwrite else None
    if record is not None and expired is not None and expired.name == name.path:
        if record.is_done:
            return name, expired
        raise UsageError(
            f"{state.name} holds an unfinished run whose rows have expired: BigQuery "
            f"keeps them for {_KEPT_DAYS} days; --overwrite starts again with the query"
        )
    if not exists or record is None or (record.is_done and options.overwrite):
        if options.dry_run:
            what = "the --query" if options.limit is None else "a query for --limit"
            raise QueryNotRun(f"a dry run does not run {what}")
        with translate_errors("--query"):
            _run_query(client, query, name, location, options)
    return name, None


def _run_query(
    client: "Client", query: str, name: TableName, location: str, options: Options
) -> None:
    """Fills a table of our own dataset, which expires, and the workers' account may read."""
    from google.cloud import bigquery

    dataset = bigquery.Dataset(f"{name.project}.{name.dataset}")
    dataset.location = location
    dataset.default_table_expiration_ms = _KEPT_DAYS * 24 * 3600 * 1000
    dataset = client.create_dataset(dataset, exists_ok=True, timeout=PATIENCE)
    account = BeamFlags.of(options.beam_args)["service_account_email"]
    entries = list(dataset.access_entries)
    if account and account not in {entry.entity_id for entry in entries}:
        entries.append(bigquery.AccessEntry("READER", "userByEmail", account))
        dataset.access_entries = entries
        client.update_dataset(dataset, ["access_entries"], timeout=PATIENCE)
    config = bigquery.QueryJobConfig(
        destination=name.path, write_disposition="WRITE_TRUNCATE", use_query_cache=False
    )
    client.query(query, job_config=config, location=location, timeout=PATIENCE).result()


def with_folder(options: Options) -> Options:
    """Fills in where the files that a table is loaded from are kept, as `--output` does not say.

    Its name depends on the input and the table, so the same command continues its run.
    """
    decisive = [options.input, options.query, options.output_table]
    name = "loads/" + hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
    place = BeamFlags.of(options.beam_args)["temp_location"] or str(cache_folder())
    return replace(options, output=join(place, name))


def find_load(work: Work, name: TableName, state: OutputState, loaded: bool) -> TableLoad:
    """The load of a run's vectors into a table, which is checked.

    `loaded` says whether the output may be asked for what an earlier attempt loaded.
    """
    for column in work.columns.extra or ():
        check_column(column.name, "extra_columns")
    load = _table_load(work, name, state)
    _check_rows_stay(load, work)
    found = state.record if loaded else None
    is_same = found is not None and (found.run, found.table) == (load.run, load.requested)
    loads = found.loads if found and is_same else {}
    try:
        return _checked_load(load, work, {kind: one for kind, one in loads.items() if one.job})
    except (NoCredentials, StorageError) as error:
        if not work.options.dry_run:
            raise
        return replace(load, states=dict.fromkeys(load.kinds, f"was not looked at: {error}"))


def _checked_load(load: TableLoad, work: Work, recorded: Mapping[str, Load]) -> TableLoad:
    """The load with its tables' states; `recorded` are those of kinds that were done."""
    extra = work.columns.extra
    with bigquery_client(load.project) as client:
        with translate_errors(f"--output_table: jobs of project {load.project} cannot be run"):
            dry_query(client, "SELECT 1")  # which costs nothing
        states = {}
        for kind in load.kinds:
            with translate_errors(f"output_table {load.table_of(kind)}", "output_table"):
                table = KindTable(client, load, kind)
                how = "exists" if table.check(extra, recorded.get(kind)) else "is to be made"
                states[kind] = f"{how}, in {table.location}"
                if work.options.job.runs_here:
                    _check_may_load(client, load.table_of(kind))
    return replace(load, states=states)


def load_plan(work: Work, load: TableLoad) -> Iterator[str]:
    """The tables of a load for people, with SQL that would make them."""
    for kind in load.kinds:
        name = load.table_of(kind)
        yield f"table {name.destination} {load.states[kind]}; rows: {load.disposition}"
        columns = vector_schema(kind, load.pieces, load.texts, load.vectors)
        schema = pa.schema([*columns, *(work.columns.extra or ())])
        partition = PARTITION_TYPES[len(name.partition)] if name.partition else ""
        yield from create_statement(name.path, partition, table_schema(schema))


def _check_may_load(client: "Client", name: TableName) -> None:
    """UsageError if rows may not be added to a table with the credentials of this machine."""
    from google.api_core.exceptions import GoogleAPIError
    from requests import RequestException

    wanted = "bigquery.tables.updateData"
    # There is no table yet, or the service does not say: the load itself will.
    with suppress(GoogleAPIError, RequestException, OSError):
        held = client.test_iam_permissions(name.path, [wanted], retry=None, timeout=QUICK)
        if wanted not in held.get("permissions", ()):
            raise UsageError(
                f"--output_table {name} lacks the permission {wanted} for the credentials of this "
                "machine: give them the role BigQuery Data Editor on its dataset"
            )


def _table_load(work: Work, name: TableName, state: OutputState) -> TableLoad:
    options = work.options
    states = {one.place: one.digest.split()[2:] for one in work.earlier if one.files is None}
    return TableLoad(
        output=state.folder.path,
        run=work.fingerprint,
        table=name,
        disposition=options.write_disposition or "append",
        project=job_project(options, name),
        kinds=kinds_of(work.metadata),
        pieces=work.text_spec.pieces,
        texts=work.text_spec.keep_text,
        vectors=work.metadata,
        again=options.overwrite,
        compared={place: state[0] for place, state in states.items() if state},
    )


def since_compared(work: Work, state: OutputState) -> Work:
    """A run that loads a table, and to which belongs the state of those that it skips, too.

    So it is another run once others changed the table. One that the output holds keeps the state
    that it began with, unless it is begun again.
    """
    options, skipped = work.options, work.skipped
    if skipped is None or all(one.files is not None for one in skipped.outputs):
        return work
    record = state.record
    load = _table_load(work, table_name(options.output_table or "", "output_table"), state)
    targets = {str(load.table_of(kind)) for kind in load.kinds}
    same = {one.place: one.digest for one in work.earlier if one.place in targets}
    states = {place: f"{digest} {table_state(place)}" for place, digest in same.items()}
    kept: dict[str, str] = {}
    if record is not None and (record.is_done or not options.overwrite):
        with suppress(InputError):  # its list was lost: it is begun again
            runs = earlier_runs(state.folder.path, record)
            kept = {run.output: run.listing for run in runs if run.output in same}
    begun = {place: one for place, one in kept.items() if one.startswith(same[place])}

    def in_states(digests: dict[str, str]) -> Work:
        outputs = [replace(one, digest=digests.get(one.place, one.digest)) for one in work.earlier]
        return replace(work, skipped=replace(skipped, outputs=tuple(outputs)))

    again, new = in_states(states | begun), in_states(states)
    return again if record is not None and again.fingerprint == record.run else new


def _check_rows_stay(load: TableLoad, work: Work) -> None:
    """Refuses to load over the rows that the run reads, or to replace those that it skips."""
    targets = {str(table): table for table in map(load.table_of, load.kinds)}
    if work.table is not None and str(work.table.table) in targets:
        raise UsageError(
            f"--output_table {work.table.table} is the --input, whose rows would be replaced, or "
            "stand there twice: choose another table"
        )
    for one in work.earlier if load.disposition == "truncate" else ():
        names: Iterable[str] = [one.place]  # a table, or those that an output was loaded into
        if one.files is not None:
            record = read_record(one.place)
            names = record.table.tables.values() if record and record.table else ()
        for theirs in (table_name(name, "skip_existing") for name in names):
            ours = targets.get(str(theirs))
            if ours and (one.files is None or ours.partition in ("", theirs.partition)):
                raise UsageError(
                    f"--write_disposition truncate would remove the rows of --skip_existing "
                    f"{one.place} from --output_table {ours.destination}, and this run does not "
                    "embed them again: choose append, or another table"
                )
