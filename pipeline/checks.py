"""Checks for flags that conflict, whatever the input and the model."""

from collections.abc import Iterator

from bert_embed.formats.output_files import BEAM_RAG
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import DEFAULTS, EXAMPLES, EmbedOptions
from bert_embed.transforms.bigquery.client import SCHEME

_OF_SPECIAL_TOKENS = ("cls", "sep", "pooler")


def check_contradictions(options: EmbedOptions) -> None:
    """Refuses flags that conflict."""
    if not options.is_dataflow:
        for flag in _given(options, "accelerator", "right_fitting"):
            raise UsageError(
                f"{flag} requires --runner DataflowRunner; for other runners give --device"
            )
    _check_vectors(options)
    _check_granularity(options)
    _check_input_table(options)
    _check_output_table(options)
    _check_increments(options)
    _check_files(options)
    if options.long_text != "window":
        for flag in _given(options, "stride", "merge_windows"):
            raise UsageError(f"{flag} requires --long_text window")
    _check_chunks(options)
    if options.document == "file" and options.pair_separator is not None:
        raise UsageError("--document file conflicts with --pair_separator, which is for lines")
    if options.document == "file" and options.reads_table:
        raise UsageError("--document file is for text files, not for tables")
    if options.pair_separator == "":
        raise UsageError("--pair_separator is empty, give the characters between the two texts")
    if options.pair_separator is not None or options.text_b_column is not None:
        if options.long_text == "window":
            raise UsageError("--long_text window is for single texts and conflicts with pairs")
        if {"word", "span"} & set(options.granularity):
            raise UsageError("--granularity word and span are for single texts, not for pairs")


def _check_chunks(options: EmbedOptions) -> None:
    if options.chunk is None:
        for flag in _given(options, "chunk_tokens", "chunk_overlap", "chunk_pooling"):
            raise UsageError(f"{flag} requires --chunk")
        return
    for flag in _given(options, "long_text", "granularity", "tfrecord_output"):
        raise UsageError(f"{flag} conflicts with --chunk, which covers whole texts")
    for flag in _given(options, "text_b_column", "pair_separator"):
        raise UsageError(f"{flag} is for pairs, --chunk for single texts")


def _check_files(options: EmbedOptions) -> None:
    others = [kind for kind in options.granularity if kind != "sentence"]
    if options.output_format == "tfrecord" and others:
        raise UsageError(
            f"--output_format tfrecord is for vectors of texts; {others[0]}s require parquet or "
            "jsonl"
        )
    writes = options.output_format in ("tfrecord", EXAMPLES) or options.tfrecord_output is not None
    if options.extra_columns is not None and options.output_format in ("tfrecord", EXAMPLES):
        raise UsageError("--extra_columns are for Parquet and JSON lines, not for TFRecord files")
    if options.compression != "none" and not writes:
        raise UsageError("--compression is for TFRecord files, and this run writes none")


def _check_vectors(options: EmbedOptions) -> None:
    if options.recipe:
        for flag in _given(options, "layers", "layer_combine", "pooling", "pool_special_tokens"):
            raise UsageError(f"--recipe {options.recipe} sets {flag}, give only one")
    if options.pooling == "pooler" and (options.layers or options.layer_combine):
        raise UsageError(
            "--pooling pooler reads the last layer and conflicts with --layers and --layer_combine"
        )
    special = options.pooling and set(options.pooling.split(",")) <= set(_OF_SPECIAL_TOKENS)
    if special and options.pool_special_tokens is False:
        raise UsageError(
            f"--no_pool_special_tokens conflicts with --pooling {options.pooling}, the vector of a "
            "special token"
        )


def _check_granularity(options: EmbedOptions) -> None:
    if "sentence" not in options.granularity:
        for flag in _given(options, "pooling", "pool_special_tokens", "dense", "merge_windows"):
            raise UsageError(f"{flag} is for vectors of sentences, --granularity requests none")
    if options.word_pooling != "mean" and not {"word", "span"} & set(options.granularity):
        raise UsageError("--word_pooling requires --granularity word or span")
    if options.span_columns is not None:
        if "span" not in options.granularity:
            raise UsageError("--span_columns requires --granularity span")
        if len(options.span_columns) != 2:
            raise UsageError("--span_columns must be two names with a comma, such as start,stop")
    token_lines = "token" in options.granularity and options.output_format == "jsonl"
    if token_lines and options.output_dtype in ("int8", "ubinary"):
        raise UsageError(
            f"--output_dtype {options.output_dtype} conflicts with JSON lines of tokens, whose "
            "values are decimals; use --output_format parquet"
        )


def _given(options: EmbedOptions, *names: str) -> Iterator[str]:
    """Those of the flags that were given: `--no_name` for a switch that was turned off."""
    for name in names:
        if (value := getattr(options, name)) not in (None, DEFAULTS[name]):
            yield f"--no_{name}" if value is False else f"--{name}"


def _check_output_table(options: EmbedOptions) -> None:
    if options.output.startswith(SCHEME):
        raise UsageError(
            f"--output {options.output} is no folder: give --output_format bigquery and the table "
            "with --output_table"
        )
    if not options.loads_table:
        for flag in _given(options, "output_table", "table_schema", "write_disposition"):
            raise UsageError(f"{flag} requires --output_format bigquery")
        return
    if options.table_schema == BEAM_RAG and options.granularity != ("sentence",):
        raise UsageError("--table_schema beam_rag is for vectors of sentences alone")
    if options.output_table is None:
        raise UsageError(
            "--output_format bigquery requires --output_table project:dataset.table; the files "
            "that are loaded stay in --output, if it is given"
        )
    if options.tfrecord_output is not None:
        raise UsageError(
            "--tfrecord_output conflicts with --output_format bigquery: write the examples with "
            "`tokenize`, then embed these"
        )
    if options.output_dtype != "float32":
        raise UsageError(
            f"--output_dtype {options.output_dtype} conflicts with --output_format bigquery, "
            "whose numbers are FLOAT64; leave it out"
        )


def _check_input_table(options: EmbedOptions) -> None:
    if options.query is None and options.limit is None and options.temp_dataset is not None:
        raise UsageError("--temp_dataset is for the rows of a query; it requires --query")
    if not options.reads_table:
        return
    if options.query is not None and options.input:
        raise UsageError("--query conflicts with --input, give only one")
    if options.query is None and len(options.input) > 1:
        raise UsageError(
            "--input takes one BigQuery table and nothing beside it; a --query can join several"
        )
    if options.pair_separator is not None:
        raise UsageError("--pair_separator is for plain text; for tables use --text_b_column")


def _check_increments(options: EmbedOptions) -> None:
    if options.list_removed and not options.skip_existing:
        raise UsageError("--list_removed requires --skip_existing, the outputs to compare with")
    if options.list_removed and options.limit is not None:
        raise UsageError(
            "--list_removed conflicts with --limit, which would list every record after the limit"
        )
