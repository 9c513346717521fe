"""Checks options against input, model and output, and prepares the run."""

import datetime
import os
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bert_embed.base.errors import SettingError, StorageError, counted
from bert_embed.bundle.bundle import Bundle, document_prompt
from bert_embed.bundle.find import resolve_model
from bert_embed.bundle.fingerprints import run_fingerprint
from bert_embed.pipeline.errors import UsageError, usage_errors
from bert_embed.pipeline.options.embed import Options, check_kinds
from bert_embed.pipeline.run.columns import (
    are_examples,
    check_columns,
    example_settings,
    input_columns,
    named_columns,
    reading_of,
    text_options,
    with_long_text,
)
from bert_embed.pipeline.run.output import OutputState, check_folder
from bert_embed.pipeline.run.plan import (
    EmbedRun,
    Widths,
    block_bytes,
    count_documents,
    estimated_rows,
    estimated_size,
    head_settings,
    part_docs,
)
from bert_embed.pipeline.run.state import disk_note
from bert_embed.pipeline.run.tables import (
    QueryNotRun,
    TableInput,
    earlier_outputs,
    find_input,
    find_load,
)
from bert_embed.pipeline.runners.beam import BeamFlags, configure_storage
from bert_embed.pipeline.runners.dataflow import Places, for_dataflow
from bert_embed.pipeline.runners.launch import check_computing, check_examples, engine_of
from bert_embed.pipeline.runners.local import check_local_runner
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.pipeline.runners.portable import check_job_server
from bert_embed.results.formats import EXAMPLES
from bert_embed.settings import TextSpec, VectorSpec, changed_spec
from bert_embed.storage.files import absolute
from bert_embed.text.layout import fit_texts
from bert_embed.transforms.bigquery.client import looks_like_table, table_name
from bert_embed.transforms.cut import plan_blocks
from bert_embed.transforms.examples.write import ExampleSettings
from bert_embed.transforms.listing import (
    Listing,
    StoredListing,
    files_to_read,
    list_input,
    listing_digest,
)
from bert_embed.transforms.parts import WHOLE_FILES, InputFile
from bert_embed.transforms.plan import PlanRequest, planned_work
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import quoting_of

_PLACES = ("input", "query", "output", "output_table", "skip_existing")
_PATHS = ("input", "output", "skip_existing")
_WORD = re.compile(r"\{([A-Za-z_]+)(?::[^{}]*)?\}[^/]*")
_DAY = re.compile(r"\{(today|yesterday|date)(?::([^{}]*))?\}")


def with_dates(options: Options, now: datetime.datetime | None = None) -> Options:
    """Replaces `{today}`, `{yesterday}` and `{date:FORMAT}` in places by days of UTC at `now`.

    `{today}` becomes `2026-11-22`, `{date:%Y/%m/%d}` is today as `datetime.strftime` writes it,
    `{yesterday:%Y%m%d}` the day before likewise. UsageError for another word in braces, unless a
    local file or folder has that name.
    """
    today = (now or datetime.datetime.now(datetime.UTC)).date()
    changed = {name: _dated(name, getattr(options, name), today) for name in _PLACES}
    return replace(options, **changed)


def _dated(name: str, value: Any, today: datetime.date) -> Any:
    if isinstance(value, tuple):
        return tuple(_dated(name, place, today) for place in value)

    for match in _WORD.finditer(value or "") if name in _PATHS else ():
        if not _DAY.match(match[0]) and not os.path.exists(value[: match.end()]):
            raise UsageError(
                f"--{name} {value}: {{{match[1]}}} is none of {{yesterday}}, {{today}}, "
                "{date:FORMAT}"
            )

    def day(match: re.Match[str]) -> str:
        which, form = match.groups()
        if which == "date" and not form:
            raise UsageError(f"--{name} {value}: give {{date}} a format, such as {{date:%Y/%m/%d}}")
        return (today - datetime.timedelta(days=which == "yesterday")).strftime(form or "%Y-%m-%d")

    return value and _DAY.sub(day, value)


