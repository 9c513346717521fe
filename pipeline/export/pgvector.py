"""Copies rows into a table of PostgreSQL with pgvector, whose comment says of which export it is.

One transaction makes the table, its rows and its index, so a killed export leaves nothing.
"""

import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, StorageError
from bert_embed.models.heads.vectors import SparseVectors
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import Cutter, Source
from bert_embed.results.columns import python_values
from bert_embed.results.files import Rows

_COMMENT = "bert-embed export "  # begins the comment of a table
_PATIENCE = 30  # seconds to connect
_VERSION = (0, 7)  # of the extension: halfvec, and indexes of bits
# Of each number type: the column's type, the class of its values in Python, most numbers in a
# column and in an index.
_KINDS = {
    "float32": ("vector", "Vector", 16_000, 2_000),
    "float16": ("halfvec", "HalfVector", 16_000, 4_000),
    "ubinary": ("bit", "Bit", 64_000, 64_000),
}
_OPERATORS = {"cosine": "cosine", "dot": "ip", "euclidean": "l2", "manhattan": "l1"}
_MOST_BYTES = 63  # of a name, which is cut there
_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")  # columns of every table
_SPARSE = "sparse"  # the column of sparse vectors
_MOST_ENTRIES = 16_000  # of a sparse vector in a column
_MOST_INDEXED_ENTRIES = 1_000  # and in an index
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_uint64, "numeric"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_floating, "real"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_decimal, "numeric"),
)


def _comment(identity: Mapping[str, Any]) -> str:
    return _COMMENT + json.dumps(identity, sort_keys=True)


