"""Load an output into a table of PostgreSQL with pgvector, in one transaction.

Usage, from the clone's folder: python -m examples.load_pgvector OUTPUT URL TABLE
It needs `pip install 'psycopg[binary]' pgvector`; a password comes from PGPASSWORD or ~/.pgpass.
Outputs that continue others are loaded in their order: rows are replaced by their key, or deleted.
"""

import sys

import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.types.json import Jsonb

from examples.output_rows import deleted, json_of, vectors

COLUMNS = """key text PRIMARY KEY, embedding vector({}), text text, metadata jsonb"""
UPSERT = """INSERT INTO {0} AS old SELECT * FROM new ON CONFLICT (key) DO UPDATE
    SET embedding = excluded.embedding, text = excluded.text, metadata = excluded.metadata
    WHERE old IS DISTINCT FROM excluded"""


def load(output: str, url: str, table: str) -> str:
    """Loads an output; says how many rows changed."""
    rows, gone = vectors(output), deleted(output)
    width = rows.projected_schema.field("embedding").type.list_size
    name = sql.Identifier(*table.split("."))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        create = sql.SQL(f"CREATE TABLE IF NOT EXISTS {{}} ({COLUMNS})")
        connection.execute(create.format(name, sql.Literal(width)))
        like = "CREATE TEMP TABLE new (LIKE {}) ON COMMIT DROP"
        connection.execute(sql.SQL(like).format(name))
        copy_in = "COPY new FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(copy_in) as copy:
            copy.set_types(["text", "vector", "text", "jsonb"])
            for row in (row for batch in rows.to_batches() for row in batch.to_pylist()):
                key, vector, text = row.pop("key"), row.pop("embedding"), row.pop("text", None)
                copy.write_row((key, Vector(vector), text, Jsonb(row, json_of)))
        delete = sql.SQL("DELETE FROM {} WHERE key = ANY(%s)").format(name)
        removed = connection.execute(delete, [gone]).rowcount
        written = connection.execute(sql.SQL(UPSERT).format(name)).rowcount
    return f"{table}: {written} rows written, {removed} deleted"


if __name__ == "__main__":
    try:
        print(load(*sys.argv[1:]))
    except psycopg.Error as error:
        raise SystemExit(f"PostgreSQL refuses {sys.argv[1]}, nothing is loaded: {error}") from None
