"""Writes tokenized examples: one for each row of the model, a document or a window of a long one.

`input_ids`, `input_mask`, `segment_ids` have google-research/bert's names, and are not padded.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.arrays import places, splits_of, take_rows
from bert_embed.base.errors import InputError, required
from bert_embed.base.json import from_json, json_bytes, json_object
from bert_embed.results.tf_example import FeatureColumn, encode_records, one_each
from bert_embed.text.documents import TextWords
from bert_embed.text.layout import Layout
from bert_embed.transforms.blocks import TokenBlock
from bert_embed.transforms.output_folder import EXAMPLES, OutputFile, OutputFolder

_FORMAT = 1


@dataclass(frozen=True)
class ExampleSettings:
    """What the examples of a folder are, and which vectors can be computed from them."""

    tokenizer: str  # fingerprint that each example has, too
    max_seq_length: int
    long_text: str
    overlap: int | None
    prompt: str
    prompt_tokens: int
    granularity: tuple[str, ...]  # names words only if requested, tokens always
    run: str = ""  # fingerprint of the run that wrote them
    keep_text: bool = False

    def to_json(self) -> bytes:
        """The settings as JSON."""
        return json_bytes({"format": _FORMAT} | asdict(self))


def are_settings(data: bytes | None) -> bool:
    """Whether a file holds settings, of any version; others may give theirs the same name."""
    with suppress(orjson.JSONDecodeError):
        row = orjson.loads(data or b"")
        return isinstance(row, dict) and {"format", "tokenizer", "prompt_tokens"} <= row.keys()
    return False


def settings_from_json(data: bytes, path: str) -> ExampleSettings:
    """Reads what `to_json` gave; InputError, with the file's path, if it is damaged."""
    values = json_object(data, path)
    if values.get("format") != _FORMAT:
        raise InputError(f"{path} is damaged: it holds no settings of examples of format {_FORMAT}")
    return from_json(ExampleSettings, values, path)


def example_files(block: TokenBlock, folder: OutputFolder, tokenizer: str) -> dict[str, OutputFile]:
    """Writes a file with a block's examples; none for a block without documents.

    `tokenizer` is its fingerprint, which each example has.
    """
    if not len(block):
        return {}
    part, windows, data = block.part, block.layout.windows, example_bytes(block, tokenizer)
    rows = len(block) if windows is None else len(windows.document)
    place = EXAMPLES, part.block, part.number, ".tfrecord"
    return folder.write(*place, lambda file: file.write(data), rows)


def example_bytes(block: TokenBlock, tokenizer: str) -> bytes:
    """A TFRecord file with a block; equal blocks give equal bytes."""
    return encode_records(example_features(block, tokenizer))


def example_features(block: TokenBlock, tokenizer: str) -> dict[str, FeatureColumn]:
    """The features of a block's rows, in its documents' order; the layout must have tokens."""
    layout, windows = block.layout, block.layout.windows
    at, splits = take_rows(layout.rows.row_splits, layout.row)
    document = np.arange(len(block)) if windows is None else windows.document
    types = layout.rows.token_type_ids
    ids = block.ids.cast(pa.binary()).to_pylist()
    starts, stops = _row_offsets(layout, splits)
    features: dict[str, FeatureColumn] = {
        "id": one_each([ids[row] for row in document.tolist()]),
        "input_ids": FeatureColumn(layout.rows.input_ids[at].astype(np.int64), splits),
        "input_mask": FeatureColumn(np.ones(len(at), np.int64), splits),
        "segment_ids": FeatureColumn(
            np.zeros(len(at), np.int64) if types is None else types[at], splits
        ),
        "starts": FeatureColumn(starts, splits),
        "stops": FeatureColumn(stops, splits),
        "num_tokens": one_each(layout.num_tokens[document]),
        "num_tokens_full": one_each(block.num_tokens_full[document]),
        "truncated": one_each(layout.truncated[document]),
        "text_hash": one_each(block.text_hash[document]),
        "tokenizer": one_each([tokenizer.encode()] * len(document)),
    }
    number = np.zeros(len(document), np.int64)
    if block.texts is not None:  # in the first row of each document
        firsts = np.arange(len(document)) if windows is None else windows.splits[:-1]
        once = splits_of(np.bincount(firsts, minlength=len(document)))
        features["text"] = FeatureColumn(block.texts.cast(pa.binary()).to_pylist(), once)
    if windows is not None:
        number = np.arange(len(document)) - windows.splits[document]
        features["window"] = one_each(number)
        features["windows"] = one_each(np.diff(windows.splits)[document])
        features["window_first"] = one_each(windows.first)
    if layout.words is not None:
        features |= _word_features(layout.words, layout, document, number)
    return features


def _row_offsets(layout: Layout, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and stop of every row's tokens in the text, int64 `[tokens of all rows]` each."""
    tokens, windows = required(layout.tokens, "tokens"), layout.windows
    if windows is None:
        return tokens.starts.astype(np.int64), tokens.stops.astype(np.int64)
    tail = tokens.starts[-1:] < 0  # whether rows end with [SEP], which is no character
    head = np.diff(splits) - windows.count - tail  # [CLS] and the prompt
    of_rows = places(splits[:-1] + head, windows.count)
    of_tokens = places(tokens.splits[windows.document] + head + windows.first, windows.count)
    starts, stops = np.full((2, splits[-1]), -1, np.int64)
    starts[of_rows], stops[of_rows] = tokens.starts[of_tokens], tokens.stops[of_tokens]
    return starts, stops


def _word_features(
    words: TextWords, layout: Layout, document: np.ndarray, number: np.ndarray
) -> dict[str, FeatureColumn]:
    """The features of words; the first window of a document has all of them."""
    counts = np.diff(words.splits)
    splits = splits_of(np.where(number == 0, counts[document], 0))
    begins = np.repeat(required(layout.tokens, "tokens").splits[:-1], counts)
    return {
        "word_starts": FeatureColumn(words.starts, splits),
        "word_stops": FeatureColumn(words.stops, splits),
        "word_first": FeatureColumn(words.first - begins, splits),
        "word_last": FeatureColumn(words.last - begins, splits),
        "word_truncated": FeatureColumn(words.truncated.astype(np.int64), splits),
        "words": FeatureColumn([text.encode() for text in words.texts], splits),
    }
