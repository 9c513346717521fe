"""Registers the Parquet files of runs, as they lie, in a table of Iceberg or of Delta Lake.

A run is one commit: it names the run's files. If the run continues one that the table has, the
commit also takes out the rows whose documents it has anew, or marks as deleted: files with such
rows are replaced by copies without them, below DEST. A run that the table knows by its fingerprint
is not registered again.
"""

import importlib
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from xxhash import xxh3_64_hexdigest

from bert_embed.base.environment import requires
from bert_embed.base.errors import StorageError, counted, required
from bert_embed.bundle.fingerprints import difference
from bert_embed.models.heads.head import EMBEDDING
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import alone_in
from bert_embed.pipeline.options.commands import TARGETS, ExportOptions
from bert_embed.pipeline.run.output import lies_in, record_of_run
from bert_embed.results.names import vectors_of
from bert_embed.results.outputs import Output, deleted_rows, each_file, later_outputs, open_outputs
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import is_remote, join, make_folder, open_raw, write_whole

_RUN, _EARLIER, _TABLE = "bert-embed.run", "bert-embed.earlier", "bert-embed.table"
_NAMESPACE = "default"  # of the tables in Iceberg's catalog
_COPIES = "rewritten"  # the folder of files that replace others in a table of Delta Lake
# VACUUM removes what lies below the table's folder and is not of the table: the other files of the
# outputs, too. It leaves what is younger than this.
_KEPT = {"delta.deletedFileRetentionDuration": "interval 36500 days"}
_TYPES = (  # beside times
    *(types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64),
    *(types.is_date32, types.is_decimal128, types.is_string, types.is_large_string),
    *(types.is_binary, types.is_large_binary),
)
_NAMES = {"iceberg": "Iceberg", "delta": "Delta Lake"}
# Columns that Spark and others show of every row of Iceberg
_RESERVED = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id")
# What their libraries take for a part of an address in the name of a table's folder
_STRANGE = {"iceberg": r"%[0-9A-Fa-f]{2}|[#?]", "delta": r"%[0-9A-Fa-f]{2}|\\"}


class _File(NamedTuple):
    """A file of a run."""

    path: str
    rows: int
    bytes: int
    schema: pa.Schema


@dataclass(frozen=True)
class _Run:
    """What a run adds to a table, and whose rows it takes out."""

    output: Output
    granularity: str
    files: list[_File]

    @property
    def fingerprint(self) -> str:
        """The name by which a table knows it."""
        return self.record.run

    @property
    def record(self) -> RunRecord:
        """Of the run."""
        return required(self.output.record, "record of the run")

    @property
    def rows(self) -> int:
        """How many it adds."""
        return sum(file.rows for file in self.files)

    @property
    def noted(self) -> dict[str, str]:
        """What its commit says of it."""
        return {_RUN: self.fingerprint, _EARLIER: " ".join(sorted(self.output.earlier))}

    def ids(self) -> pa.Array:
        """The ids of what it has anew, or marks as deleted, each once."""
        columns = [batch["id"] for batch in deleted_rows(self.output)]
        for file in self.files:
            with open_raw(file.path) as stored:
                columns += pq.read_table(stored, columns=["id"])["id"].chunks
        return pc.unique(pa.chunked_array(columns)) if columns else pa.array([], pa.string())


class _Lake(ABC):
    """A table of a lake, which may not exist yet."""

    _dest: str  # the folder

    def described(self) -> dict[str, Any] | None:
        """What it holds, as `create` was told; None: it does not exist. UsageError if not ours."""
        if (settings := self._settings()) is None:
            return None
        if (stored := settings.get(_TABLE)) is None:
            raise UsageError(
                f"DEST {self._dest} is a table that no export made; choose another DEST or --table"
            )
        return orjson.loads(stored)

    @abstractmethod
    def _settings(self) -> Mapping[str, str] | None:
        """The properties of the table; None: it does not exist."""

    @abstractmethod
    def create(self, described: Mapping[str, Any], schema: pa.Schema) -> None:
        """Makes it, without rows."""

    @abstractmethod
    def known(self, names: Set[str]) -> dict[str, set[str]]:
        """The fingerprints of the runs that it has, with those of the runs that each continues.

        Of these names it is sure; of other runs it may have forgotten some.
        """

    @abstractmethod
    def commit(self, run: _Run, replaces: bool) -> int:
        """Adds a run in one commit, which may replace rows; returns how many it took out."""