def prepare(options: Options, found: OutputState | None = None) -> EmbedRun:
    """Checks the options against input, model and output.

    InputError names the option or file; StorageError: a store does not answer at this moment.
    `found` is the output, if the command has read it already.
    """
    with usage_errors():
        if found is None:
            found = OutputState(absolute(options.output), f"--output {options.output}")
        target = None
        if options.output_table is not None:  # before the input is looked for
            target = table_name(options.output_table, "output_table")
        job = for_dataflow(options.job, _places(options))
        check_job_server(job, connects=not options.dry_run)
        check_local_runner(job)
        configure_storage(job)
        run = _named(planned_run(options, found, job))
        run = _continued(run) or run
        widths = Widths.of(run.text_spec, run.vector_spec, run.bundle)
        size = estimated_size(
            estimated_rows(run.estimated_documents, run.input_bytes, run.text_spec),
            run.input_bytes,
            options,
            widths,
        )
        engine = engine_of(job, run.bundle) if run.kind != EXAMPLES else None
        load = None if target is None else find_load(run, target)
        run = replace(run, estimated_bytes=size, load=load, engine=engine)
        _check_skip_blocks(run)
        if run.unchecked is None:
            check_folder(found.name, run.output)
            run = replace(run, disk_note=disk_note(run))
            if job.is_dataflow:
                place = BeamFlags.of(options.beam_args)["temp_location"]
                check_folder(f"--temp_location {place}", place)
        return run


def _named(run: EmbedRun) -> EmbedRun:
    """The run with its earlier outputs and its fingerprint."""
    run = replace(run, earlier=earlier_outputs(run.options, run.output, run.metadata))
    return replace(run, fingerprint=_fingerprint(run))


def _continued(run: EmbedRun) -> EmbedRun | None:
    """The unfinished run in the output, if it is this one but for files that arrived since."""
    # With these the listing would be another run's, and what is embedded already would be lost.
    if run.table is not None or run.unchecked is not None:
        return None
    record = run.found.record
    if record is None or record.is_done or record.run == run.fingerprint:
        return None
    if (stored := run.found.listing) is None:
        return None
    options = run.options
    listing = list_input(options.input, options.input_format, run.output, looks=False)
    listed, seen = ({file.info for file in files} for files in (listing.files, stored.files))
    if not seen < listed:
        return None
    again = _named(planned_run(options, run.found, run.job, stored))
    if again.fingerprint != record.run:
        return None
    return replace(again, arrived=len(listed) - len(seen))


def _places(options: Options) -> Places:
    """What the workers of a run read and write, tables apart."""
    read = [("--input", place) for place in (() if options.reads_table else options.input)]
    read += [("--skip_existing", one) for one in options.skip_existing if not looks_like_table(one)]
    return Places(tuple(read), (("--output", options.output),))


@dataclass(frozen=True)
class _Source:
    """The input of a run; a table is one file, and has an empty listing."""

    files: list[InputFile]  # those to read, with `--limit` the first ones
    digest: str  # of the listing of all files
    columns: Columns
    table: TableInput | None = None
    examples: bool = False
    settings: ExampleSettings | None = None  # of examples; None for texts, or where no file says
    listing: Listing = field(default_factory=lambda: Listing([], {}))


def _source(options: Options, found: OutputState, stored: StoredListing | None = None) -> _Source:
    table = find_input(options, found)
    if table is not None:
        digest = listing_digest([table.file])
        return _Source([table.file], digest, table.request.columns, table)
    whole = options.document == "file"
    if stored is None:
        output = found.folder.path
        listing = list_input(options.input, options.input_format, output, whole_files=whole)
    else:
        listing = Listing(stored.files, {})
    formats = {file.format for file in listing.files}
    if whole and WHOLE_FILES not in formats:
        raise UsageError("--document file is for text files, and --input names none")
    files, digest = listing.files, listing_digest(listing.files)
    if stored is None:
        named = named_columns(options)
        files = files_to_read(files, named.text, options.limit, quoting_of(named))
    else:
        digest = stored.digest
    examples = are_examples(files)
    settings = example_settings(options, files) if examples else None
    columns = input_columns(options, files)
    return _Source(files, digest, columns, None, examples, settings, listing)


