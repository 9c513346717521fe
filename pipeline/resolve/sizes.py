"""Estimates the width of the output and the sizes of blocks, parts and files."""

import math
from collections import Counter
from dataclasses import dataclass

from bert_embed.bundle.bundle import Bundle
from bert_embed.formats.kinds import KINDS
from bert_embed.pipeline.options import EXAMPLES, Options
from bert_embed.pipeline.run import head_settings
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.transforms.examples.read import first_examples
from bert_embed.transforms.parts import WHOLE_FILES, InputFile
from bert_embed.transforms.plan import default_block_bytes
from bert_embed.transforms.read.csv import QUOTED, Quoting, first_csv_records
from bert_embed.transforms.read.lines import first_lines
from bert_embed.transforms.read.streams import packing

MOST_PART_DOCS = 65_536
_MOST_PART_BYTES = 128 << 20  # of vectors: a part is held in memory as a whole
_SLOW_MODEL = 768  # hidden size from which a block of the largest size would take minutes
_SLOW_MODEL_BLOCK = 256 << 10
_ACCELERATED, _LARGEST_ACCELERATED = 4, 4 << 20
_MOST_TOKEN_BYTES = 64 << 20  # of tokens' vectors in a block
_SMALLEST_BLOCK = 4 << 10
_TEXT_BYTES_A_TOKEN = 4
_SHORT_CHUNK = 4  # tokens of a short sentence
_CHUNK_TOKENS = {"sentence": 20, "paragraph": 80, "tokens": 200}
_ROW_OVERHEAD = 60  # bytes of a row beside its vector: id, counts, hash
_BYTES_A_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "ubinary": 1 / 8}
_JSON_BYTES_A_NUMBER = {"float32": 13, "float16": 13, "bfloat16": 13, "int8": 5, "ubinary": 4 / 8}
_EXAMPLE_OVERHEAD, _TOKEN_BYTES = 350, 8  # of an example, and of each of its tokens
_COMPRESSION = 4  # times that a text is larger than its compressed file


@dataclass(frozen=True)
class Widths:
    """How wide the output is, in numbers."""

    document: int  # in the vectors of a document
    token: int  # in those of each of its tokens, or words
    held: int = 0  # of each token that are computed, and so held in memory
    step: int = 0  # tokens of a text for each of its vectors; 0: a document has one
    plain: int = 0  # of a document, in what heads make, stored as float32 whatever the type

    @property
    def row(self) -> int:
        """Numbers of a document that are in memory at a time, tokens apart."""
        return max(self.document + self.plain, 1)

    @classmethod
    def of(cls, text_spec: TextSpec, vector_spec: VectorSpec, bundle: Bundle) -> "Widths":
        by_token = text_spec.needs_tokens or text_spec.pools_late
        token_shape = vector_spec.token_shape(bundle.config) if by_token else ()
        settings = {
            "shape": vector_spec.shape(bundle.config),
            "token_shape": token_shape,
            "heads": head_settings(bundle, text_spec),
        }
        numbers = sum((KINDS[kind].numbers(settings) for kind in text_spec.kinds), Counter[str]())
        step = 0
        if text_spec.chunk is not None:
            most = text_spec.most_chunk_tokens(0) if text_spec.fills_chunks else _SHORT_CHUNK
            step = max(most - text_spec.chunk_overlap, 1)
        held = math.prod(token_shape) if text_spec.pools_late else numbers["token"]
        plain = numbers["plain"] + len(text_spec.heads) * _ROW_OVERHEAD // 4
        return cls(numbers["document"], numbers["token"], held, step, plain)


def estimated_rows(documents: int, text_bytes: int, text_spec: TextSpec) -> int:
    """Estimates how many vectors of sentences there are: one a document, or one a chunk."""
    if text_spec.chunk is None:
        return documents
    tokens = text_spec.chunk_tokens or _CHUNK_TOKENS[text_spec.chunk]
    return max(documents, text_bytes // _TEXT_BYTES_A_TOKEN // tokens)


def block_bytes(total: int, bundle: Bundle, widths: Widths, accelerated: bool = False) -> int:
    """Bytes of text in a block, by the requested device: the plan must not depend on workers."""
    size = default_block_bytes(total)
    if accelerated:
        size = min(size * _ACCELERATED, _LARGEST_ACCELERATED)
    elif bundle.config.hidden_size >= _SLOW_MODEL:
        size = min(size, _SLOW_MODEL_BLOCK)
    if widths.held:
        # A token is some four bytes of text, and so is each of its numbers.
        size = min(size, max(_MOST_TOKEN_BYTES // widths.held, _SMALLEST_BLOCK))
    if widths.step:
        rows = _MOST_PART_BYTES // (4 * widths.row)
        size = min(size, max(rows * widths.step * _TEXT_BYTES_A_TOKEN, _SMALLEST_BLOCK))
    return size


def count_documents(files: list[InputFile], limit: int | None, quoting: Quoting = QUOTED) -> int:
    """Estimates how many documents an input has; counts them where no text has to be read."""
    if files and files[0].format == "tfrecord":
        sizes = [len(record.data or b"") for record in first_examples(files[0])]
        documents = round(_stored_bytes(files) * len(sizes) / max(1, sum(sizes)))
    else:
        documents = sum(file.stop for file in files if file.footer is not None)
        documents += sum(file.format == WHOLE_FILES for file in files)
        others = [file for file in files if file.footer is None and file.format != WHOLE_FILES]
        record_bytes = next(
            (size for file in others if (size := _record_bytes(file, quoting)) is not None), None
        )
        if record_bytes is not None:
            documents += max(1, round(_stored_bytes(others) / record_bytes))
    return documents if limit is None else min(documents, limit)


def _record_bytes(file: InputFile, quoting: Quoting) -> float | None:
    """Bytes of a record, by the first ones of a file; None if it has none."""
    first = first_csv_records(file, quoting) if file.format == "csv" else first_lines(file)
    return first.size / first.count if first is not None and first.count else None


def _stored_bytes(files: list[InputFile]) -> int:
    return sum(file.stop * (_COMPRESSION if packing(file.compression) else 1) for file in files)


def estimated_size(
    documents: int,
    text_bytes: int,
    options: Options,
    widths: Widths,
    tokens: int | None = None,
) -> int:
    """Estimates the bytes of the output; of `tokens` that nobody counted, by those of the texts."""
    if tokens is None:
        tokens = text_bytes // _TEXT_BYTES_A_TOKEN
    text_size = text_bytes if options.keep_text else 0
    if options.output_format == EXAMPLES:
        return documents * _EXAMPLE_OVERHEAD + tokens * _TOKEN_BYTES + text_size
    kinds = _JSON_BYTES_A_NUMBER if options.output_format == "jsonl" else _BYTES_A_NUMBER
    numbers = documents * widths.document + tokens * widths.token
    plain = math.ceil(documents * widths.plain * kinds["float32"])
    vectors = math.ceil(numbers * kinds[options.output_dtype]) + plain
    return documents * _ROW_OVERHEAD + vectors + text_size


def part_docs(widths: Widths) -> int:
    """Maximum number of documents in a part, which is held in memory as a whole."""
    return max(1, min(MOST_PART_DOCS, _MOST_PART_BYTES // (4 * widths.row)))