def register(options: ExportOptions) -> list[str]:
    """Registers outputs in a table, the earlier ones first; says of each what was done."""
    if options.partial:
        raise UsageError(f"--partial is not for --to {options.to}, which takes complete runs alone")
    named = _NAMES[options.to]
    if found := re.search(_STRANGE[options.to], options.dest):
        raise UsageError(
            f"DEST {options.dest}: {named} takes no folder with {found[0]} in its name"
        )
    granularity = _granularity(options)
    outputs = open_outputs(options.source, granularity)
    later = later_outputs(outputs)
    in_order = sorted(range(len(outputs)), key=lambda number: -len(later[number]))
    runs = [_run(outputs[number], granularity, named) for number in in_order]
    for run in runs:
        _check_columns(run, named)
    with _errors(named):
        lake = _Iceberg(options) if options.to == "iceberg" else _Delta(options)
        with alone_in(options.dest):
            return list(_registered(lake, runs, options.dest))


def _registered(lake: _Lake, runs: Sequence[_Run], dest: str) -> Iterator[str]:
    described = lake.described()
    first = next((run for run in runs if run.files), runs[0])
    wanted, where = described, f"DEST {dest} is a table of"
    if wanted is None:
        wanted, where = _description(first), f"{first.output.folder} holds"
    for run in runs:
        _check_same(run, wanted, where)
    names = {name for run in runs for name in (run.fingerprint, *run.output.earlier)}
    known = {} if described is None else lake.known(names)
    there = set(known)
    for run in runs:
        _check_order(run, there, dest)
        there.add(run.fingerprint)
    for run in runs:
        folder = run.output.folder
        if run.fingerprint in known:
            yield f"{dest}: {folder} is already registered"
            continue
        if described is None:
            if not first.files:
                raise UsageError(f"{folder} holds no vectors to export")
            described = wanted
            lake.create(described, first.files[0].schema)
        removed = lake.commit(run, replaces=bool(run.output.earlier & known.keys()))
        known[run.fingerprint] = run.output.earlier
        yield (
            f"{dest}: registered {folder}, {counted(run.rows, 'row')} in "
            f"{counted(len(run.files), 'file')}"
            + (f", {counted(removed, 'row')} replaced or deleted" if removed else "")
        )


def _granularity(options: ExportOptions) -> str:
    """The vectors to register: of several kinds the first that the output holds."""
    record = record_of_run(options.source[0])
    held = vectors_of(record.vectors or {})
    first = next((kind for kind in TARGETS[options.to] if kind in held), "dense")
    return options.granularity if first == "dense" else first


def _run(output: Output, granularity: str, named: str) -> _Run:
    def described(path: Path) -> _File:
        if path.suffix != ".parquet":
            raise UsageError(
                f"{output.folder} holds {path.suffix} files, {named} registers Parquet: embed with "
                "--output_format parquet"
            )
        name = f"{path.parent.name}/{path.name}"
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow.remove_metadata()
            return _File(
                join(output.folder, name), file.metadata.num_rows, path.stat().st_size, schema
            )

    return _Run(output, granularity, list(each_file(output.folder, granularity, described)))


def _description(run: _Run) -> dict[str, Any]:
    schema = run.files[0].schema if run.files else ()
    columns = {field.name: str(field.type) for field in schema}
    return {"granularity": run.granularity, "settings": run.output.settings, "columns": columns}


def _check_columns(run: _Run, named: str) -> None:
    """UsageError if a table cannot hold the columns of a run."""
    folder, dtype = run.output.folder, run.output.settings["output_dtype"]
    schema = run.files[0].schema if run.files else pa.schema([])
    reserved = {*_RESERVED, *(f"{name}.element" for name in schema.names)}  # as lists have theirs
    for field in schema:
        if named == _NAMES["iceberg"] and field.name in reserved:
            raise UsageError(
                f"{folder}: column {field.name} is one that {named} has of every row or list: "
                "rename it in the input, or embed without it"
            )
        if (kind := _unfit(field.type)) is not None:
            advice = "name another type in --extra_columns, and embed again"
            if field.name == EMBEDDING:
                kind, advice = f"{kind} ({dtype})", "embed with --output_dtype float32 or int8"
            raise UsageError(
                f"{folder}: column {field.name} is of {kind}, which {named} has no type for: "
                f"{advice}"
            )


def _check_same(run: _Run, described: Mapping[str, Any], there: str) -> None:
    """UsageError if a table, or the output that it is made for, holds other vectors than a run."""
    folder = run.output.folder
    differs = difference(run.output.settings, described["settings"])
    if described["granularity"] != run.granularity:
        differs = f"of {described['granularity']} there, of {run.granularity} here"
    if differs is None and run.files and described["columns"] != _description(run)["columns"]:
        differs = f"columns {', '.join(described['columns'])}, or their types"
    if differs is not None:
        raise UsageError(f"{there} other vectors than {folder}: {differs}")


