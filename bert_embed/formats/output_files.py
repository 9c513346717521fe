"""Names the folders and files of a run's output."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

RUN_FILE = "run.json"
BLOCK_RECORDS = "_state/blocks"
# The folders of sentence vectors where each window, or each chunk, has its own.
PIECES = {"window": "windows", "chunk": "chunks"}
VECTOR_ENDINGS = (".parquet", ".jsonl", ".tfrecord", ".tfrecord.gz")
# Of a block and a part. A run has fewer, and some memory is by the number of a part.
PART_NUMBERS = "([0-9]{7,12})-([0-9]{5,8})"
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


def holds_vectors(name: str) -> bool:
    """Returns whether a name is that of a file of vectors."""
    parsed = parse_name(name)
    return parsed is not None and parsed.ending in VECTOR_ENDINGS


def by_number(name: str) -> tuple[str, int, int, str]:
    """Returns what sorts files by folder, block and part: names have digits of no fixed number."""
    return parse_name(name) or (name, 0, 0, "")


def vectors_of(settings: Mapping[str, Any]) -> Sequence[str]:
    """Returns which of `VECTOR_KINDS` a run wrote; an earlier version's record does not say."""
    return settings.get("vectors", ["dense"])


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
