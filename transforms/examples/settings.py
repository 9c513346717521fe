"""Defines ExampleSettings, what holds for all examples of a folder."""

from dataclasses import asdict, dataclass, fields

import orjson

from bert_embed.storage.errors import InputError

_FORMAT = 1


@dataclass(frozen=True)
class ExampleSettings:
    """What the examples of a folder are, and which vectors can be computed from them."""

    tokenizer: str  # fingerprint that each example has, too
    max_seq_length: int
    long_text: str
    stride: int | None
    prompt: str
    prompt_tokens: int
    granularity: tuple[str, ...]  # names words and spans only if requested, tokens always
    run: str = ""  # fingerprint of the run that wrote them
    keep_text: bool = False

    def to_json(self) -> bytes:
        """The settings as JSON."""
        row = {"format": _FORMAT} | asdict(self)
        return orjson.dumps(row, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def are_settings(data: bytes | None) -> bool:
    """Whether a file holds settings, of any version; others may give theirs the same name."""
    try:
        row = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return False
    return isinstance(row, dict) and {"format", "tokenizer", "prompt_tokens"} <= row.keys()


def settings_from_json(data: bytes) -> ExampleSettings:
    """Reads what `to_json` gave; InputError if it is none, or of another version."""
    try:
        row = orjson.loads(data)
        if row.pop("format") != _FORMAT:
            raise InputError("another format")
        values = {field.name: row[field.name] for field in fields(ExampleSettings)}
        return ExampleSettings(**values | {"granularity": tuple(row["granularity"])})
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise InputError(f"no settings of examples: {error!r}") from error