def _unfit(kind: pa.DataType) -> str | None:
    """The type in a column that lakes lack; None if they have all."""
    if pa.types.is_nested(kind) and not pa.types.is_map(kind):
        children = (kind.field(number).type for number in range(kind.num_fields))
        return next(filter(None, map(_unfit, children)), None)
    is_time = pa.types.is_timestamp(kind) and kind.unit in ("us", "ms", "s")
    fits = is_time or any(is_kind(kind) for is_kind in _TYPES)
    return None if fits else str(kind)


def _check_order(run: _Run, there: Set[str], dest: str) -> None:
    """UsageError if a run continues one that is not there: its rows would not be all."""
    if run.fingerprint in there:
        return
    for one in run.record.input.earlier:
        if one.run is not None and one.run not in there:
            raise UsageError(
                f"DEST {dest} lacks {one.output}, which {run.output.folder} continues: register "
                "that first, or both in one command"
            )


def _encoded(described: Mapping[str, Any]) -> str:
    return orjson.dumps(described, option=orjson.OPT_SORT_KEYS).decode()


class _Iceberg(_Lake):
    """A table in a catalog of SQLite, which lies in DEST with the table's own files."""

    def __init__(self, options: ExportOptions) -> None:
        if is_remote(options.dest):
            raise UsageError(
                f"--to iceberg keeps its catalog in a file of SQLite: DEST must be a local folder, "
                f"got {options.dest}"
            )
        if "." in options.table:
            raise UsageError(
                f"--table {options.table}: tables of Iceberg are in the namespace {_NAMESPACE} "
                "here, give a name without dots"
            )
        with requires("--to iceberg", "pyiceberg[sql-sqlite]"):
            catalogs = importlib.import_module("pyiceberg.catalog.sql")
            importlib.import_module("sqlalchemy")
            self._expressions: Any = importlib.import_module("pyiceberg.expressions")
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it counts columns without bounds
        self._dest, self._name = options.dest, f"{_NAMESPACE}.{options.table}"
        self._catalogs: Any = catalogs
        self._file = join(options.dest, "catalog.db")

    @cached_property
    def _catalog(self) -> Any:
        make_folder(self._dest)
        return self._catalogs.SqlCatalog(
            "bert_embed", uri=f"sqlite:///{self._file}", warehouse=f"file://{self._dest}"
        )

    def _table(self) -> Any:
        return self._catalog.load_table(self._name)

    def _settings(self) -> Mapping[str, str] | None:
        exists = os.path.exists(self._file) and self._catalog.table_exists(self._name)
        return self._table().properties if exists else None

    def create(self, described: Mapping[str, Any], schema: pa.Schema) -> None:
        self._catalog.create_namespace_if_not_exists(_NAMESPACE)
        self._catalog.create_table(self._name, schema, properties={_TABLE: _encoded(described)})

    def known(self, names: Set[str]) -> dict[str, set[str]]:
        prefix = f"{_RUN}."  # snapshots expire, properties do not
        return {
            name.removeprefix(prefix): set(earlier.split())
            for name, earlier in self._table().properties.items()
            if name.startswith(prefix)
        }

    def commit(self, run: _Run, replaces: bool) -> int:
        table = self._table()
        stale, removed = self._stale(table, run) if replaces else ([], 0)
        with table.transaction() as transaction:
            if stale:
                gone = self._expressions.In("id", stale)
                transaction.delete(gone, snapshot_properties=run.noted)
            if run.files:
                paths = [file.path for file in run.files]
                transaction.add_files(paths, snapshot_properties=run.noted)
            transaction.set_properties({f"{_RUN}.{run.fingerprint}": run.noted[_EARLIER]})
        return removed

    def _stale(self, table: Any, run: _Run) -> tuple[list[str | int], int]:
        """The ids whose rows go, and how many rows these are."""
        ids, stale, removed = run.ids(), set(), 0
        for batch in table.scan(selected_fields=("id",)).to_arrow_batch_reader():
            is_stale, count = _among(batch["id"], ids)
            stale |= set(batch["id"].filter(is_stale).to_pylist())
            removed += count
        return sorted(stale), removed


