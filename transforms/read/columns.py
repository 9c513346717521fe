"""Defines Columns: which fields of a record are text, id and the like, and which pass through."""

import csv
import difflib
import io
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from bert_embed.base.errors import InputError, SettingError

ID = "id"  # the field that is the id if nobody names one
_DEFAULTS = {"text_column": "text", "id_column": ID}
_MOST_NAMED = 30  # columns that a message lists

# How fields of CSV hold separators: "none" takes quotes as characters; "escaped" also reads
# backslashes that make the next character one like others, "dump" these alone.
CSV_QUOTINGS = ("minimal", "none", "escaped", "dump")


@dataclass(frozen=True)
class Columns:
    """Which fields of a record are read, and as what."""

    # The field: a string, or a list of words; with commas, fields whose strings are joined
    text: str = "text"
    id: str | None = None  # the field; None: a record's place in its file
    no_ids: bool = False  # whether nobody named one, and the first records have none
    base: str = ""  # the folder, with a slash, that such places are relative to
    text_b: str | None = None  # the field of the second text
    extra: pa.Schema | None = None  # names and types of what is passed through to the output
    id_type: str = "string"  # in Parquet and JSON lines; or the integer type of the id's one column
    csv_quoting: str = "minimal"  # of `CSV_QUOTINGS`
    csv_separator: str | None = None  # between fields of CSV; None: by suffix and header
    csv_header: tuple[str, ...] | None = None  # names of the columns of CSV without a header
    context: tuple[str, ...] = ()  # the fields that are before each chunk of the text
    loads: bool = False  # whether the extra columns go to a BigQuery table

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The names of the text's fields."""
        return text_fields(self.text)

    @property
    def requested(self) -> list[tuple[str, str]]:
        """The setting and the name of every field that each record should have."""
        named: dict[str, Iterable[str | None]] = {
            "text_column": self.texts,
            "id_column": (self.id,),
            "text_b_column": (self.text_b,),
            "chunk_context": self.context,
            "extra_columns": self.extra.names if self.extra else (),
        }
        return [(flag, name) for flag, names in named.items() for name in names if name is not None]

    @cached_property
    def nested(self) -> tuple[str, ...]:
        """The names that may be those of fields of an object: `meta.year`."""
        return tuple(name for name in self.names if "." in name)

    @property
    def names(self) -> list[str]:
        """The fields that are read, each once."""
        return list(dict.fromkeys(name for _, name in self.requested))


PLAIN = Columns()


def nested_value(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or of a field of the object in a field; None if there is none.

    >>> nested_value({"meta": {"year": 2024}}, "meta.year")
    2024
    """
    if name in record:
        return record[name]
    for dot in (at for at, letter in enumerate(name) if letter == "."):
        if isinstance(inner := record.get(name[:dot]), dict):
            return nested_value(inner, name[dot + 1 :])
    return None


_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark write for null


@lru_cache(maxsize=1024)
def partitions(path: str) -> Mapping[str, str | None]:
    """The columns in the names of a file's folders, as Hive writes them.

    >>> partitions("gs://b/lang=de/city=Bad%20Ems/a.parquet")
    {'lang': 'de', 'city': 'Bad Ems'}
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {
        name: None if value == _NO_PARTITION else unquote(value)
        for name, equals, value in pairs
        if name and equals
    }


def text_fields(text: str) -> tuple[str, ...]:
    """The fields that a text comes from, by the value of text_column.

    >>> text_fields('title,"Body, long"')
    ('title', 'Body, long')
    """
    if '"' in text:
        with suppress(csv.Error):  # a line feed in a name that is not quoted
            return tuple(next(csv.reader([text])))
    return tuple(text.split(","))


def joined_fields(names: Iterable[str]) -> str:
    """The value of text_column from which `text_fields` gives these names."""
    written = io.StringIO()
    csv.writer(written).writerow(names)
    return written.getvalue().removesuffix("\r\n")


SOME_LACK = "if only some files lack it, write it there, empty"


def within_object(name: str, fields: Iterable[str]) -> str:
    """How the fields of an object are named instead of it, for people; nothing if it has none."""
    names = [f"{name}.{field}" for field in fields]
    return f"; name a field of it: {', '.join(names[:_MOST_NAMED])}" if names else ""


def check_is_there(
    flag: str, name: str, path: str, count: int, existing: Iterable[str], cure: str
) -> None:
    """Checks that a file, which has a requested column `count` times, or its folders have it.

    InputError where neither has it, or the file more than once.
    """
    if count > 1:
        raise SettingError(flag, f"{name} is in {path} more than once")
    if count == 0 and not (flag == "extra_columns" and name in partitions(path)):
        raise no_column(flag, name, f"not a column of {path}", existing, cure)


def no_column(
    flag: str, name: str, place: str, existing: Iterable[str], cure: str = ""
) -> InputError:
    """Returns the error for a missing column, which names those that exist, or the nearest.

    `flag` is the setting that names it, or has it as its default; `place` is where it is missing,
    `cure` what else may help.

    >>> str(no_column("id_column", "key", "not a column of in.csv", ["Keys", "text"]))
    'id_column key is not a column of in.csv, which has Keys, text; did you mean Keys?'
    """
    names = list(map(str, existing))
    default = "the default " if name == _DEFAULTS.get(flag) else ""
    listed = ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED)
    by_lower = {column.rpartition(".")[2].lower(): column for column in reversed(names)}
    by_lower |= {column.lower(): column for column in names}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"; name the right one with {flag}" if default else ""
    if nearest:
        setting = f"{flag} " if default else ""
        hint = f"; did you mean {setting}{by_lower[nearest[0]]}?"
    hint += f"; {cure}" if cure else ""
    found = f"is {place}, which has {listed or 'none'}{hint}"
    return InputError(f"{default}{flag} {name} {found}", flag, *re.findall("^csv_[a-z]+", cure))
