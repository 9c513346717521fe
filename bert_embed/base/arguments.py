"""Checks arguments of the Python API; SettingError names a wrong one."""

import difflib
import math
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Set
from decimal import Decimal
from numbers import Real
from typing import Any

from bert_embed.base.errors import SettingError

# How Arrow, pandas and Polars, and NumPy give a column as a list of Python's own values.
_TO_LIST = ("to_pylist", "to_list", "tolist")
# What settings of sentence-transformers, LangChain, Beam and other tools are called here.
_CALLED = {
    "column": "columns text text_column",
    "device": "cuda gpu use_gpu",
    "dim": "truncate_dim",
    "input": "input_file",
    "k": "top_k",
    "max_seq_length": "max_length",
    "model": "bert_config_file init_checkpoint model_id model_name model_name_or_path vocab_file",
    "normalize": "normalize_embeddings",
    "output": "output_file",
    "output_format": "format",
    "pooling": "pooling_mode pooling_strategy",
    "precision": "compute_type dtype fp16 torch_dtype",
    "threads": "num_worker",
    "top_k": "max_active_dims",
}
OTHER_NAMES = {other: name for name, others in _CALLED.items() for other in others.split()}
# Others, where what they are called here is none of the settings, by why they are not offered.
_WHY = {
    "comes first here, without a name": "documents inputs queries query sentences text",
    "is not needed: batches are formed by tokens, batch_tokens says of how many": "batch_size",
    "is not needed: vectors are NumPy arrays": "convert_to_numpy",
    "is not offered: HF_TOKEN has the token of the Hugging Face hub": "token use_auth_token",
    "is not offered: call encode_query or encode_document": "task",
    "is not offered: give it behind the model's name, ORG/NAME@REVISION": "revision",
    "is not offered: no code of a model is run": "trust_remote_code",
    "is not offered: prompt takes one text, or name:NAME of the model's prompts": "prompts",
    "is not offered: threads of bert_embed.load says how many cores compute": "pool",
    "is not offered: torch.from_numpy takes the vectors": "convert_to_tensor",
    "is not offered: units gives the vectors of tokens": "output_value",
    "is the model's: give it to bert_embed.load": "device",
    "is the model's: give it to bert_embed.load; embed stores other number types, output_dtype "
    "says which": "precision",
}
_NOT_OFFERED = {name: why for why, names in _WHY.items() for name in names.split()}


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Returns an integer of any integer type; a bool or a float is an error."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError as error:
        raise SettingError(name, f"must be an integer, got {_shown(value)}") from error
    if least is not None and number < least:
        raise SettingError(name, f"must be at least {least}, got {number}")
    return number


def whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    """Returns one integer or several as a tuple."""
    if isinstance(values, str | bytes | Mapping | Set):
        raise SettingError(name, f"must be integers, such as [-1, -2], got {_shown(values)}")
    if not isinstance(values, Iterable) or not getattr(values, "shape", (1,)):
        return (whole_number(name, values),)
    return tuple(whole_number(name, value) for value in values)


def seconds(name: str, value: Any) -> float:
    """Returns a finite duration over 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(name, f"must be a number of seconds, got {_shown(value)}")
    if not 0 < float(value) < math.inf:
        wanted = "finite" if value == math.inf else "over 0"
        raise SettingError(name, f"must be {wanted}, got {value}")
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Returns True or False; any other value is an error."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's and NumPy's
        raise SettingError(name, f"must be True or False, got {_shown(value)}")
    return bool(value)


def one_text(name: str, value: Any) -> str:
    """Returns a str."""
    if not isinstance(value, str):
        raise SettingError(name, f"must be a str, got {_shown(value)}")
    return value


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    """Returns one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise SettingError(name, f"must be one of {', '.join(allowed)}, got {_shown(value)}")
    return value


