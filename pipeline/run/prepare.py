"""Checks options against input, model and output, and prepares the run."""

import datetime
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from bert_embed.base.errors import SettingError, StorageError, counted
from bert_embed.bundle.bundle import Bundle, document_prompt
from bert_embed.bundle.find import resolve_model
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import Options, check_kinds
from bert_embed.pipeline.options.flags import looks_like_table
from bert_embed.pipeline.run.columns import check_columns, input_columns, named_columns
from bert_embed.pipeline.run.earlier import earlier_outputs
from bert_embed.pipeline.run.output import OutputState, check_folder
from bert_embed.pipeline.run.plan import (
    EmbedRun,
    Source,
    Widths,
    Work,
    block_bytes,
    count_documents,
    described,
    estimated_rows,
    estimated_size,
    head_settings,
)
from bert_embed.pipeline.run.tables import QueryNotRun, find_input, find_load, since_compared
from bert_embed.pipeline.runners.beam import BeamFlags
from bert_embed.pipeline.runners.dataflow import check_permissions
from bert_embed.pipeline.runners.launch import (
    check_computing,
    check_memory,
    checked_runner,
    engine_of,
)
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.results.files import EXAMPLES, check_package
from bert_embed.settings import TextSpec, VectorSpec, changed_spec
from bert_embed.storage.files import absolute, is_remote, read_bytes
from bert_embed.text.layout import fit_texts
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.client import NoCredentials, table_name
from bert_embed.transforms.examples import ExampleSettings, settings_from_json
from bert_embed.transforms.listing import Listing, StoredListing, as_now, list_input, listing_digest
from bert_embed.transforms.output_folder import SETTINGS_FILE, settings_places
from bert_embed.transforms.parts import EACH_FILE, WHOLE_FILES, InputFile, plan_blocks
from bert_embed.transforms.plan import planned_work
from bert_embed.transforms.read.examples import ExampleReading, first_examples

_PLACES = ("input", "query", "output", "output_table", "skip_existing")
_PATHS = ("input", "output", "skip_existing")
_WORD = re.compile(r"\{([A-Za-z_]+)(?::[^{}]*)?\}[^/]*")
_DAY = re.compile(r"\{(today|yesterday|date)(?::([^{}]*))?\}")


def with_dates(options: Options, now: datetime.datetime | None = None) -> Options:
    """Replaces `{today}`, `{yesterday}` and `{date:FORMAT}` in places by days, of UTC at `now`.

    `{today}` becomes `2026-11-22`, `{date:%Y/%m/%d}` is today as `datetime.strftime` writes it,
    `{yesterday:%Y%m%d}` the day before likewise; `today` says which day that is. UsageError for
    another word in braces, unless a local file or folder has that name.
    """
    today = day_of(options.today, now or datetime.datetime.now(datetime.UTC))
    changed = {name: _dated(name, getattr(options, name), today) for name in _PLACES}
    return replace(options, today=None, **changed)


def day_of(given: str | None, now: datetime.datetime) -> datetime.date:
    """The day that `--today` says, in UTC at `now`."""
    if given is None:
        return now.date()
    if ":" not in given:
        return datetime.date.fromisoformat(given)
    begins = datetime.time.fromisoformat(given)
    return (now - datetime.timedelta(hours=begins.hour, minutes=begins.minute)).date()


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