def planned_run(
    options: Options, found: OutputState, job: RunnerOptions, stored: StoredListing | None = None
) -> EmbedRun:
    """The run as far as input, model and options decide it; nothing is asked of its output."""
    unchecked = None
    try:
        source = _source(options, found, stored)
    except (StorageError, PermissionError, QueryNotRun) as error:
        if not options.dry_run:
            raise
        source = _Source([], listing_digest([]), named_columns(options))
        unchecked = str(error)
    texts = with_long_text(options, source.settings) if source.examples else options
    bundle = resolve_model(options.model)
    check_computing(job)
    if source.examples:
        check_examples(job)
    vector_spec = _vector_spec(options, bundle)
    if source.examples:
        texts = text_options(texts, source.settings, bundle)
    text_spec = _text_spec(texts, bundle, vector_spec)
    if source.examples and "multi" in text_spec.vectors:
        raise UsageError(
            "--vectors multi is for texts, which get the model's markers; examples have none"
        )
    heads = head_settings(bundle, text_spec)
    check_columns(heads, source.columns.extra, options)
    widths = Widths.of(text_spec, vector_spec, bundle)
    total = sum(file.text_bytes for file in source.files)
    accelerated = job.device in ("gpu", "tpu")
    named = source.table and source.table.request.table
    places = options.input if options.reads_table else tuple(map(absolute, options.input))
    request = PlanRequest(
        block_bytes=options.block_bytes or block_bytes(total, bundle, widths, accelerated),
        digest=source.digest,
        output=found.folder.path,
    )
    table = source.table.request.divided(request.block_bytes) if source.table else None
    return EmbedRun(
        options=options,
        job=job,
        found=found,
        bundle=bundle,
        vector_spec=vector_spec,
        text_spec=text_spec,
        request=request,
        listing=StoredListing(source.digest, [] if table else source.files),
        arrived=0,
        patterns=(str(named),) if named else places,
        planned=table.planned
        if table
        else planned_work(source.files, plan_blocks(source.files, request.block_bytes)),
        columns=source.columns,
        part_docs=part_docs(widths),
        input_bytes=total,
        estimated_documents=table.rows
        if table
        else count_documents(source.files, options.limit, quoting_of(source.columns)),
        table=table,
        query_rows=source.table.query_rows if source.table else None,
        suffixes=source.listing.suffixes,
        text_files=sum(file.format in ("text", WHOLE_FILES) for file in source.files),
        skipped_files=source.listing.skipped,
        settings=source.settings,
        unchecked=unchecked,
        reading=reading_of(bundle, text_spec, source.settings) if source.examples else None,
    )


def _vector_spec(options: Options, bundle: Bundle) -> VectorSpec:
    """The recipe's or the model's own settings, changed by the options."""
    changes = options.vector_changes
    if "sentence" not in options.granularity or options.pooling == "pooler":
        changes["dense"] = 0  # the model's Dense modules take pooled vectors of texts
    spec = changed_spec(bundle.defaults, bundle.config, options.recipe, **changes)
    if "sentence" not in options.granularity and options.dim is None:
        spec = replace(spec, dim=None)  # the model's own is of pooled vectors
    bundle.check(spec)
    return spec


def _text_spec(options: Options, bundle: Bundle, vector_spec: VectorSpec) -> TextSpec:
    """How texts become rows, and which kinds of vectors they get."""
    length = options.max_seq_length or bundle.max_seq_length
    vectors = _vectors(options, bundle)
    text_spec = options.text_spec(length, document_prompt(bundle, options.prompt), vectors)
    if text_spec.pools_late and vector_spec.pooling != "mean":
        raise SettingError(
            "chunk_pooling",
            f"late takes the mean of tokens and conflicts with pooling {vector_spec.pooling}",
            "pooling",
        )
    if text_spec.pools_late and vector_spec.token_dense:
        raise SettingError(
            "chunk_pooling",
            "late takes the mean of hidden states, but this model has modules on tokens before its "
            "pooling: take own",
        )
    bundle.check_vectors(text_spec.vectors)
    if text_spec.needs_tokens:
        vector_spec.token_shape(bundle.config)
    return fit_texts(bundle, text_spec)


def _vectors(options: Options, bundle: Bundle) -> tuple[str, ...]:
    """The kinds of vectors of a run: those of the options, else what the model is for."""
    if options.command == "tokenize":
        return ("dense",)
    vectors = bundle.default_vectors if options.vectors is None else options.vectors
    check_kinds(options, vectors)
    return vectors


def _check_skip_blocks(run: EmbedRun) -> None:
    for block in run.options.skip_blocks:
        if block >= run.planned.blocks:
            raise UsageError(
                f"--skip_blocks {block}: the run has {counted(run.planned.blocks, 'block')}, "
                f"number 0 to {run.planned.blocks - 1}"
            )


def _fingerprint(run: EmbedRun) -> str:
    work: dict[str, Any] = {
        "output_format": run.options.output_format,
        "input_format": run.options.input_format,
        "block_bytes": run.request.block_bytes,
        "part_docs": run.part_docs,
        "limit": run.options.limit,
        "listing": run.request.digest,
    }
    if run.earlier:
        work["skip_existing"] = [(output.run, output.digest) for output in run.earlier]
    # Not `vars`, which has what a column set has computed of itself, too.
    columns = {column.name: getattr(run.columns, column.name) for column in fields(run.columns)}
    return run_fingerprint(run.metadata, columns, work)
