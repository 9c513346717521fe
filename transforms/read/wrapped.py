"""Tells JSON that is not a record a document, as programs write tables, and how jq makes it so."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bert_embed.transforms.read.columns import nested_value

_DEPTH = 3  # of objects in which records are looked for, as in `hits.hits` of Elasticsearch
_MANY = 10  # strings with blanks, of which a record hardly consists
BULK = "inputs | (.index // .create // .update)._id as $id | {id: $id} + input"  # with `jq -cn`


def unwrapping(record: dict[str, Any], texts: Sequence[str]) -> str | None:
    """The program of jq that writes the records of an object one a line; None if it wraps none.

    `texts` are the fields of a record's text: an object that has them is a record itself.

    >>> unwrapping({"data": [{"text": "a"}, {"text": "b"}]}, ["text"])
    '.data[]'
    >>> unwrapping({"7": {"text": "a"}, "8": {"text": "b"}}, ["text"])
    'to_entries[] | {id: .key} + .value'
    """
    named = next((name for name in texts if nested_value(record, name) is not None), None)
    if named is not None:
        return _of_columns(record, named) if named in record else None
    # Whose own text may be a field of another name.
    is_record = any(isinstance(value, str) and " " in value for value in record.values())
    by_rows = None if is_record else _of_rows(record)
    return by_rows or _of_records(record, texts, is_record) or texts_by_id(record, texts[0], _MANY)


def _of_rows(record: dict[str, Any]) -> str | None:
    """Of an object that holds rows as lists, and the names of their columns, at some depth."""
    lists = [(path, one) for path, one in _values(record, "", _DEPTH) if isinstance(one, list)]
    tables = [(path, len(rows[0])) for path, rows in lists if rows and rows[0] and _are(list, rows)]
    for names, columns in lists:
        name = "" if _are(str, columns) else ".name"
        if not name or (_are(dict, columns) and all("name" in column for column in columns)):
            for rows in (path for path, width in tables if width == len(columns)):
                pairs = f"[{names}[]{name}] as $names | {rows}[] | [$names, .] | transpose"
                return f"{pairs} | map({{key: .[0], value: .[1]}}) | from_entries"
    return None


def _are(kind: type, values: list[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _of_columns(record: dict[str, Any], name: str) -> str | None:
    """Of an object whose fields are columns: lists, or objects by row."""
    place, text = _key(name), record[name]
    if all(isinstance(value, dict) for value in record.values()) and len(text) > 1:
        rows = f"({place} | keys_unsorted[]) as $row"
        return f". as $all | {rows} | $all | map_values(.[$row])"
    if not isinstance(text, list) or len(text) < 2:
        return None
    others = [value for field, value in record.items() if field != name]
    are_columns = [isinstance(each, list) and len(each) == len(text) for each in others]
    # Words of one text have no blanks within them, but for a name such as New York.
    blanks = sum(" " in each for each in text if isinstance(each, str))
    is_table = all(are_columns) if others else blanks > 0
    if not is_table and not (any(are_columns) and 2 * blanks > len(text)):
        return None
    rows = f"range({place} | length) as $row"
    return f'. as $all | {rows} | $all | map_values(if type == "array" then .[$row] else . end)'


def lists_of_texts(records: Sequence[dict[str, Any]], texts: Sequence[str]) -> str | None:
    """The field of the texts if records have lists there of which most are not of single words.

    >>> lists_of_texts([{"text": ["a b.", "c d."]}, {"text": ["e f."]}], ["text"])
    'text'
    """
    if len(texts) > 1:
        return None
    values = [nested_value(record, texts[0]) for record in records]
    words = [word for value in values if isinstance(value, list) for word in value]
    words = [word for word in words if isinstance(word, str)]
    return texts[0] if 2 * sum(" " in word.strip() for word in words) > len(words) else None


def is_action(record: Mapping[str, Any]) -> bool:
    """Whether a record is what a bulk file of Elasticsearch has before each document."""
    inner = record.get("index", record.get("create", record.get("update")))
    return len(record) == 1 and isinstance(inner, dict) and all(key[:1] == "_" for key in inner)


def _of_records(record: dict[str, Any], texts: Sequence[str], is_record: bool) -> str | None:
    """Of an object that holds a list of records, or records by their ids, at some depth."""
    found: list[tuple[bool, int, str]] = []  # whether records have a text, how many, the program
    for path, value in _values(record, "", _DEPTH):
        by_id = isinstance(value, dict)
        inner = [*value.values()] if by_id else value
        if not isinstance(inner, list) or not inner or not all(isinstance(v, dict) for v in inner):
            continue
        with_text = sum(any(nested_value(v, name) is not None for name in texts) for v in inner)
        # Of the fields of one record few are objects with a text.
        have_text = 2 * with_text > len(inner) if by_id else with_text > 0
        program = f"{path} | to_entries[] | {{id: .key}} + .value" if by_id else f"{path}[]"
        if have_text or (len(inner) > 1 and not by_id and not is_record):
            found.append((have_text, len(inner), program.removeprefix(" | ")))
    with_texts = [program for have_text, _, program in found if have_text]
    if len(with_texts) > 1:
        return ", ".join(with_texts)
    return max(found, key=lambda each: each[:2])[2] if found else None


def texts_by_id(record: dict[str, Any], name: str, least: int = 2) -> str | None:
    """The program of jq for an object of texts by their ids, which are to have this name, or None.

    One with fewer than `least` is none, as the fields of a record may be texts, too.

    >>> texts_by_id({"corpus": {"d1": "the bank", "d2": "a river"}, "mode": "text"}, "text")
    '.corpus | to_entries[] | {id: .key, text: .value}'
    """
    pair = f"to_entries[] | {{id: .key, {_name(name)}: .value}}"
    found = [
        (sum(map(len, value.values())), f"{path} | {pair}".removeprefix(" | "))
        for path, value in _values(record, "", 1)
        if isinstance(value, dict) and len(value) >= least
        if all(isinstance(text, str) and " " in text for text in value.values())
    ]
    return max(found, default=(0, None))[1]


def _values(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The values in an object with their paths, outer ones first."""
    yield path, value
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            yield from _values(inner, f"{path}{_key(name)}", depth - 1)


def path_of(name: str, names: Collection[str]) -> str:
    """A field of these, or one of the objects in them that a name with dots is, as jq names it."""
    return "".join(map(_key, [name] if name in names else name.split(".")))


def _key(name: str) -> str:
    """A field as jq reads it."""
    return f".{_name(name)}"


def _name(name: str) -> str:
    """Its name in an object of jq."""
    is_plain = name.isascii() and name.isidentifier()
    return name if is_plain else json.dumps(name)
