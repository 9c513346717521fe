"""Load an output into a table of Delta Lake, in one commit; the table is made if it is not there.

Usage, from the clone's folder: python -m examples.load_delta OUTPUT TABLE
It needs `pip install deltalake`; TABLE is a folder, or its address in a store. Outputs that
continue others are loaded in their order: rows are replaced by their key, or deleted. Each must fit
into memory.
"""

import sys

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from examples.output_rows import deleted, vectors


def check_columns(table: DeltaTable, wanted: pa.Schema) -> None:
    """Refuses a table whose columns may be others than those of the output."""
    names = [field.name for field in table.schema().fields]
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SystemExit(
            f"{table.table_uri} maps its columns: one that was renamed, dropped or added again may "
            "hold other values; load into another table"
        )
    if names != wanted.names:
        raise SystemExit(
            f"{table.table_uri} has the columns {', '.join(names)}, the output has "
            f"{', '.join(wanted.names)}: load into another table"
        )


def load(output: str, place: str) -> str:
    """Loads an output; says how many rows changed."""
    rows, gone = vectors(output).to_table(), deleted(output)
    if not rows and not gone:
        return f"{place}: {output} has nothing new"
    table = DeltaTable.create(place, rows.schema, mode="ignore")
    if rows:
        check_columns(table, rows.schema)
    marked = [rows.append_column("gone", pa.array([False] * len(rows)))]
    marked += [pa.table({"key": gone, "gone": [True] * len(gone)})] * bool(gone)
    new = {f"`{name}`": f"new.`{name}`" for name in rows.column_names}
    differs = " OR ".join(f"(old.{name} IS DISTINCT FROM {value})" for name, value in new.items())
    merge = table.merge(
        pa.concat_tables(marked, promote_options="default"),
        "old.key = new.key",
        source_alias="new",
        target_alias="old",
    )
    merge.when_matched_delete("new.gone").when_matched_update(new, differs)
    done = merge.when_not_matched_insert(new, "NOT new.gone").execute()
    written = done["num_target_rows_inserted"] + done["num_target_rows_updated"]
    return f"{place}: {written} rows written, {done['num_target_rows_deleted']} deleted"


if __name__ == "__main__":
    try:
        print(load(*sys.argv[1:]))
    except DeltaError as error:
        raise SystemExit(f"Delta Lake refuses {sys.argv[1]}, nothing is loaded: {error}") from None