def path_text(name: str, value: Any) -> str:
    """Returns a str or path as a str, with `~` resolved."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.expanduser(one_text(name, path))


def text_list(name: str, values: Any) -> list[str]:
    """Returns a sequence, generator or NumPy, pandas, Polars or Arrow column of texts as a list."""
    listed = values if type(values) is list else _items(name, values, "a list of texts")
    if not set(map(type, listed)) <= {str}:  # this loop in C is fast; a Python loop is not
        for place, text in enumerate(listed):
            if not isinstance(text, str):
                _check_is_there(name, place, text)
                pairs = "; pairs are two lists of texts" if isinstance(text, tuple | list) else ""
                kind = type(text).__name__
                raise SettingError(name, f"must be str, number {place} is {kind}{pairs}")
    return listed


def text_pairs(name: str, pairs: Any) -> tuple[bool, tuple[list[str], list[str]]]:
    """Returns whether it is one pair of texts, and all first and all second texts."""
    one = isinstance(pairs, tuple) and _is_pair(pairs)
    listed = [pairs] if one else _items(name, pairs, "pairs of two texts", flat=False)
    for place, pair in enumerate(listed):
        if not _is_pair(pair):
            raise SettingError(f"{name}[{place}]", "must be two texts, (query, document)")
    return one, ([pair[0] for pair in listed], [pair[1] for pair in listed])


def _is_pair(pair: Any) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    return all(isinstance(text, str) for text in pair)  # also those of NumPy


def text_or_word_lists(name: str, values: Any) -> list[str | list[str]]:
    """Returns a list of texts and lists of words; each may be a generator."""
    return [
        text if isinstance(text, str) else _words(name, place, text)
        for place, text in enumerate(_items(name, values, "a list of texts or of lists of words"))
    ]


def _words(name: str, place: int, words: Any) -> list[str]:
    _check_is_there(name, place, words)
    return text_list(f"{name}[{place}]", words)


def _check_is_there(name: str, place: int, text: Any) -> None:
    if (value := missing(text)) is not None:
        cure = 'give "" instead, or leave it out'
        raise SettingError(name, f"must be str, number {place} is missing ({value}): {cure}")


def missing(value: Any) -> str | None:
    """Returns how a library shows that it has no value, None for a value.

    >>> [missing(value) for value in (None, float("nan"), "nan", 0)]
    ['None', 'NaN', None, None]
    """
    is_nan = isinstance(value, Decimal) and value.is_nan()  # one that signals is not compared
    if is_nan or (isinstance(value, Real) and value != value):
        return "NaN"
    return {"NoneType": "None", "NAType": "NA", "NaTType": "NaT"}.get(type(value).__name__)


def known_names(given: Collection[str], known: Collection[str]) -> None:
    """Checks the names of settings; an error suggests the nearest one, or lists them all."""
    for name in given:
        if name not in known:
            meant = [OTHER_NAMES[name]] if OTHER_NAMES.get(name) in known else []
            if name in _NOT_OFFERED and not meant:
                raise SettingError(name, _NOT_OFFERED[name])
            meant += difflib.get_close_matches(name, known, n=1)
            hint = (
                f"; did you mean {meant[0]}?"
                if meant
                else f", those are {', '.join(sorted(known))}"
            )
            raise SettingError(name, f"is not a setting{hint}")


def _items(name: str, values: Any, expected: str, flat: bool = True) -> list[Any]:
    if isinstance(values, str | bytes):
        raise SettingError(name, f"must be {expected}, got one {type(values).__name__}")
    # Iterating over a mapping gives its keys, over a table its names, and a set has no order.
    table = flat and len(getattr(values, "shape", (0,))) != 1
    if table or isinstance(values, Mapping | Set) or not isinstance(values, Iterable):
        hint = ": give one of its columns" if table and hasattr(values, "columns") else ""
        raise SettingError(name, f"must be {expected}, got a {type(values).__name__}{hint}")
    return as_list(values)


def as_list(values: Iterable[Any]) -> list[Any]:
    """Returns a column of any library as a list of Python's own values."""
    for convert in _TO_LIST:
        if hasattr(values, convert):
            return list(getattr(values, convert)())
    return list(values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
