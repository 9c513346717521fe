"""EmbedRun: EmbedOptions in, everything the job needs out, checked before any work starts."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert.bundle import Bundle
from bert.resolve import resolve_model
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from pipeline.columns import input_columns
from pipeline.earlier import check_formats, check_increments, earlier_outputs, key_buckets
from pipeline.example_input import (
    are_examples,
    example_settings,
    reading_of,
    text_options,
    with_long_text,
)
from pipeline.job_server import check_job_server
from pipeline.load import find_load
from pipeline.local_runners import check_local_runner
from pipeline.options import EXAMPLES, EmbedOptions, UsageError
from pipeline.sizes import Widths, block_bytes, estimated_bytes, estimated_documents, part_docs
from pipeline.specs import text_spec, vector_spec
from pipeline.tables import find_input
from pipeline.worker_model import check_precision
from transforms.block_spec import InputFile, PlannedWork
from transforms.blocks import (
    PlanRequest,
    files_to_read,
    input_files,
    listing_digest,
    plan_blocks,
    planned_work,
)
from transforms.earlier import EarlierOutput
from transforms.example_rows import ExampleReading
from transforms.examples import ExampleSettings
from transforms.file_info import StorageError
from transforms.files import (
    absolute,
    check_writable,
    create_exclusive,
    is_remote,
    remove,
    temporary_name,
)
from transforms.increments import KeySettings
from transforms.sinks.bigquery import TableLoad
from transforms.sinks.examples import ExampleFiles
from transforms.sources.bigquery import TableRequest
from transforms.sources.columns import Columns

OUTPUT_FORMAT = 1  # rises when equal input would give other files


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
        columns: Where the fields of records stand.
        part_docs: Most documents of a part.
        fingerprint: Of everything that changes rows or how files are cut.
        input_bytes: Size of the input as stored, of Parquet that of its texts.
        estimated_documents: Guessed from the first lines.
        estimated_bytes: Guessed size of the output.
        earlier: Outputs whose documents are skipped.
        settings: What the folder of examples that is embedded says of them; None where it says
            nothing, and for texts.
        reading: How examples are read; None for texts.
        table: What to read of a table of BigQuery, None if the input is files.
        load: Which table of BigQuery the vectors go to, None if they stay in files.
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
    settings: ExampleSettings | None = None
    reading: ExampleReading | None = None
    earlier: tuple[EarlierOutput, ...] = ()
    table: TableRequest | None = None
    load: TableLoad | None = None

    @property
    def kind(self) -> str:
        """What the run writes: `vectors`, or `examples` alone."""
        return EXAMPLES if self.options.output_format == EXAMPLES else "vectors"

    @property
    def example_folder(self) -> str | None:
        """Where examples go, None if none are written."""
        if self.kind == EXAMPLES:
            return self.output
        asked = self.options.tfrecord_output
        return None if asked is None else absolute(asked)

    @property
    def example_files(self) -> ExampleFiles:
        """How examples are written."""
        folder = self.example_folder or self.output
        return ExampleFiles(folder, self.bundle.tokenizer_fingerprint, self.options.compression)

    @property
    def token_spec(self) -> TextSpec:
        """How texts are tokenized: examples tell of each token's place, whatever is embedded."""
        kinds = self.text_spec.granularity
        if self.example_folder is None or "token" in kinds:
            return self.text_spec
        return replace(self.text_spec, granularity=(*kinds, "token"))

    @property
    def written_examples(self) -> ExampleSettings:
        """What the examples are that the run writes."""
        made = self.token_spec
        prompt = self.bundle.load_tokenizer().encode_flat([made.prompt])[0] if made.prompt else ()
        return ExampleSettings(
            tokenizer=self.bundle.tokenizer_fingerprint,
            max_seq_length=made.max_seq_length,
            long_text=made.long_text,
            stride=made.stride,
            prompt=made.prompt,
            prompt_tokens=len(prompt),
            granularity=made.granularity,
            tokens_with_ids=self._tokens_with_ids,
            run=self.fingerprint,
        )

    @property
    def _tokens_with_ids(self) -> bool:
        if self.reading is not None:
            return self.settings is None or self.settings.tokens_with_ids
        return len(self.planned.paths) > 1 or self.columns.id is not None

    @property
    def keys(self) -> KeySettings | None:
        """What is asked of the keys of the documents; None if nothing is."""
        if not self.earlier and not self.options.check_ids:
            return None
        return KeySettings(
            self.earlier,
            self.options.check_ids,
            self.options.list_vanished,
            key_buckets(self.estimated_documents, self.earlier),
            self.output,
            self.fingerprint,
            self.columns,
            self.part_docs,
            self.request.block_bytes,
        )

    @property
    def to_cover(self) -> int:
        """What the reports of a complete run cover: bytes, and rows of Parquet.

        The input's size where files are read through, of which reports cover nothing.
        """
        stops = [stop for stop in self.planned.stops if stop is not None]
        return sum(stops) if len(stops) == len(self.planned.stops) else self.input_bytes

    @property
    def metadata(self) -> dict[str, Any]:
        """What the vectors are, or the examples, as it stands in the output's files."""
        if self.kind == EXAMPLES:
            described = asdict(self.written_examples)
            del described["run"]  # which follows from these
            described["granularity"] = list(described["granularity"])  # as JSON gives it back
            return described | {"compression": self.options.compression}
        compression = {"compression": self.options.compression}
        return (compression if self.options.output_format == "tfrecord" else {}) | {
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
            "tokens_with_ids": self._tokens_with_ids,
            **self.spec.to_dict(),
            **self.text_spec.to_dict(),
        }


