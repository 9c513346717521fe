"""EmbedRun: EmbedOptions in, everything the job needs out, checked before any work starts."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, replace
from typing import Any

from bert.bundle import Bundle
from bert.encoder import spec_with
from bert.recipes import recipe_spec
from bert.resolve import resolve_model
from bert.vector_spec import VectorSpec
from pipeline.options import EmbedOptions, UsageError
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
        max_seq_length: Most tokens of a text, special tokens included.
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
    max_seq_length: int
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
            "max_seq_length": self.max_seq_length,
            "precision": self.options.precision,
            "shape": list(self.spec.shape(self.bundle.config)),
            **self.spec.to_dict(),
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
    columns = _columns(options, files)
    _check_contradictions(options)
    bundle = resolve_model(options.model)
    spec = vector_spec(options, bundle)
    bundle.check(spec)
    max_seq_length = options.max_seq_length or bundle.max_seq_length
    bundle.check_max_seq_length(max_seq_length)
    total = sum(file.stop for file in files)
    request = PlanRequest(
        patterns=tuple(absolute(pattern) for pattern in options.input),
        input_format=options.input_format,
        block_bytes=options.block_bytes or _block_bytes(total, bundle),
        limit=options.limit,
        digest=listing_digest(listed),
        output=output,
    )
    width = spec.width(bundle.config)
    run = EmbedRun(
        options=options,
        output=output,
        bundle=bundle,
        spec=spec,
        max_seq_length=max_seq_length,
        request=request,
        planned=planned_work(files, list(plan_blocks(files, request.block_bytes))),
        columns=columns,
        part_docs=options.block_docs
        or max(1, min(_MOST_PART_DOCS, _MOST_PART_BYTES // (4 * width))),
        fingerprint="",
        input_bytes=total,
        estimated_documents=_estimated_documents(files, options.limit),
        estimated_bytes=0,
    )
    size = run.estimated_documents * _row_bytes(options.output_format, width)
    run = replace(run, fingerprint=run_fingerprint(run), estimated_bytes=size)
    check_output(run)
    return run


def vector_spec(options: EmbedOptions, bundle: Bundle) -> VectorSpec:
    """The recipe's or the model's own settings, with what was asked for instead.

    Raises:
        ValueError: Several layers without a word on how to combine them.
    """
    names = ("layers", "layer_combine", "pooling", "pool_special_tokens", "normalize", "dim")
    asked = {name: getattr(options, name) for name in names}
    asked = {name: value for name, value in asked.items() if value is not None}
    layers = bundle.config.num_hidden_layers
    base = recipe_spec(options.recipe, layers) if options.recipe else bundle.defaults
    return spec_with(base, **asked)


def _check_contradictions(options: EmbedOptions) -> None:
    for name in ("layers", "layer_combine", "pooling", "pool_special_tokens"):
        if options.recipe and getattr(options, name) is not None:
            raise UsageError(f"--recipe {options.recipe} says what --{name} is, give only one")
    if options.pooling == "pooler" and (options.layers or options.layer_combine):
        raise UsageError(
            "--pooling pooler reads the last layer and cannot go with --layers or --layer_combine"
        )
    if options.pooling in ("cls", "sep", "pooler") and options.pool_special_tokens is False:
        raise UsageError(
            f"--no_pool_special_tokens cannot go with --pooling {options.pooling}, "
            "which is the vector of a special token"
        )


def _block_bytes(total: int, bundle: Bundle) -> int:
    wanted = default_block_bytes(total)
    return min(wanted, _SLOW_MODEL_BLOCK) if bundle.config.hidden_size >= _SLOW_MODEL else wanted


def _columns(options: EmbedOptions, files: list[InputFile]) -> Columns:
    """Where text and id stand, judged by the first JSON record."""
    json_files = [file for file in files if file.format == "jsonl"]
    text = options.text_column or "text"
    if not json_files:
        for flag in ("text_column", "id_column"):
            if getattr(options, flag):
                raise UsageError(f"--{flag} is for JSON lines, but the input is plain text")
        return Columns(text)
    for file in json_files:
        record = first_record(first_lines(file))
        if record is None:
            continue
        found = ", ".join(sorted(map(str, record))) or "no field"
        if text not in record:
            raise UsageError(
                f"--text_column {text} is not in the first record of {file.info.path}, "
                f"which has {found}"
            )
        if options.id_column and options.id_column not in record:
            raise UsageError(
                f"--id_column {options.id_column} is not in the first record of {file.info.path}, "
                f"which has {found}"
            )
        return Columns(text, options.id_column or ("id" if "id" in record else None))
    if any(file.stop for file in json_files):
        raise UsageError(
            f"--input {json_files[0].info.path} does not begin with JSON lines: one object a line "
            "is wanted (an array or an indented object is none)"
        )
    return Columns(text, options.id_column)


def _estimated_documents(files: list[InputFile], limit: int | None) -> int:
    total = sum(file.stop * (_COMPRESSION if file.compression else 1) for file in files)
    first = next((each for each in map(first_lines, files) if each.data), None)
    if first is None:
        return 0
    documents = max(1, round(total / max(1, len(first.data) / first.count)))
    return documents if limit is None else min(documents, limit)


def _row_bytes(output_format: str, width: int) -> int:
    return _ROW_OVERHEAD + width * (_JSON_BYTES_A_NUMBER if output_format == "jsonl" else 4)


def run_fingerprint(run: EmbedRun) -> str:
    """Hash of every option that changes rows or how files are cut, the model and the listing."""
    settings = run.metadata | {
        "output_format": run.options.output_format,
        "columns": [run.columns.text, run.columns.id],
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
