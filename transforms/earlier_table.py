"""A BigQuery table as earlier output: what it is, and its ids and hashes of texts."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

TABLE_PIECE = 1_000_000  # rows that one worker reads
METADATA_KEY = "bert_embed"
_NAME = re.compile(r"([\w-]+)[:.](\w+)\.(\w+)")
_SCHEME = "bq://"
_SECONDS = 60.0  # for one answer


@dataclass(frozen=True)
class TableFacts:
    """A table that holds vectors.

    Attributes:
        name: `project.dataset.table`.
        rows: How many it has.
        created: When, seconds since 1970.
        settings: What its vectors are, None where its description does not tell.
    """

    name: str
    rows: int
    created: float
    settings: dict[str, Any] | None


def table_name(text: str) -> str | None:
    """`project.dataset.table`, or None for what does not name a table.

    >>> table_name("my-project:texts.vectors"), table_name("build/out")
    ('my-project.texts.vectors', None)
    >>> table_name("bq://my-project.texts.vectors")
    'my-project.texts.vectors'
    """
    found = _NAME.fullmatch(text.removeprefix(_SCHEME))
    return found and ".".join(found.groups())


def table_facts(name: str) -> TableFacts:
    """Asks for a table.

    Raises:
        ValueError: It is not there, may not be read, or lacks the columns of vectors.
    """
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        table = _client(name).get_table(name, timeout=_SECONDS)
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise ValueError(f"--skip_existing {name} cannot be read: {error}") from error
    missing = {"id", "text_hash"} - {field.name for field in table.schema}
    if missing:
        raise ValueError(
            f"--skip_existing {name} has no column {' and no column '.join(sorted(missing))}; it "
            "must be a table that --output_format bigquery filled"
        )
    created = table.created.timestamp() if table.created else 0.0
    return TableFacts(name, table.num_rows or 0, created, described_settings(table.description))


def described_settings(description: str | None) -> dict[str, Any] | None:
    """What the vectors of a table are, from its description: JSON with the key `bert_embed`.

    >>> described_settings('{"bert_embed": {"dim": 3}}'), described_settings("my vectors")
    ({'dim': 3}, None)
    """
    try:
        found = json.loads(description or "")
    except ValueError:
        return None
    return found.get(METADATA_KEY) if isinstance(found, dict) else None


def table_columns(
    name: str, start: int, stop: int | None
) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    """Ids and int64 hashes of the texts of rows `[start, stop)` of a table, to its end for None.

    Raises:
        ValueError: An id or hash is null.
    """
    client = _client(name)
    table = client.get_table(name, timeout=_SECONDS)
    fields = [field for field in table.schema if field.name in ("id", "text_hash")]
    rows = client.list_rows(
        table,
        selected_fields=fields,
        start_index=start,
        max_results=None if stop is None else stop - start,
        timeout=_SECONDS,
    )
    for batch in rows.to_arrow_iterable():
        if batch["id"].null_count or batch["text_hash"].null_count:
            raise ValueError(f"--skip_existing {name} has a null in id or text_hash")
        yield batch["id"].cast(pa.string()), batch["text_hash"].cast(pa.int64()).to_numpy()


def _client(name: str) -> Any:
    """A client with the credentials of the machine; an emulator takes none."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    emulated = os.environ.get("BIGQUERY_EMULATOR_HOST")
    credentials = AnonymousCredentials() if emulated else None
    return bigquery.Client(project=name.split(".")[0], credentials=credentials)