class _Delta(_Lake):
    """A table whose log lies in DEST, above its files."""

    def __init__(self, options: ExportOptions) -> None:
        with requires("--to delta", "deltalake"):
            self._library: Any = importlib.import_module("deltalake")
            self._actions: Any = importlib.import_module("deltalake.transaction")
        self._dest = _real(options.dest)
        for folder in options.source:
            if not lies_in(folder, options.dest):
                raise UsageError(
                    f"--to delta takes files below the table's own folder, and {folder} is not in "
                    f"DEST {options.dest}: give a folder above the outputs"
                )

    def _table(self) -> Any:
        return self._library.DeltaTable(self._dest)

    def _settings(self) -> Mapping[str, str] | None:
        exists = self._library.DeltaTable.is_deltatable(self._dest)
        return self._table().metadata().configuration if exists else None

    def create(self, described: Mapping[str, Any], schema: pa.Schema) -> None:
        self._library.DeltaTable.create(
            self._dest,
            schema=self._library.Schema.from_arrow(schema),
            configuration={_TABLE: _encoded(described), **_KEPT},
            raise_if_key_not_exists=False,
        )

    def known(self, names: Set[str]) -> dict[str, set[str]]:
        table = self._table()
        known = {
            commit[_RUN]: set(commit.get(_EARLIER, "").split())
            for commit in table.history()
            if _RUN in commit
        }
        for name in names:  # the log forgets commits, but no transaction
            if table.transaction_version(_transaction(name)) is not None:
                known.setdefault(name, set())
        return known

    def commit(self, run: _Run, replaces: bool) -> int:
        ended = datetime.fromisoformat(required(run.record.ended, "end of the run"))
        table, now = self._table(), int(ended.timestamp() * 1000)
        actions, removed = [], 0
        paths = self._paths(table) if replaces else []
        ids = run.ids() if paths else None
        for path in paths:
            copy, rows = self._without(path, run, ids)
            if copy is None:
                continue
            actions.append(self._actions.RemoveAction(path, True, now))
            removed += rows
            actions += [self._added(copy, now)] * (copy.rows > 0)
        actions += [self._added(file, now) for file in run.files]
        marks = [self._actions.Transaction(_transaction(run.fingerprint), 0)]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            commit_properties=self._actions.CommitProperties(run.noted, app_transactions=marks),
        )
        return removed

    def _paths(self, table: Any) -> list[str]:
        """The table's files, below DEST."""
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise UsageError(
                f"DEST {self._dest} has deletion vectors, which another program made: have it "
                "purge them (REORG TABLE … APPLY (PURGE)), or choose another DEST"
            )
        # The log has them as parts of an address, which the library makes of what it is given.
        return list(map(unquote, pa.table(table.get_add_actions())["path"].to_pylist()))

    def _without(self, path: str, run: _Run, ids: Any) -> tuple[_File | None, int]:
        """A copy of a file without the rows that go, and how many these are; None if none go.

        Where all go nothing is written, and the copy has no rows.
        """
        place = join(self._dest, path)
        with open_raw(place) as stored, pq.ParquetFile(stored) as file:
            gone, count = _among(file.read(["id"])["id"], ids)
            if not count:
                return None, 0
            staying = file.read().filter(pc.invert(gone))
        if not staying.num_rows:
            return _File(place, 0, 0, staying.schema), count
        name = f"{run.fingerprint}-{xxh3_64_hexdigest(path.encode())}.parquet"
        copy = join(join(self._dest, _COPIES), name)
        if not is_remote(copy):
            make_folder(join(self._dest, _COPIES))
        size = write_whole(copy, lambda out: pq.write_table(staying, out, compression="zstd")).size
        return _File(copy, staying.num_rows, size, staying.schema), count

    def _added(self, file: _File, now: int) -> Any:
        path = _real(file.path).removeprefix(join(self._dest, ""))
        stats = orjson.dumps({"numRecords": file.rows}).decode()
        return self._actions.AddAction(path, file.bytes, {}, now, True, stats)


def _among(ids: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> tuple[Any, int]:
    """Arrow booleans, which ids are among the wanted ones; how many are."""
    is_among = pc.is_in(ids, value_set=wanted.cast(ids.type))
    return is_among, pc.sum(is_among).as_py() or 0


def _real(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def _transaction(fingerprint: str) -> str:
    """What Delta Lake calls the program that commits a run, and no other."""
    return f"{_RUN}.{fingerprint}"


@contextmanager
def _errors(named: str) -> Iterator[None]:
    """Says in one sentence what a lake's library could not do."""
    known: list[type[Exception]] = []
    for module, name in (
        ("deltalake.exceptions", "DeltaError"),
        ("pyiceberg.exceptions", "CommitFailedException"),
        ("sqlalchemy.exc", "SQLAlchemyError"),
    ):
        try:
            known.append(getattr(importlib.import_module(module), name))
        except ImportError:  # not the library of this target
            continue
    try:
        yield
    except tuple(known) as error:
        raise StorageError(f"{named} failed: {' '.join(str(error).split())}") from None
