"""Sizes: how wide the output is, and so how large blocks, parts and files will be."""

import math
from dataclasses import dataclass

from bert.bundle import Bundle
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from pipeline.options import EXAMPLES
from transforms.block_spec import InputFile
from transforms.blocks import default_block_bytes
from transforms.sources.lines import first_lines
from transforms.sources.tfrecord import first_records

_MOST_PART_DOCS = 65_536
_MOST_PART_BYTES = 128 << 20  # of vectors: a part is held in memory as a whole
_SLOW_MODEL = 768  # hidden size from which a block of the largest size would take over minutes
_SLOW_MODEL_BLOCK = 256 << 10
_ACCELERATED, _LARGEST_ACCELERATED = 4, 4 << 20
_MOST_TOKEN_BYTES = 64 << 20  # of tokens' vectors in a block
_SMALLEST_BLOCK = 4 << 10
_TEXT_BYTES_A_TOKEN = 4
_ROW_OVERHEAD = 60  # bytes of a row beside its vector: id, counts, hash
_JSON_BYTES_A_NUMBER = 13
_EXAMPLE_OVERHEAD, _TOKEN_BYTES = 350, 8  # of an example, and of each of its tokens
_COMPRESSION = 4  # text is about so much larger than its compressed file


@dataclass(frozen=True)
class Widths:
    """How wide the output is.

    Attributes:
        document: Numbers of the vectors that a document has one of.
        token: Numbers of the vectors that each of its tokens, or words, has one of.
    """

    document: int
    token: int

    @classmethod
    def of(cls, made: TextSpec, spec: VectorSpec, bundle: Bundle) -> "Widths":
        sentence = "sentence" in made.granularity
        kinds = len(made.granularity) - sentence
        token = kinds * math.prod(spec.token_shape(bundle.config)) if kinds else 0
        return cls(spec.width(bundle.config) if sentence else 0, token)


def block_bytes(total: int, bundle: Bundle, widths: Widths, accelerated: bool = False) -> int:
    """Bytes of text a block holds: more where a fast device is asked for, whose batches are large.

    What is asked for counts, not what workers have: the plan must not hang on that.
    """
    wanted = default_block_bytes(total)
    if accelerated:
        wanted = min(wanted * _ACCELERATED, _LARGEST_ACCELERATED)
    elif bundle.config.hidden_size >= _SLOW_MODEL:
        wanted = min(wanted, _SLOW_MODEL_BLOCK)
    if widths.token:
        # A token is some four bytes of text and of each of its numbers alike.
        wanted = min(wanted, max(_MOST_TOKEN_BYTES // widths.token, _SMALLEST_BLOCK))
    return wanted


def estimated_documents(files: list[InputFile], limit: int | None) -> int:
    if files and files[0].format == "tfrecord":
        sizes = [len(record.data or b"") for record in first_records(files[0])]
        stored = sum(file.stop * (_COMPRESSION if file.compression else 1) for file in files)
        documents = round(stored * len(sizes) / max(1, sum(sizes)))
        return documents if limit is None else min(documents, limit)
    rows = sum(file.stop for file in files if file.footer is not None)
    others = [file for file in files if file.footer is None]
    total = sum(file.stop * (_COMPRESSION if file.compression else 1) for file in others)
    first = next((each for each in map(first_lines, others) if each.data), None)
    documents = rows
    if first is not None:
        documents += max(1, round(total / max(1, len(first.data) / first.count)))
    return documents if limit is None else min(documents, limit)


def estimated_bytes(documents: int, text_bytes: int, output_format: str, widths: Widths) -> int:
    if output_format == EXAMPLES:
        return documents * _EXAMPLE_OVERHEAD + text_bytes // _TEXT_BYTES_A_TOKEN * _TOKEN_BYTES
    number = _JSON_BYTES_A_NUMBER if output_format == "jsonl" else 4
    tokens = text_bytes // _TEXT_BYTES_A_TOKEN
    rows = documents * (_ROW_OVERHEAD + number * widths.document)
    return rows + tokens * number * widths.token


def part_docs(widths: Widths) -> int:
    """Documents at which a part is closed: it is held in memory as a whole."""
    return max(1, min(_MOST_PART_DOCS, _MOST_PART_BYTES // (4 * max(widths.document, 1))))
