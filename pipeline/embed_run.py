"""EmbedRun: EmbedOptions in, everything the job needs out, checked before any work starts."""

import hashlib
import json
import math
import os
import shutil
from dataclasses import astuple, dataclass, replace
from typing import Any

from bert.bundle import Bundle
from bert.resolve import resolve_model
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from pipeline.options import EmbedOptions, UsageError
from pipeline.specs import check_contradictions, text_spec, vector_spec
from transforms.block_spec import InputFile, PlannedWork
from transforms.blocks import (
    PlanRequest,
    default_block_bytes,
    input_files,
    listing_digest,
    plan_blocks,
    planned_work,
)
from transforms.files import absolute, create_exclusive, is_remote, remove, temporary_name
from transforms.sources.jsonl import Columns, first_record
from transforms.sources.lines import first_lines, limit_files

OUTPUT_FORMAT = 1  # rises when equal input would give other files
_MOST_PART_DOCS = 65_536
_MOST_PART_BYTES = 128 << 20  # of vectors: a part is held in memory as a whole
_SLOW_MODEL = 768  # hidden size from which a block of the largest size would take over minutes
_SLOW_MODEL_BLOCK = 256 << 10
_MOST_TOKEN_BYTES = 64 << 20  # of tokens' vectors in a block
_SMALLEST_BLOCK = 4 << 10
_TEXT_BYTES_A_TOKEN = 4
_ROW_OVERHEAD = 60  # bytes of a row beside its vector: id, counts, hash
_JSON_BYTES_A_NUMBER = 13
_COMPRESSION = 4  # text is about so much larger than its compressed file


@dataclass(frozen=True)
class EmbedRun:
    """A run that can start.

    Attributes:
        options: As asked.
        output: Absolute folder, or URL.
        bundle: The model.
        spec: What a vector is.
        text_spec: How texts become rows, and which of their vectors are wanted.
        request: What the plan is made from.
        planned: What the plan holds at this moment.
        columns: Where the fields of JSON records stand.
        part_docs: Most documents of a part.
        fingerprint: Of everything that changes rows or how files are cut.
        input_bytes: Stored size of the input.
        estimated_documents: Guessed from the first lines.
        estimated_bytes: Guessed size of the output.
    """

    options: EmbedOptions
    output: str
    bundle: Bundle
    spec: VectorSpec
    text_spec: TextSpec
    request: PlanRequest
    planned: PlannedWork
    columns: Columns
    part_docs: int
    fingerprint: str
    input_bytes: int
    estimated_documents: int
    estimated_bytes: int

    @property
    def metadata(self) -> dict[str, Any]:
        """What the vectors are, as it stands in the output's files."""
        return {
            "format": OUTPUT_FORMAT,
            "model": self.bundle.fingerprint,
            "model_source": self.bundle.source,
            "tokenizer": {
                "lower_case": self.bundle.lower_case,
                "max_word_chars": self.bundle.max_word_chars,
            },
            "num_hidden_layers": self.bundle.config.num_hidden_layers,
            "precision": self.options.precision,
            "output_dtype": self.options.output_dtype,
            "shape": list(self.spec.shape(self.bundle.config)),
            "token_shape": list(self.spec.token_shape(self.bundle.config))
            if self.text_spec.needs_tokens
            else None,
            "tokens_with_ids": len(self.planned.paths) > 1 or self.columns.id is not None,
            **self.spec.to_dict(),
            **self.text_spec.to_dict(),
        }


def prepare(options: EmbedOptions) -> EmbedRun:
    """Checks the options against input, model and output.

    Raises:
        UsageError: One clear sentence that names the flag or file.
    """
    try:
        return _prepare(options)
    except UsageError:
        raise
    except (ValueError, OSError, RuntimeError) as error:
        raise UsageError(str(error)) from error


