"""Contradictions: flags that cannot go together, said before anything else is looked at."""

from pipeline.options import EXAMPLES, EmbedOptions, UsageError

_OF_SPECIAL_TOKENS = ("cls", "sep", "pooler")


def check_contradictions(options: EmbedOptions) -> None:
    """Refuses flags that cannot go together, whatever the input and the model.

    Raises:
        UsageError: Naming both.
    """
    _check_vectors(options)
    _check_granularity(options)
    _check_table(options)
    _check_files(options)
    if options.long_text != "window":
        for name in ("stride", "merge_windows"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"{_flag(options, name)} is for --long_text window, give that, too"
                )
    if options.pair_separator == "":
        raise UsageError("--pair_separator is empty, give what stands between the two texts")
    if options.pair_separator is not None or options.text_b_column is not None:
        if options.long_text == "window":
            raise UsageError("--long_text window is for single texts and cannot go with pairs")
        if {"word", "span"} & set(options.granularity):
            raise UsageError("--granularity word and span are for single texts, not for pairs")


def _check_files(options: EmbedOptions) -> None:
    others = [kind for kind in options.granularity if kind != "sentence"]
    if options.output_format == "tfrecord" and others:
        raise UsageError(
            f"--output_format tfrecord is for vectors of texts; {others[0]}s need parquet or jsonl"
        )
    writes = options.output_format in ("tfrecord", EXAMPLES) or options.tfrecord_output is not None
    if options.extra_columns is not None and options.output_format in ("tfrecord", EXAMPLES):
        raise UsageError("--extra_columns go to Parquet and JSON lines, not to TFRecord files")
    if options.compression != "none" and not writes:
        raise UsageError("--compression is for TFRecord files, which this run writes none of")


def _check_vectors(options: EmbedOptions) -> None:
    for name in ("layers", "layer_combine", "pooling", "pool_special_tokens"):
        if options.recipe and getattr(options, name) is not None:
            raise UsageError(f"--recipe {options.recipe} says what --{name} is, give only one")
    if options.pooling == "pooler" and (options.layers or options.layer_combine):
        raise UsageError(
            "--pooling pooler reads the last layer and cannot go with --layers or --layer_combine"
        )
    special = options.pooling and set(options.pooling.split(",")) <= set(_OF_SPECIAL_TOKENS)
    if special and options.pool_special_tokens is False:
        raise UsageError(
            f"--no_pool_special_tokens cannot go with --pooling {options.pooling}, "
            "which is the vector of a special token"
        )


def _check_granularity(options: EmbedOptions) -> None:
    if "sentence" not in options.granularity:
        for name in ("pooling", "pool_special_tokens", "dense", "merge_windows"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"{_flag(options, name)} is for vectors of sentences, --granularity asks for "
                    "none"
                )
    if options.word_pooling != "mean" and not {"word", "span"} & set(options.granularity):
        raise UsageError("--word_pooling is for --granularity word or span, give that, too")
    if options.span_columns is not None:
        if "span" not in options.granularity:
            raise UsageError("--span_columns is for --granularity span, give that, too")
        if len(options.span_columns) != 2:
            raise UsageError("--span_columns must be two names with a comma, such as start,stop")
    token_lines = "token" in options.granularity and options.output_format == "jsonl"
    if token_lines and options.output_dtype in ("int8", "ubinary"):
        raise UsageError(
            f"--output_dtype {options.output_dtype} cannot go with JSON lines of tokens, whose "
            "values are decimals; use --output_format parquet"
        )


def _flag(options: EmbedOptions, name: str) -> str:
    """The flag as it was given: `--no_name` for a switch that was turned off."""
    return f"--no_{name}" if getattr(options, name) is False else f"--{name}"


def _check_table(options: EmbedOptions) -> None:
    if options.output_format != "bigquery":
        for name in ("output_table", "write_disposition"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} is for --output_format bigquery, give that, too")
        return
    if options.output_table is None:
        raise UsageError(
            "--output_format bigquery needs --output_table project:dataset.table; the files that "
            "are loaded stay in --output"
        )
    if options.tfrecord_output is not None:
        raise UsageError(
            "--tfrecord_output cannot go with --output_format bigquery: write the examples with "
            "`tokenize`, and embed these"
        )
    if options.output_dtype != "float32":
        raise UsageError(
            f"--output_dtype {options.output_dtype} cannot go with --output_format bigquery, "
            "whose numbers are FLOAT64; leave it out"
        )
