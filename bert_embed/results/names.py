"""Names the folders and files of a run's output, and the number types of its vectors."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_embed.base.arguments import one_of
from bert_embed.base.errors import InputError

OUTPUT_DTYPES = ("float32", "float16", "bfloat16", "int8", "ubinary")
INTEGER_DTYPES = ("int8", "ubinary")  # those that JSON lines hold as integers

_STORED: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
    "ubinary": np.dtype(np.uint8),
}
_MOST_INT8 = 127  # the same on both sides of 0; -128 is never stored
_LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}


@dataclass(frozen=True)
class StoredVectors:
    """Vectors as a file holds them."""

    # `[n, stored width]`; float32, float16, uint16 (the bits of bfloat16), int8, or uint8 (eight
    # numbers a byte, the first in the highest bit)
    values: np.ndarray
    # float32 `[n]`, the factor of each int8 vector; None for other types
    scale: np.ndarray | None = None


def stored(vectors: np.ndarray, dtype: str) -> StoredVectors:
    """Rounds finite float32 `[n, width]` to an output type, each vector for itself.

    float16 and bfloat16 round to the nearest number, ties to even; numbers out of range become the
    largest one. int8 divides a vector by its scale, which is its largest absolute number over 127,
    and rounds; a vector of zeros has scale 0. ubinary keeps whether a number is above 0.
    """
    one_of("output_dtype", dtype, OUTPUT_DTYPES)
    if dtype in _LARGEST:
        clipped = np.clip(vectors, -_LARGEST[dtype], _LARGEST[dtype])
        is_half = dtype == "float16"
        rounded = clipped.astype(np.float16 if is_half else ml_dtypes.bfloat16)
        return StoredVectors(rounded if is_half else rounded.view(np.uint16))
    if dtype == "int8":
        return _int8(vectors)
    if dtype == "ubinary":
        return StoredVectors(np.packbits(vectors > 0, axis=-1))
    return StoredVectors(vectors)


def restored(values: np.ndarray, scale: np.ndarray | None, dtype: str, width: int) -> np.ndarray:
    """Returns float32 `[n, width]` of `[n, stored width]`; the bits of ubinary become 1 and -1."""
    one_of("output_dtype", dtype, OUTPUT_DTYPES)
    if dtype == "bfloat16":
        return values.view(ml_dtypes.bfloat16).astype(np.float32)
    if dtype == "ubinary":
        signs = _signs().take(values, axis=0)  # eight numbers a byte
        return signs.reshape(*values.shape[:-1], 8 * values.shape[-1])[..., :width]
    vectors = values.astype(np.float32, copy=False)
    if dtype == "int8":
        if scale is None:
            raise InputError("int8 vectors require their column scale, which is missing")
        vectors *= scale.astype(np.float32, copy=False)[:, None]
    return vectors


def stored_type(dtype: str) -> np.dtype:
    """Returns the type of the stored values, that of `StoredVectors.values`."""
    return _STORED[one_of("output_dtype", dtype, OUTPUT_DTYPES)]


def stored_width(dtype: str, width: int) -> int:
    """Returns the number of stored values of a vector: bits of ubinary are eight to a byte."""
    return -(-width // 8) if dtype == "ubinary" else width


def output_dtype(settings: Mapping[str, Any]) -> str:
    """Returns the output type that a run's settings name, by default float32."""
    return settings.get("output_dtype", "float32")


@functools.cache
def _signs() -> np.ndarray:
    """Returns the numbers that each byte of ubinary holds, float32 `[256, 8]`."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return bits.astype(np.float32) * 2 - 1


def _int8(vectors: np.ndarray) -> StoredVectors:
    largest = np.abs(vectors).max(axis=-1, initial=0)
    scale = largest / np.float32(_MOST_INT8)
    scale[scale < np.finfo(np.float32).tiny] = 0  # a subnormal scale does not divide exactly
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    return StoredVectors(np.rint(vectors / divisor[:, None]).astype(np.int8), scale)


RUN_FILE = "run.json"
BLOCK_RECORDS = "_state/blocks"
EARLIER_RUNS = "_state/earlier.json.zst"  # the runs that a run continues
DELETED = "deleted"  # the folder with ids that earlier outputs have and the run's input lacks
# Of a block and a part. A run has fewer, and some memory is by the number of a part.
PART_NUMBERS = "([0-9]{7,12})-([0-9]{5,8})"
DATA_FILES = "*/part-*"  # a glob of a run's data files, relative to the output folder
_FILE = re.compile(rf"([a-z]+)/part-{PART_NUMBERS}((?:\.[a-z]+){{1,2}})")


class OutputName(NamedTuple):
    """The parts of the name of an output's file."""

    kind: str  # its folder, such as `embeddings`
    block: int  # number of the block
    part: int  # number of the part in its block
    ending: str  # such as `.parquet`


def part_name(block: int, part: int) -> str:
    """Returns the numbers of a part as they are in the names of its files: "0000003-00000"."""
    return f"{block:07d}-{part:05d}"


def file_name(kind: str, block: int, part: int, ending: str) -> str:
    """Returns the name of a file, relative to the output folder.

    >>> file_name("embeddings", 3, 0, ".parquet")
    'embeddings/part-0000003-00000.parquet'
    """
    return f"{kind}/part-{part_name(block, part)}{ending}"


def block_record_name(block: int, part: int) -> str:
    """Returns the name of a part's block record, relative to the output folder."""
    return f"{BLOCK_RECORDS}/{part_name(block, part)}.json"


def parse_name(name: str) -> OutputName | None:
    """Returns the arguments of `file_name`; None for any other name.

    >>> parse_name("tokens/part-0000003-00001.jsonl")
    OutputName(kind='tokens', block=3, part=1, ending='.jsonl')
    >>> parse_name("tokens/../tokens/part-0000003-00001.jsonl") is None
    True
    """
    match = _FILE.fullmatch(name)
    return match and OutputName(match[1], int(match[2]), int(match[3]), match[4])


def output_name(name: str) -> OutputName:
    """Returns what `parse_name` does; ValueError for any other name."""
    parsed = parse_name(name)
    if parsed is None:
        raise ValueError(f"{name} is not the name of a file of a run")
    return parsed


def part_of(name: str) -> tuple[int, int]:
    """Returns block and part of a file of results; ValueError for any other name."""
    parsed = output_name(name)
    return parsed.block, parsed.part


def by_number(name: str) -> tuple[str, int, int, str]:
    """Returns what sorts files by folder, block and part: names have digits of no fixed number."""
    return parse_name(name) or (name, 0, 0, "")


def vectors_of(settings: Mapping[str, Any]) -> Sequence[str]:
    """Returns the vectors that a run wrote; its record names them unless they are dense alone."""
    return settings.get("vectors", ["dense"])


def copied_columns(settings: Mapping[str, Any], extra: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns that a run takes from its input: texts, if it keeps them, and `extra`."""
    return (*(("text",) if settings.get("keep_text") else ()), *extra)


def kinds_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the kinds of vectors that a run wrote, by what its record says of them.

    >>> kinds_of({"granularity": ["sentence", "word"]})
    ('sentence', 'word')
    >>> kinds_of({"granularity": ["sentence"], "vectors": ["sparse", "scores"]})
    ('sparse', 'scores')
    """
    vectors = vectors_of(settings)
    dense = settings["granularity"] if "dense" in vectors else ()
    return (*dense, *(kind for kind in vectors if kind != "dense"))