def _prepare(options: EmbedOptions) -> EmbedRun:
    output = absolute(options.output)
    listed = input_files(options.input, options.input_format, output)
    files = listed if options.limit is None else limit_files(listed, options.limit)
    check_contradictions(options)
    columns = _columns(options, files)
    bundle = resolve_model(options.model)
    spec = vector_spec(options, bundle)
    made = text_spec(options, bundle, spec)
    widths = Widths.of(made, spec, bundle)
    total = sum(file.stop for file in files)
    request = PlanRequest(
        patterns=tuple(absolute(pattern) for pattern in options.input),
        input_format=options.input_format,
        block_bytes=options.block_bytes or _block_bytes(total, bundle, widths),
        limit=options.limit,
        digest=listing_digest(listed),
        output=output,
        read_through="token" in made.granularity and options.output_format == "jsonl",
    )
    specs = list(plan_blocks(files, request.block_bytes, request.read_through))
    run = EmbedRun(
        options=options,
        output=output,
        bundle=bundle,
        spec=spec,
        text_spec=made,
        request=request,
        planned=planned_work(files, specs),
        columns=columns,
        part_docs=options.block_docs
        or max(1, min(_MOST_PART_DOCS, _MOST_PART_BYTES // (4 * max(widths.document, 1)))),
        fingerprint="",
        input_bytes=total,
        estimated_documents=_estimated_documents(files, options.limit),
        estimated_bytes=0,
    )
    size = _estimated_bytes(run.estimated_documents, total, options.output_format, widths)
    run = replace(run, fingerprint=run_fingerprint(run), estimated_bytes=size)
    check_output(run)
    return run


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


def _block_bytes(total: int, bundle: Bundle, widths: Widths) -> int:
    wanted = default_block_bytes(total)
    if bundle.config.hidden_size >= _SLOW_MODEL:
        wanted = min(wanted, _SLOW_MODEL_BLOCK)
    if widths.token:
        # A token is some four bytes of text and of each of its numbers alike.
        wanted = min(wanted, max(_MOST_TOKEN_BYTES // widths.token, _SMALLEST_BLOCK))
    return wanted


def _columns(options: EmbedOptions, files: list[InputFile]) -> Columns:
    """Where the fields of a record stand, judged by the first JSON record."""
    json_files = [file for file in files if file.format == "jsonl"]
    spans = None
    if "span" in options.granularity:
        spans = options.span_columns or ("start", "stop")
    columns = Columns(
        text=options.text_column or "text",
        id=options.id_column,
        text_b=options.text_b_column,
        spans=spans and (spans[0], spans[1]),
        pair_separator=options.pair_separator,
    )
    if not json_files:
        for flag in ("text_column", "id_column", "text_b_column"):
            if getattr(options, flag):
                raise UsageError(f"--{flag} is for JSON lines, but the input is plain text")
        if spans:
            raise UsageError("--granularity span reads JSON lines, but the input is plain text")
        return columns
    if options.pair_separator and len(json_files) == len(files):
        raise UsageError("--pair_separator is for plain text; --text_b_column is for JSON lines")
    for file in json_files:
        record = first_record(first_lines(file))
        if record is not None:
            _check_fields(columns, record, file)
            return replace(columns, id=columns.id or ("id" if "id" in record else None))
    if any(file.stop for file in json_files):
        raise UsageError(
            f"--input {json_files[0].info.path} does not begin with JSON lines: one object a line "
            "is wanted (an array or an indented object is none)"
        )
    return columns


def _check_fields(columns: Columns, record: dict[str, Any], file: InputFile) -> None:
    wanted = [("text_column", columns.text), ("id_column", columns.id)]
    wanted += [("text_b_column", columns.text_b)]
    wanted += [("span_columns", name) for name in columns.spans or ()]
    for flag, name in wanted:
        if name is not None and name not in record:
            found = ", ".join(sorted(map(str, record))) or "no field"
            raise UsageError(
                f"--{flag} {name} is not in the first record of {file.info.path}, which has {found}"
            )


def _estimated_documents(files: list[InputFile], limit: int | None) -> int:
    total = sum(file.stop * (_COMPRESSION if file.compression else 1) for file in files)
    first = next((each for each in map(first_lines, files) if each.data), None)
    if first is None:
        return 0
    documents = max(1, round(total / max(1, len(first.data) / first.count)))
    return documents if limit is None else min(documents, limit)


def _estimated_bytes(documents: int, text_bytes: int, output_format: str, widths: Widths) -> int:
    number = _JSON_BYTES_A_NUMBER if output_format == "jsonl" else 4
    tokens = text_bytes // _TEXT_BYTES_A_TOKEN
    rows = documents * (_ROW_OVERHEAD + number * widths.document)
    return rows + tokens * number * widths.token


def run_fingerprint(run: EmbedRun) -> str:
    """Hash of every option that changes rows or how files are cut, the model and the listing."""
    settings = run.metadata | {
        "output_format": run.options.output_format,
        "columns": astuple(run.columns),
        "read_through": run.request.read_through,
        "input_format": run.request.input_format,
        "block_bytes": run.request.block_bytes,
        "part_docs": run.part_docs,
        "limit": run.request.limit,
        "listing": run.request.digest,
    }
    del settings["model_source"]  # a path, which may change while the model stays
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]


def check_output(run: EmbedRun) -> None:
    """Sees that the output folder can be written and has room; makes nothing yet.

    Raises:
        UsageError: It cannot, or the vectors will not fit the disk.
    """
    if is_remote(run.output):
        return
    folder = run.output
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    probe = os.path.join(folder, temporary_name("probe"))
    try:
        create_exclusive(probe, b"")
        remove([probe])
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"--output {run.options.output} cannot be written: {why}") from error
    free = shutil.disk_usage(folder).free
    if run.estimated_bytes > free:
        raise UsageError(
            f"--output {run.options.output} has {free / 1e9:.1f} GB free, but about "
            f"{run.estimated_documents:,} vectors will take {run.estimated_bytes / 1e9:.1f} GB; "
            "choose another disk, a smaller --dim or a --limit"
        )