def prepare(options: EmbedOptions) -> EmbedRun:
    """Checks the options against input, model and output.

    Raises:
        UsageError: One clear sentence that names the flag or file.
        StorageError: A store does not answer at this moment.
    """
    try:
        return _prepare(options)
    except (UsageError, StorageError):
        raise
    except (ValueError, OSError, RuntimeError) as error:
        raise UsageError(str(error)) from error


def _prepare(options: EmbedOptions) -> EmbedRun:
    output = absolute(options.output)
    check_job_server(options)
    check_local_runner(options)
    if options.beam_args:  # such as whom to act for, in Cloud Storage, too
        FileSystems.set_options(PipelineOptions(list(options.beam_args)))
    check_increments(options)
    table = find_input(options, output)
    listed = [table.file] if table else input_files(options.input, options.input_format, output)
    check_formats(options, {file.format for file in listed})
    text_column = options.text_column or "text"
    files = listed if table else files_to_read(listed, text_column, options.limit)
    examples = are_examples(files)
    settings = example_settings(options, files) if examples else None
    asked = with_long_text(options, settings) if examples else options
    columns = table.request.columns if table else input_columns(options, files)
    bundle = resolve_model(options.model, options.allow_untrusted_model)
    check_precision(options, bundle)
    spec = vector_spec(options, bundle)
    asked = text_options(asked, settings, bundle) if examples else asked
    made = text_spec(asked, bundle, spec)
    widths = Widths.of(made, spec, bundle)
    total = sum(file.text_bytes for file in files)
    request = PlanRequest(
        patterns=(str(table.request.table),) if table else tuple(map(absolute, options.input)),
        input_format=options.input_format,
        block_bytes=options.block_bytes
        or block_bytes(total, bundle, widths, options.device in ("gpu", "tpu")),
        limit=options.limit,
        digest=listing_digest(listed),
        output=output,
        read_through="token" in made.granularity and options.output_format == "jsonl",
        text_column=text_column,
    )
    rows = table.dealt(request.block_bytes) if table else None
    run = EmbedRun(
        options=options,
        output=output,
        bundle=bundle,
        spec=spec,
        text_spec=made,
        request=request,
        planned=rows.planned if rows else _planned(files, request),
        columns=columns,
        part_docs=options.block_docs or part_docs(widths),
        fingerprint="",
        input_bytes=total,
        estimated_documents=rows.rows if rows else estimated_documents(files, options.limit),
        estimated_bytes=0,
        table=rows,
        settings=settings,
        reading=reading_of(bundle, made, settings) if examples else None,
    )
    size = estimated_bytes(run.estimated_documents, total, options.output_format, widths)
    _check_left_out(run)
    run = replace(run, earlier=earlier_outputs(options, output, run.metadata))
    run = replace(run, fingerprint=run_fingerprint(run), estimated_bytes=size)
    check_output(run)
    load = find_load(options, output, run.fingerprint, run.metadata, made.keeps_windows)
    return replace(run, load=load)


def _check_left_out(run: EmbedRun) -> None:
    for block in run.options.leave_out:
        if block >= run.planned.blocks:
            raise UsageError(
                f"--leave_out {block}: the run has {run.planned.blocks} blocks, number 0 to "
                f"{run.planned.blocks - 1}"
            )


def _planned(files: list[InputFile], request: PlanRequest) -> PlannedWork:
    return planned_work(files, plan_blocks(files, request.block_bytes, request.read_through))


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
    if run.example_folder is not None:
        settings |= {"tfrecord_output": run.example_folder, "compression": run.options.compression}
    if run.earlier:
        settings["skip_existing"] = [(each.run, each.digest) for each in run.earlier]
    settings.pop("model_source", None)  # a path, which may change while the model stays
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_output(run: EmbedRun) -> None:
    """Sees that the output folder can be written and has room; makes nothing yet.

    Raises:
        UsageError: It cannot, or the vectors will not fit the disk.
    """
    _check_writable("output", run.options.output, run.output, run)
    if run.options.tfrecord_output is not None:
        folder = absolute(run.options.tfrecord_output)
        _check_writable("tfrecord_output", run.options.tfrecord_output, folder, run)


def _check_writable(flag: str, asked: str, folder: str, run: EmbedRun) -> None:
    if is_remote(folder):
        try:
            check_writable(folder)
        except StorageError:
            raise
        except OSError as error:
            raise UsageError(f"--{flag} {asked} cannot be written: {error}") from error
        return
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    probe = os.path.join(folder, temporary_name("probe"))
    try:
        create_exclusive(probe, b"")
        remove([probe])
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"--{flag} {asked} cannot be written: {why}") from error
    free = shutil.disk_usage(folder).free
    if run.estimated_bytes > free and not run.earlier:  # else it may be a small part of them
        raise UsageError(
            f"--{flag} {asked} has {free / 1e9:.1f} GB free, but about "
            f"{run.estimated_documents:,} vectors will take {run.estimated_bytes / 1e9:.1f} GB; "
            "choose another disk, a smaller --dim or a --limit"
        )
