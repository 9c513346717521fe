"""Copies rows into a table of PostgreSQL with the extension pgvector.

Each transaction copies some rows and notes in a table of progress how far the export is, so that a
killed export continues where it stopped and no row is there twice.
"""

import importlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from bert_embed.formats.output_files import PIECES
from bert_embed.formats.result_files import POSITION, Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.journal import rows_of_files
from bert_embed.pipeline.export.source import Cutter, Position, Source
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.errors import InputError, StorageError
from bert_embed.storage.packages import requires

_MEGABYTES = 32  # of the vectors of a transaction
_PROGRESS = "bert_embed_exports"
_PATIENCE = 30  # seconds to connect
_VERSION = (0, 7)  # of the extension: halfvec, and indexes of bits
# Of each number type: the column's type, the class of its values in Python, most numbers in a
# column and in an index, operators of an index.
_KINDS = {
    "float32": ("vector", "Vector", 16_000, 2_000, "vector_cosine_ops"),
    "float16": ("halfvec", "HalfVector", 16_000, 4_000, "halfvec_cosine_ops"),
    "ubinary": ("bit", "Bit", 64_000, 64_000, "bit_hamming_ops"),
}
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


class _Export:
    """Fills one table through one connection."""

    def __init__(self, source: Source, connection: Any) -> None:
        self._source, self._connection = source, connection
        self._name, self._index = source.options.table, source.options.kind_of_index
        self._identity = source.identity | {"index": self._index}
        self._sql = _package("psycopg.sql")
        self._table = self._sql.Identifier(*self._name.split("."))
        kind, wrapper, *_ = _KINDS[source.dtype]
        self._kind = f"{kind}({source.width})"
        self._wrap: Callable[[Any], Any] = getattr(_package("pgvector"), wrapper)

    def run(self) -> bool:
        """Copies what is missing and makes the index; False if all was there."""
        rows, position, done = self._claimed()
        if done:
            return False
        cutter = Cutter(self._source, position)
        most = rows_of_files(self._source.width, _MEGABYTES)
        while rows < self._source.rows:
            count = min(most, self._source.rows - rows)
            with self._connection.transaction():
                self._lock(rows)
                self._copy(cutter, count)
                rows += count
                self._note(rows, cutter.position)
        finish = "UPDATE {} SET done = true WHERE table_name = %s AND NOT done"
        with self._connection.transaction():  # of two commands one makes the index
            if self._execute(finish, self._name).rowcount:
                self._make_index()
        return True

    def _claimed(self) -> tuple[int, Position, bool]:
        """How many rows are there, the place after them, and whether all is done."""
        with self._connection.transaction():
            self._execute(
                "CREATE TABLE IF NOT EXISTS {} (table_name text PRIMARY KEY, source jsonb NOT "
                "NULL, row_count bigint NOT NULL, file text NOT NULL, file_row bigint NOT NULL, "
                "done boolean NOT NULL)"
            )
            noted = self._execute(
                "SELECT source, row_count, file, file_row, done FROM {} WHERE table_name = %s",
                self._name,
            ).fetchone()
            exists = self._connection.execute(
                "SELECT to_regclass(%s)", [self._table.as_string(self._connection)]
            ).fetchone()[0]
            if noted is None or exists is None:
                self._create(exists)
                return 0, Position(), False
            identity, rows, file, file_row, done = noted
            if identity != self._identity:
                raise UsageError(
                    f"--table {self._name} holds another export; choose another name, "
                    f"or drop it and its row in {_PROGRESS}"
                )
            return rows, Position(file, file_row), done

    def _create(self, exists: Any) -> None:
        if exists is not None:
            raise UsageError(
                f"--table {self._name} exists and is not of an export; choose another name, or "
                "drop it"
            )
        columns = [
            self._sql.SQL("{} {}").format(self._sql.Identifier(column), self._sql.SQL(kind))
            for column, kind in self._columns()
        ]
        keys = ["id", *(name for name in (*PIECES, POSITION) if name in self._source.schema.names)]
        self._connection.execute(
            self._sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
                self._table,
                self._sql.SQL(", ").join(columns),
                self._sql.SQL(", ").join(map(self._sql.Identifier, keys)),
            )
        )
        self._execute("DELETE FROM {} WHERE table_name = %s", self._name)
        values = "INSERT INTO {} VALUES (%s, %s, 0, '', 0, false)"
        self._execute(values, self._name, json.dumps(self._identity))

    def _columns(self) -> list[tuple[str, str]]:
        kinds = [(field.name, column_type(field.type)) for field in self._source.schema]
        return [kinds[0], ("embedding", self._kind), *kinds[1:]]

    def _lock(self, rows: int) -> None:
        """Holds the progress for a transaction, and checks that nobody else went on."""
        statement = "SELECT row_count FROM {} WHERE table_name = %s FOR UPDATE"
        if self._execute(statement, self._name).fetchone() != (rows,):
            raise UsageError(
                f"another command writes to --table {self._name} at this moment: wait for it, or "
                "stop it"
            )

    def _copy(self, cutter: Cutter, rows: int) -> None:
        statement = self._sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(self._table)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([kind.split("(")[0] for _, kind in self._columns()])
            for batch in cutter.take(rows):
                for row in self._rows(batch):
                    copy.write_row(row)

    def _rows(self, batch: Rows) -> Iterator[tuple[Any, ...]]:
        columns: list[Any] = [column.to_pylist() for column in batch.columns.columns]
        if self._source.dtype == "ubinary":
            vectors: Any = batch.vectors > 0  # not the packed bits, whose last byte may be too long
        else:
            vectors = self._source.numbers(batch)
        return zip(columns[0], map(self._wrap, vectors), *columns[1:], strict=True)

    def _note(self, rows: int, position: Position) -> None:
        self._execute(
            "UPDATE {} SET row_count = %s, file = %s, file_row = %s WHERE table_name = %s",
            rows,
            *position,
            self._name,
        )

    def _make_index(self) -> None:
        if self._index == "none":
            return
        operators = _KINDS[self._source.dtype][-1]
        rows = self._source.rows  # as pgvector advises: a list for 1000 rows, later the root
        lists = max(1, rows // 1000) if rows <= 1_000_000 else math.isqrt(rows)
        settings = f" WITH (lists = {lists})" if self._index == "ivfflat" else ""
        # The server chooses a name that no other table's index has.
        statement = f"CREATE INDEX ON {{}} USING {self._index} (embedding {operators}){settings}"
        self._connection.execute(self._sql.SQL(statement).format(self._table))

    def _execute(self, statement: str, *values: Any) -> Any:
        """Runs a statement on the table of progress."""
        query = self._sql.SQL(statement).format(self._sql.Identifier(_PROGRESS))
        return self._connection.execute(query, values)


def export(source: Source) -> bool:
    """Exports to a table; False if it was there already.

    Raises:
        UsageError: psycopg is not installed, the server refuses, or the table is another one.
        InputError: An id is there twice, or a text cannot be stored.
        StorageError: The server does not answer, or fails.
    """
    options = source.options
    _check_size(source)
    _check_address(source)
    with _server_errors(source) as psycopg:
        connection = psycopg.connect(
            options.dest,
            autocommit=True,
            connect_timeout=_PATIENCE,
            fallback_application_name="bert-embed",
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


def _check_size(source: Source) -> None:
    kind, _, most, most_indexed, _ = _KINDS[source.dtype]
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
            f"{source.options.source} has rows with the same key: {detail} Embed with another "
            "--id_column"
        ) from None
    except psycopg.DataError:
        raise InputError(
            f"{source.options.source} holds a value that PostgreSQL cannot store, such as a text "
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