def prepare(options: Options) -> EmbedRun:
    """Checks the options against input, model and output.

    InputError names the option or file; StorageError: a store does not answer at this moment.
    """
    output, named = absolute(options.output), f"--output {options.output}"
    state = OutputState(output, named, options.overwrite)
    target = None
    if options.output_table is not None:  # before the input is looked for
        target = table_name(options.output_table, "output_table")
    read = [("--input", place) for place in (() if options.reads_table else options.input)]
    read += [("--skip_existing", one) for one in options.skip_existing if not looks_like_table(one)]
    job = checked_runner(options.job, read, options.output, connects=not options.dry_run)
    source = find_source(options, state)
    work = plan_work(options, job, source, state)
    source, work = _continued(job, source, work, state) or (source, work)
    blocks = work.planned.blocks
    if (wrong := next((one for one in options.skip_blocks if one >= blocks), None)) is not None:
        has = f"the run has {counted(blocks, 'block')}, number 0 to {blocks - 1}"
        raise UsageError(f"--skip_blocks {wrong}: {has}")
    engine = None if options.output_format == EXAMPLES else engine_of(job, work.bundle)
    is_looked_at = source.unchecked is None
    load = None
    if target is not None:
        load = find_load(work, target, state, loaded=is_looked_at)
    widths = Widths.of(work.text_spec, work.vector_spec, work.bundle)
    rows = estimated_rows(source.documents, source.bytes, work.text_spec)
    size = estimated_size(rows, source.bytes, options, widths)
    run = EmbedRun(options, job, source, work, state, load, engine, size)
    if is_looked_at:
        if options.dry_run or not is_remote(output):  # else the first record says it, at no cost
            check_folder(state.name, output)
        if job.is_dataflow:
            flags = BeamFlags.of(options.beam_args)
            place = flags["temp_location"]
            check_folder(f"--temp_location {place}", place)
            check_permissions(flags, output)
    return run


def _continued(
    job: RunnerOptions, source: Source, work: Work, state: OutputState
) -> tuple[Source, Work] | None:
    """What the run in the output is, if it is this one but for times of its files.

    If it is unfinished, files may also have arrived.
    """
    # With these the listing would be another run's, and what is embedded already would be lost.
    if source.table is not None or source.unchecked is not None:
        return None
    if state.run in (None, work.fingerprint) or (stored := state.listing) is None:
        return None
    files = source.listing.files
    arrived = len(files) - len(stored.files)
    is_done = state.record is not None and state.record.is_done
    if (arrived and is_done) or (stored := as_now(stored, files)) is None:
        return None
    source = find_source(work.options, state, stored, arrived)
    again = plan_work(work.options, job, source, state)
    return (source, again) if again.fingerprint == state.run else None


def find_source(
    options: Options, state: OutputState, stored: StoredListing | None = None, arrived: int = 0
) -> Source:
    """The input that options name, or `stored` files of it, from which others `arrived` since."""
    try:
        if options.reads_table:
            return find_input(options, state)
        listing = Listing([] if stored is None else stored.files, {})
        if stored is None:
            listing = list_input(options.input, options.input_format, state.folder.path)
        files = listing.files
        if options.input_format == EACH_FILE and WHOLE_FILES not in {one.format for one in files}:
            raise UsageError("--input_format files is for text files, and --input names none")
        if stored is None:
            files = listing.first(options.limit, named_columns(options))
        examples = _are_examples(files)
        settings = example_settings(options, files) if examples else None
        columns, like_id = input_columns(options, files)
    except (StorageError, PermissionError, QueryNotRun, NoCredentials) as error:
        if not options.dry_run:
            raise
        return Source(
            patterns=options.input if options.reads_table else tuple(map(absolute, options.input)),
            columns=named_columns(options),
            digest=listing_digest([]),
            unchecked=str(error),
        )
    return Source(
        patterns=tuple(map(absolute, options.input)),
        listing=listing,
        files=files,
        digest=listing_digest(listing.files) if stored is None else stored.digest,
        columns=columns,
        documents=count_documents(files, options.limit, columns),
        examples=examples,
        settings=settings,
        arrived=arrived,
        like_id=like_id,
    )


def _are_examples(files: Sequence[InputFile]) -> bool:
    """Whether the input is TFRecord files."""
    first = {file.format == "tfrecord": file.info.path for file in files}
    if len(first) > 1:
        raise UsageError(
            f"--input names TFRecord files of examples, as {first[True]}, and files of texts, as "
            f"{first[False]}; embed them in two runs"
        )
    return True in first


