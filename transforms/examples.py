"""Examples: a TokenBlock to the features of tf.train.Examples, an example a row, and back.

A row is what the model takes at once: a document, or a window of a long one. `input_ids`,
`input_mask` and `segment_ids` are called as google-research/bert calls them, and are not padded.
"""

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from bert.example_codec import Bytes, Feature, Ints, each, encode_records
from bert.ragged import places, splits_of, take_rows
from transforms.tokenization import TokenBlock

if TYPE_CHECKING:
    from bert.layout import Layout, Units

SETTINGS_FILE = "examples.json"  # beside the examples: what holds for all of them
_FORMAT = 1


@dataclass(frozen=True)
class ExampleSettings:
    """What a folder's examples are, and what can be made of them.

    Attributes:
        tokenizer: Fingerprint of the tokenizer; each example has it, too.
        max_seq_length: Most tokens of a row.
        long_text: What became of longer texts.
        stride: Tokens that windows share, None without windows.
        prompt: What stands before each text.
        prompt_tokens: How many tokens it has.
        granularity: Which units the examples tell of: words and spans only where these were asked
            for, tokens always.
        tokens_with_ids: As in the metadata of a run.
        run: Fingerprint of the run that wrote them.
    """

    tokenizer: str
    max_seq_length: int
    long_text: str
    stride: int | None
    prompt: str
    prompt_tokens: int
    granularity: tuple[str, ...]
    tokens_with_ids: bool
    run: str = ""

    def to_json(self) -> bytes:
        row = {"format": _FORMAT} | asdict(self)
        return orjson.dumps(row, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def settings_from_json(data: bytes) -> ExampleSettings:
    """What `to_json` gave.

    Raises:
        ValueError: No such settings, or those of another version.
    """
    try:
        row = orjson.loads(data)
        if row.pop("format") != _FORMAT:
            raise ValueError("another format")
        known = {field.name: row[field.name] for field in fields(ExampleSettings)}
        return ExampleSettings(**known | {"granularity": tuple(row["granularity"])})
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no settings of examples: {error!r}") from error


def example_bytes(block: TokenBlock, tokenizer: str) -> np.ndarray:
    """A block as the bytes, uint8, of a TFRecord file; equal blocks give equal bytes."""
    return encode_records(example_features(block, tokenizer))


def example_features(block: TokenBlock, tokenizer: str) -> dict[str, Feature]:
    """The features of a block's rows, in the order of its documents.

    Args:
        block: With offsets, that is, its layout tells of tokens.
        tokenizer: Fingerprint that each example carries.
    """
    layout, windows = block.layout, block.layout.windows
    at, splits = take_rows(block.rows.row_splits, block.row)
    document = np.arange(len(block)) if windows is None else windows.document
    types = block.rows.token_type_ids
    ids = block.ids.cast(pa.binary()).to_pylist()
    starts, stops = _row_offsets(layout, splits)
    found: dict[str, Feature] = {
        "id": Bytes([ids[row] for row in document.tolist()]),
        "input_ids": Ints(block.rows.input_ids[at].astype(np.int64), splits),
        "input_mask": Ints(np.ones(len(at), np.int64), splits),
        "segment_ids": Ints(np.zeros(len(at), np.int64) if types is None else types[at], splits),
        "starts": Ints(starts, splits),
        "stops": Ints(stops, splits),
        "num_tokens": each(layout.num_tokens[document]),
        "truncated": each(layout.truncated[document]),
        "text_hash": each(block.text_hash[document]),
        "tokenizer": Bytes([tokenizer.encode()] * len(document)),
    }
    if block.line_numbers is not None:
        found["line"] = each(block.line_numbers[document])
    number = np.zeros(len(document), np.int64)
    if windows is not None:
        number = np.arange(len(document)) - windows.splits[document]
        found["window"] = each(number)
        found["windows"] = each(np.diff(windows.splits)[document])
        found["window_first"] = each(windows.first)
    for name, units in (("word", layout.words), ("span", layout.spans)):
        if units is not None:
            found |= _unit_features(name, units, layout, document, number)
    return found


def _row_offsets(layout: "Layout", splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The characters of every row's tokens, int64 `[tokens of all rows]` each."""
    tokens, windows = layout.tokens, layout.windows
    assert tokens is not None
    if windows is None:
        return tokens.starts.astype(np.int64), tokens.stops.astype(np.int64)
    prompt = np.diff(splits) - 2 - windows.count
    here = places(splits[:-1] + 1 + prompt, windows.count)
    there = places(tokens.splits[windows.document] + 1 + prompt + windows.first, windows.count)
    starts, stops = np.full((2, splits[-1]), -1, np.int64)
    starts[here], stops[here] = tokens.starts[there], tokens.stops[there]
    return starts, stops


def _unit_features(
    name: str, units: "Units", layout: "Layout", document: np.ndarray, number: np.ndarray
) -> dict[str, Feature]:
    """Words or spans; of a document in windows its first window tells all of them."""
    assert layout.tokens is not None
    texts = units.texts
    counts = np.diff(texts.splits)
    splits = splits_of(np.where(number == 0, counts[document], 0))
    begins = np.repeat(layout.tokens.splits[:-1], counts)
    found: dict[str, Feature] = {
        f"{name}_starts": Ints(texts.starts, splits),
        f"{name}_stops": Ints(texts.stops, splits),
        f"{name}_first": Ints(units.first - begins, splits),
        f"{name}_last": Ints(units.last - begins, splits),
        f"{name}_truncated": Ints(units.truncated.astype(np.int64), splits),
    }
    if texts.texts is not None:
        found["words"] = Bytes([text.encode() for text in texts.texts], splits)
    return found


def feature_kinds(granularity: tuple[str, ...], windows: bool) -> dict[str, type]:
    """Which features are read of each example, and what they hold."""
    names = ["input_ids", "input_mask", "segment_ids", "starts", "stops"]
    names += ["num_tokens", "truncated", "text_hash", "line"]
    names += ["window", "windows", "window_first"] if windows else []
    for name in ("word", "span"):
        if name in granularity:
            names += [
                f"{name}_{each}" for each in ("starts", "stops", "first", "last", "truncated")
            ]
    kinds: dict[str, type] = dict.fromkeys(names, int)
    kinds |= {"id": bytes, "tokenizer": bytes}
    return kinds | ({"words": bytes} if "word" in granularity else {})
