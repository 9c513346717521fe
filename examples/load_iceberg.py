"""Load an output into a table of Iceberg, in one commit; the table is made if it is not there.

Usage, from the clone's folder: python -m examples.load_iceberg OUTPUT NAMESPACE.TABLE
It needs `pip install 'pyiceberg[sql-sqlite]'`, whose configuration names the catalog `default`:
https://py.iceberg.apache.org/configuration. Outputs that continue others are loaded in their order:
rows are replaced by their key, or deleted. Each must fit into memory.
"""

import sys

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import In
from pyiceberg.table import Table

from examples.output_rows import deleted, vectors


def check_columns(table: Table, name: str, wanted: list[str]) -> None:
    """Refuses a table whose columns are not those with which an output made it."""
    schemas = min(table.schemas().items())[1], table.schema()
    made, now = ({field.name: field.field_id for field in schema.fields} for schema in schemas)
    if made != now or wanted != list(now):
        raise SystemExit(
            f"{name} was made with the columns {', '.join(made)}, has {', '.join(now)}, and is to "
            f"get {', '.join(wanted)}. One that was renamed, dropped or added again may hold other "
            "values: load into another table"
        )


def load(output: str, name: str) -> str:
    """Loads an output; says how many rows changed."""
    rows, gone = vectors(output).to_table(), deleted(output)
    if not rows and not gone:
        return f"{name}: {output} has nothing new"
    catalog = load_catalog()
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table_if_not_exists(name, rows.schema)
    if rows:
        check_columns(table, name, rows.column_names)
    held = table.scan(In("key", gone), selected_fields=("key",)).count() if gone else 0
    with table.transaction() as transaction:
        if held:
            transaction.delete(In("key", gone))
        changed = transaction.upsert(rows, join_cols=["key"])
    return f"{name}: {changed.rows_updated + changed.rows_inserted} rows written, {held} deleted"


if __name__ == "__main__":
    try:
        print(load(*sys.argv[1:]))
    except (CommitFailedException, ValueError) as error:
        raise SystemExit(f"Iceberg refuses {sys.argv[1]}, nothing is loaded: {error}") from None