def plan_work(options: Options, job: RunnerOptions, source: Source, state: OutputState) -> Work:
    """What is computed, and cut into which blocks, by input, model and options."""
    bundle, columns = resolve_model(options.model), source.columns
    check_computing(job, source.examples)
    vector_spec = _vector_spec(options, bundle)
    texts = text_options(options, source.settings, bundle) if source.examples else options
    text_spec = _text_spec(texts, bundle, vector_spec)
    if source.examples and "multi" in text_spec.vectors:
        raise UsageError(
            "--vectors multi is for texts, which get the model's markers; examples have none"
        )
    if columns.text_b is not None:
        load_tokenizer(bundle).check_pairs("text_b_column")
    check_columns(head_settings(bundle, text_spec), columns.extra, options)
    check_memory(job, bundle, options.batch_tokens, text_spec.max_seq_length)
    widths = Widths.of(text_spec, vector_spec, bundle)
    accelerated = job.device in ("gpu", "tpu")
    size = options.block_bytes or block_bytes(source.bytes, bundle, widths, accelerated)
    table = source.table.divided(size) if source.table else None
    planned = table.planned if table else None
    metadata = described(options, bundle, vector_spec, text_spec, columns.id_type)
    skipped = None
    if options.skip_existing:
        skipped = earlier_outputs(options, state.folder.path, metadata)
        for one in skipped.outputs if job.runs_here else ():
            check_package(one.files[1] if one.files else "")
    work = Work(
        options=options,
        bundle=bundle,
        vector_spec=vector_spec,
        text_spec=text_spec,
        columns=columns,
        metadata=metadata,
        digest=source.digest,
        block_bytes=size,
        part_docs=widths.part_docs,
        planned=planned or planned_work(source.files, plan_blocks(source.files, size)),
        skipped=skipped,
        reading=reading_of(bundle, text_spec, source.settings) if source.examples else None,
        table=table,
    )
    return work if options.output_table is None else since_compared(work, state)


def _vector_spec(options: Options, bundle: Bundle) -> VectorSpec:
    changes = options.vector_changes
    if "sentence" not in options.granularity or options.pooling == "pooler":
        changes["dense"] = 0  # the model's Dense modules take pooled vectors of texts
    spec = changed_spec(bundle.defaults, bundle.config, **changes)
    if "sentence" not in options.granularity and options.dim is None:
        spec = replace(spec, dim=None)  # the model's own is of pooled vectors
    bundle.check(spec)
    return spec


def _text_spec(options: Options, bundle: Bundle, vector_spec: VectorSpec) -> TextSpec:
    """How texts become rows, and which kinds of vectors they get."""
    length = options.max_seq_length or bundle.max_seq_length
    vectors: tuple[str, ...] = ("dense",)
    if options.command != "tokenize":
        vectors = bundle.default_vectors if options.vectors is None else options.vectors
        check_kinds(options, vectors)
    text_spec = options.text_spec(length, document_prompt(bundle, options.prompt), vectors)
    if text_spec.pools_late and vector_spec.pooling != "mean":
        said = f"takes the mean of tokens and conflicts with pooling {vector_spec.pooling}"
        raise SettingError("chunk_context", f"document {said}", "pooling")
    if text_spec.pools_late and vector_spec.token_dense:
        raise SettingError(
            "chunk_context",
            "document takes the mean of hidden states, but this model has modules on tokens before "
            "its pooling: leave it out",
        )
    bundle.check_vectors(text_spec.vectors)
    if text_spec.needs_tokens:
        vector_spec.token_shape(bundle.config)
    return fit_texts(bundle, text_spec)


_OF_TEXTS = "text_column", "text_b_column", "id_column", "extra_columns", "chunk"