class _Export:
    """Fills one table through one connection, in one transaction."""

    def __init__(self, source: Source, connection: Any) -> None:
        self._source, self._connection = source, connection
        self._name, self._index = source.options.table, source.options.kind_of_index
        self._sql = _package("psycopg.sql")
        self._table = self._sql.Identifier(*self._name.split("."))
        kind, wrapper, *_ = _KINDS[source.dtype]
        types = [(field.name, column_type(field.type)) for field in source.schema]
        vectors = []
        if "dense" in source.kinds:
            vectors.append(("embedding", f"{kind}({source.width})"))
        if "sparse" in source.kinds:
            vectors.append((_SPARSE, f"sparsevec({source.entries})"))
        self._columns = [types[0], *vectors, *types[1:]]
        self._wrap: Callable[[Any], Any] = getattr(_package("pgvector"), wrapper)

    def run(self) -> bool:
        """Makes the table and its index; False if all was there."""
        identity = self._source.identity | {"index": self._index}
        comment = _comment(identity)
        present = self._present()
        if present is not None:
            is_new = not self._source.is_in(present)
            if is_new:
                self._continue(present, identity)
            return is_new
        self._create(comment)
        self._copy(self._table)
        self._make_index()
        return True

    def _present(self) -> dict[str, Any] | None:
        """Of which export the table is, None if there is none; UsageError if it is another one."""
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self._name])
        name = self._table.as_string(self._connection)
        exists, present = self._connection.execute(
            "SELECT to_regclass(%s), obj_description(to_regclass(%s), 'pg_class')", [name, name]
        ).fetchone()
        if exists is None:
            return None
        is_export = (present or "").startswith(_COMMENT)
        if is_export:
            described = json.loads(present.removeprefix(_COMMENT))
            same_index = described.pop("index", None) == self._index
            if same_index and self._source.continues(described, f"--table {self._name}"):
                return described
        what = "holds another export" if is_export else "exists and is not of an export"
        raise UsageError(f"--table {self._name} {what}; choose another name, or drop it")

    def _continue(self, present: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        """Puts the rows of new outputs in the place of those that they replace or delete."""
        self._source = self._source.only_new(present)
        self._check_columns()
        rows, gone = map(self._sql.Identifier, ("bert_embed_new", "bert_embed_gone"))
        for name, wanted in ((rows, "*"), (gone, "id")):
            like = f"CREATE TEMP TABLE {{}} ON COMMIT DROP AS SELECT {wanted} FROM {{}} WHERE false"
            self._execute(like, name, self._table)
        if self._source.rows:
            self._copy(rows)
        statement = self._sql.SQL("COPY {} FROM STDIN").format(gone)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in self._source.deleted():
                for name in batch["id"].to_pylist():
                    copy.write_row([name])
        old = "DELETE FROM {} WHERE id IN (SELECT id FROM {} UNION SELECT id FROM {})"
        removed = self._execute(old, self._table, rows, gone).rowcount
        columns = self._sql.SQL(", ").join(self._sql.Identifier(name) for name, _ in self._columns)
        if self._source.rows:
            insert = "INSERT INTO {} ({}) SELECT {} FROM {}"
            self._execute(insert, self._table, columns, columns, rows)
        count = present["rows"] - removed + self._source.rows
        runs = self._source.runs_after(present)
        self._describe(_comment({**identity, "run": runs, "rows": count}))

    def _check_columns(self) -> None:
        """UsageError if the table has other columns than the new rows."""
        # A number of another type may have as many bytes, and is taken for one of the column's.
        query = (
            "SELECT attname || ' ' || format_type(atttypid, NULL) FROM pg_attribute WHERE attnum > "
            "0 AND attrelid = to_regclass(%s) AND NOT attisdropped ORDER BY attnum"
        )
        name = self._table.as_string(self._connection)
        present = [row[0] for row in self._connection.execute(query, [name]).fetchall()]
        query = "SELECT format_type(to_regtype(kind), NULL) FROM unnest(%s::text[]) AS kind"
        kinds = [kind.split("(")[0] for _, kind in self._columns]
        named = self._connection.execute(query, [kinds]).fetchall()
        wanted = [f"{one[0]} {kind}" for one, (kind,) in zip(self._columns, named, strict=True)]
        if self._source.rows and present != wanted:
            raise UsageError(
                f"--table {self._name} has the columns {', '.join(present)}, but "
                f"{self._source.place} has {', '.join(wanted)}: export into another table"
            )

    def _create(self, comment: str) -> None:
        columns = [
            self._sql.SQL("{} {}").format(self._sql.Identifier(column), self._sql.SQL(kind))
            for column, kind in self._columns
        ]
        keys = ["id", *self._source.parts]
        self._execute(
            "CREATE TABLE {} ({}, PRIMARY KEY ({}))",
            self._table,
            self._sql.SQL(", ").join(columns),
            self._sql.SQL(", ").join(map(self._sql.Identifier, keys)),
        )
        self._describe(comment)

    def _describe(self, comment: str) -> None:
        self._execute("COMMENT ON TABLE {} IS {}", self._table, self._sql.Literal(comment))

    def _execute(self, statement: str, *parts: Any) -> Any:
        return self._connection.execute(self._sql.SQL(statement).format(*parts))

    def _copy(self, table: Any) -> None:
        statement = self._sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([kind.split("(")[0] for _, kind in self._columns])
            for batch in Cutter(self._source).take(self._source.rows):
                for row in self._rows(batch):
                    copy.write_row(row)

    def _rows(self, batch: Rows) -> Iterator[tuple[Any, ...]]:
        columns: list[Any] = list(map(python_values, batch.columns.columns))
        for field, values in zip(batch.columns.schema, columns, strict=True):
            if pa.types.is_temporal(field.type) and any(isinstance(one, str) for one in values):
                raise InputError(
                    f"{self._source.place} has a time before the year 1 or after 9999 in its "
                    f"column {field.name}, which is not copied: embed without this column"
                )
        vectors: list[Any] = []
        if "dense" in self._source.kinds and self._source.dtype == "ubinary":
            # not the packed bits, whose last byte may be too long
            vectors.append(map(self._wrap, batch.vectors > 0))
        elif "dense" in self._source.kinds:
            vectors.append(map(self._wrap, self._source.numbers(batch)))
        if "sparse" in self._source.kinds:
            vectors.append(self._sparse(self._source.vectors(batch)["sparse"]))
        return zip(columns[0], *vectors, *columns[1:], strict=True)

    def _sparse(self, vectors: SparseVectors) -> Iterator[Any]:
        longest = int(np.diff(vectors.splits).max(initial=0))
        most = _MOST_ENTRIES if self._index == "none" else _MOST_INDEXED_ENTRIES
        if longest > most:
            what = "a column" if self._index == "none" else "an index"
            raise UsageError(
                f"{what} of sparsevec takes {most:,} entries of a vector, {self._source.place} has "
                f"one of {longest:,}: leave --index out, or embed with --top_k"
            )
        wrap = _package("pgvector").SparseVector
        for start, stop in pairwise(vectors.splits.tolist()):
            indices, values = vectors.indices[start:stop], vectors.values[start:stop]
            entries = dict(zip(indices.tolist(), values.tolist(), strict=True))
            yield wrap(entries, self._source.entries)  # counts from 0, unlike the column's text

    def _make_index(self) -> None:
        if self._index == "none":
            return
        rows = self._source.rows  # as pgvector advises: a list for 1000 rows, later the root
        lists = max(1, rows // 1000) if rows <= 1_000_000 else math.isqrt(rows)
        settings = f" WITH (lists = {lists})" if self._index == "ivfflat" else ""
        columns = []
        if "dense" in self._source.kinds:
            kind = _KINDS[self._source.dtype][0]
            operators = "hamming" if kind == "bit" else _OPERATORS[self._source.similarity]
            columns.append(f"embedding {kind}_{operators}_ops")
        if "sparse" in self._source.kinds and self._index == "hnsw":
            columns.append(f"{_SPARSE} sparsevec_ip_ops")
        for column in columns:
            # The server chooses a name that no other table's index has.
            self._execute(
                f"CREATE INDEX ON {{}} USING {self._index} ({column}){settings}", self._table
            )


def pgvector(source: Source) -> bool:
    """Exports to a table; False if it was there already."""
    options = source.options
    _check_names(source)
    _check_size(source)
    _check_address(source)
    with _server_errors(source) as psycopg:
        connection = psycopg.connect(
            options.dest, connect_timeout=_PATIENCE, fallback_application_name="bert-embed"
        )
        with connection:
            _check_extension(connection)
            _package("pgvector.psycopg").register_vector(connection)
            return _Export(source, connection).run()


def _package(module: str) -> Any:
    with requires("--to pgvector", "pgvector", "psycopg[binary]"):
        return importlib.import_module(module)


def _check_address(source: Source) -> None:
    """Refuses a URL that is none, or holds a password."""
    psycopg = _package("psycopg")
    try:
        parts = psycopg.conninfo.conninfo_to_dict(source.options.dest)
    except psycopg.ProgrammingError:  # whose message quotes parts of the URL
        raise UsageError(
            "DEST is not the URL of a PostgreSQL database: write postgresql://HOST/DATABASE"
        ) from None
    if "password" in parts:
        raise UsageError(
            "DEST must not hold a password, which others can see: set PGPASSWORD, or use ~/.pgpass"
        )


def _check_names(source: Source) -> None:
    for name in source.schema.names:
        if name in _SYSTEM or len(name.encode()) > _MOST_BYTES:
            raise UsageError(
                f"{source.place} has a column {name}, but PostgreSQL has one of that name in every "
                f"table, or cuts it at {_MOST_BYTES} bytes: rename it in the input, or embed "
                "without it"
            )
    for name in source.options.table.split("."):
        if len(name.encode()) > _MOST_BYTES:
            raise UsageError(f"--table {name}: PostgreSQL cuts names at {_MOST_BYTES} bytes")


def _check_size(source: Source) -> None:
    if "sparse" in source.kinds and _SPARSE in source.schema.names:
        raise UsageError(
            f"{source.place} has a column {_SPARSE}, as that of sparse vectors is called: embed "
            "without it"
        )
    if source.kinds == ("sparse",) and source.options.kind_of_index == "ivfflat":
        raise UsageError("--index ivfflat takes no sparse vectors: choose hnsw, or leave it out")
    if source.similarity == "manhattan" and source.options.kind_of_index == "ivfflat":
        raise UsageError(
            f"--index ivfflat knows no manhattan distance, by which the model of {source.place} "
            "compares vectors: choose hnsw, or leave it out"
        )
    kind, _, most, most_indexed = _KINDS[source.dtype]
    if source.options.kind_of_index != "none":
        most = most_indexed
    if source.width > most:
        what = "an index" if source.options.kind_of_index != "none" else "a column"
        raise UsageError(
            f"{what} of {kind} takes {most:,} numbers, the vectors have {source.width:,}: "
            "leave --index out, or embed with --dim"
        )


def _check_extension(connection: Any) -> None:
    """Makes the extension if it is not there, and checks that it is new enough."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    query = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    version = connection.execute(query).fetchone()[0]
    if tuple(map(int, version.split(".")[:2])) < _VERSION:
        raise UsageError(
            f"the database has pgvector {version}, {'.'.join(map(str, _VERSION))} or newer is "
            "needed: run ALTER EXTENSION vector UPDATE"
        )


def column_type(kind: pa.DataType) -> str:
    """The type of PostgreSQL for one of Arrow.

    >>> column_type(pa.list_(pa.int64())), column_type(pa.timestamp("us"))
    ('bigint[]', 'timestamp')
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{column_type(kind.value_type)}[]"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    return next((name for is_kind, name in _TYPES if is_kind(kind)), "text")


@contextmanager
def _server_errors(source: Source) -> Any:
    """Gives psycopg; says in one sentence what the server refuses, without the values of rows."""
    psycopg = _package("psycopg")
    errors = psycopg.errors
    try:
        yield psycopg
    except errors.UniqueViolation as error:
        detail = error.diag.message_detail or "an id is there twice"
        raise InputError(
            f"{source.place} has rows with the same key: {detail} Embed with another --id_column"
        ) from None
    except psycopg.DataError:
        raise InputError(
            f"{source.place} holds a value that PostgreSQL cannot store, such as a text "
            "with the character NUL; remove it from the input, and embed again"
        ) from None
    except (errors.InsufficientPrivilege, errors.UndefinedFile, errors.InvalidSchemaName) as error:
        raise UsageError(
            f"PostgreSQL refuses: {error.diag.message_primary}; pgvector must be installed, and "
            "the user may create the extension and tables"
        ) from None
    except psycopg.Error as error:
        message = " ".join(hide_secrets(str(error)).split())
        raise StorageError(f"PostgreSQL failed: {message}") from None