def example_settings(options: Options, files: Sequence[InputFile]) -> ExampleSettings | None:
    """How the examples were tokenized, by their `examples.json`; None without such a file."""
    for name in _OF_TEXTS:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for texts, but --input names TFRecord files of examples")
    if options.command == "tokenize":
        raise UsageError("--input names TFRecord files of examples, already tokenized")
    by_folder: dict[str, ExampleSettings | None] = {}
    for file in files:
        folder = file.info.path.rpartition("/")[0]
        if folder not in by_folder:
            by_folder[folder] = _settings(settings_places(file.info.path))
    (first, settings), *others = by_folder.items()
    for folder, theirs in others:
        differ = [f"whether there is {SETTINGS_FILE}"] * (settings is not theirs)
        if settings is not None and theirs is not None:
            ours, values = asdict(settings), asdict(theirs)
            differ = [name for name in ours if name != "run" and ours[name] != values[name]]
        if differ:
            raise UsageError(
                f"--input names examples of {first} and {folder}, which differ in "
                f"{', '.join(differ)}; embed them in two runs"
            )
    first_examples(files[0])
    return settings


def _settings(places: Sequence[str]) -> ExampleSettings | None:
    """The settings from the first of these files that exists."""
    for path in places:
        if (data := read_bytes(path)) is not None:
            return settings_from_json(data, path)
    return None


def text_options(options: Options, settings: ExampleSettings | None, bundle: Bundle) -> Options:
    """The options with all settings that the examples were tokenized with."""
    long_text = "truncate" if settings is None else settings.long_text
    if (options.long_text, long_text) == ("windows", "window"):
        long_text = "windows"
    if options.long_text not in ("truncate", long_text):
        raise _contradiction("long_text", options.long_text, long_text)
    missing = "is not available for these examples, which do not hold"
    has_words = settings is not None and "word" in settings.granularity
    if "word" in options.granularity and not has_words:
        flag = "--granularity word"
        raise UsageError(f"{flag} {missing} words; tokenize the texts with {flag}")
    if options.keep_text and settings is not None and not settings.keep_text:
        flag = "--keep_text"
        raise UsageError(f"{flag} {missing} their texts; tokenize the texts with {flag}")
    if settings is None:
        if options.prompt:
            raise UsageError("--prompt is for texts, not for tokens; tokenize the texts with it")
        length = options.max_seq_length or bundle.config.max_position_embeddings
        return replace(options, long_text=long_text, prompt="", max_seq_length=length)
    if settings.tokenizer != bundle.tokenizer_fingerprint:
        raise UsageError(
            f"--model {options.model} has another tokenizer ({bundle.tokenizer_fingerprint}) than "
            f"the model of the examples ({settings.tokenizer}); tokenize the texts with it"
        )
    requested: dict[str, object] = {
        "max_seq_length": options.max_seq_length,
        "overlap": options.overlap,
        "prompt": None if options.prompt is None else bundle.prompt_text(options.prompt),
    }
    recorded = {name: getattr(settings, name) for name in requested}
    for name, value in requested.items():
        if value is not None and value != recorded[name]:
            raise _contradiction(name, value, recorded[name])
    return replace(options, long_text=long_text, **recorded)


def _contradiction(name: str, requested: object, actual: object) -> UsageError:
    return UsageError(
        f"--{name} {requested} conflicts with these examples, tokenized with {actual!r}; "
        "tokenize the texts again"
    )


def reading_of(
    bundle: Bundle, text_spec: TextSpec, settings: ExampleSettings | None
) -> ExampleReading:
    """How the examples are read and checked."""
    tokenizer = load_tokenizer(bundle)
    return ExampleReading(
        bundle.tokenizer_fingerprint,
        bundle.config.vocab_size,
        max(bundle.config.segments, 2),  # those of pairs, of models that know one, too
        text_spec,
        0 if settings is None else settings.prompt_tokens,
        tokenizer.pad_id,
        tokenizer.unk_id,
        special=tokenizer.special_tokens,
    )
