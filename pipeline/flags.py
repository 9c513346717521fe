"""Flags: every flag of `embed`, declared once with its type and its help."""

import argparse
import re
from typing import Any

from bert.engine import DEVICES, PRECISIONS
from bert.output_types import OUTPUT_DTYPES
from bert.recipes import RECIPES
from bert.text_spec import GRANULARITIES, LONG_TEXTS
from bert.units import WORD_POOLINGS
from bert.vector_spec import LAYER_COMBINES, POOLINGS
from pipeline.dataflow_machines import ACCELERATORS

WRITE_DISPOSITIONS = ("append", "truncate", "fail")
COMPRESSIONS = ("none", "gzip")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _layers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"-?\d+(,-?\d+)*", text):
        raise argparse.ArgumentTypeError(
            f"must be numbers with commas, such as -1,-2; got {text!r}"
        )
    return tuple(int(number) for number in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"must be block numbers with commas, got {text!r}")
    return tuple(sorted({int(number) for number in text.split(",")}))


def _at_least_zero(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def _share(text: str) -> str:
    if not re.fullmatch(r"\d+|\d+(\.\d+)?%", text):
        raise argparse.ArgumentTypeError(f"must be a number or a share such as 1%, got {text!r}")
    if text.endswith("%") and float(text[:-1]) > 100:
        raise argparse.ArgumentTypeError(f"must be at most 100%, got {text!r}")
    return text


def add_embed_flags(parser: argparse.ArgumentParser) -> None:
    """Declares every flag of `embed` once; what is not given stays out of the namespace."""
    group = parser.add_argument_group
    _add_input_flags(group("input"))
    output = group("output")
    _add_output_flags(output)
    _add_file_flags(output)
    _add_increment_flags(output)
    _add_vector_flags(group("model and vectors (defaults: the model's own settings)"))
    compute = group("computing")
    compute.add_argument("--precision", choices=PRECISIONS)
    compute.add_argument(
        "--device",
        choices=DEVICES,
        help="auto (default): a GPU if TensorFlow sees one; xla_cpu: programs as for a GPU, on the "
        "processor, to try them",
    )
    compute.add_argument(
        "--batch_tokens",
        type=_positive,
        metavar="N",
        help="of a batch (default: what is fast, 512 on processors, 16384 on GPUs and TPUs)",
    )
    compute.add_argument("--threads", type=_positive, metavar="N", help="default: all processors")
    compute.add_argument(
        "--inference_timeout",
        type=_positive,
        metavar="SECONDS",
        help="the job fails, naming the block, if no batch ended meanwhile (default: 600)",
    )
    _add_dataflow_flags(group("on Dataflow"))
    _add_common_flags(parser)


def add_tokenize_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `tokenize` that it shares with `embed`."""
    group = parser.add_argument_group
    parser.add_argument("--text", metavar="TEXT", help="print this text's tokens instead")
    _add_input_flags(group("input"))
    output = group("output")
    _add_output_flags(output)
    _add_compression(output)
    model = group("model and examples (defaults: the model's own settings)")
    add_model_flag(model)
    _add_granularity(model, "what vectors shall be made of them: word and span need to be told")
    _add_text_flags(model)
    _add_common_flags(parser)


def _add_dataflow_flags(group: Any) -> None:
    group.add_argument(
        "--accelerator",
        choices=ACCELERATORS,
        help="what every worker computes on; chooses --device, --machine_type and the disk, too",
    )
    group.add_argument(
        "--right_fitting",
        action="store_true",
        help="give it only to the workers of the model's steps",
    )


def _add_common_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="YAML file of any of these flags; the command line wins")
    add("--dry_run", action="store_true", help="print what would be done and stop")


def _add_input_flags(what: Any) -> None:
    what.add_argument(
        "--input",
        action="append",
        metavar="GLOB",
        help="file, folder or glob, or project:dataset.table",
    )
    what.add_argument("--query", metavar="SQL", help="read what a query of BigQuery selects")
    what.add_argument(
        "--temp_dataset", metavar="DATASET", help="of the query's rows (default: one of our own)"
    )
    what.add_argument(
        "--input_format",
        choices=("text", "jsonl", "csv", "parquet", "tfrecord", "bigquery"),
        help="default: by suffix, else text",
    )
    what.add_argument(
        "--text_column",
        metavar="NAME",
        help="field or column, a text or a list of words (default: text)",
    )
    what.add_argument("--text_b_column", metavar="NAME", help="field of the second text")
    what.add_argument(
        "--extra_columns",
        type=_names,
        metavar="A,B:TYPE",
        help="fields to pass through to the output; their type if it is not string, nor Parquet's",
    )
    what.add_argument(
        "--pair_separator", metavar="TEXT", help="between the texts of a line, such as ' ||| '"
    )
    what.add_argument(
        "--span_columns", type=_names, metavar="A,B", help="of --granularity span: start,stop"
    )
    what.add_argument(
        "--id_column", metavar="NAME", help="field of the id (default: id if there is one)"
    )
    what.add_argument("--limit", type=_positive, metavar="N", help="only the first N records")


def _add_output_flags(out: Any) -> None:
    out.add_argument("--output", metavar="DIR", help="folder of the run")
    out.add_argument("--overwrite", action="store_true", help="remove another run's files first")
    out.add_argument(
        "--max_rejected", type=_share, metavar="N|P%", help="exit 3 if more records were rejected"
    )
    out.add_argument(
        "--leave_out",
        type=_numbers,
        metavar="N,N",
        help="blocks whose documents are rejected, because they kill or hold up a worker",
    )
    out.add_argument("--block_bytes", type=_positive, metavar="N", help="text of a block")
    out.add_argument("--block_docs", type=_positive, metavar="N", help="most documents of a file")


def _add_file_flags(out: Any) -> None:
    out.add_argument(
        "--output_format",
        choices=("parquet", "jsonl", "tfrecord", "bigquery"),
        help="kind of file (default: parquet)",
    )
    out.add_argument(
        "--output_table", metavar="TABLE", help="project:dataset.table, maybe with $YYYYMMDD"
    )
    out.add_argument(
        "--write_disposition", choices=WRITE_DISPOSITIONS, help="if it has rows (default: append)"
    )
    out.add_argument("--tfrecord_output", metavar="DIR", help="folder to keep the examples in, too")
    _add_compression(out)
    out.add_argument(
        "--output_dtype", choices=OUTPUT_DTYPES, help="stored numbers (default: float32)"
    )


def _add_increment_flags(out: Any) -> None:
    out.add_argument(
        "--skip_existing",
        action="append",
        metavar="DIR_OR_TABLE",
        help="an earlier output, a folder or glob of several, or a BigQuery table: what it has "
        "with the same text is not embedded again",
    )
    out.add_argument(
        "--list_vanished", action="store_true", help="list what only the earlier outputs have"
    )
    out.add_argument("--check_ids", action="store_true", help="count ids that occur twice or more")


def _add_compression(out: Any) -> None:
    out.add_argument(
        "--compression", choices=COMPRESSIONS, help="of TFRecord files (default: none)"
    )


def _add_granularity(model: Any, text: str) -> None:
    model.add_argument(
        "--granularity",
        type=_names,
        metavar="NAME,NAME",
        help=f"some of {', '.join(GRANULARITIES)}, {text} (default: sentence)",
    )


def _add_vector_flags(model: Any) -> None:
    add_model_flag(model)
    _add_granularity(model, "from one pass")
    model.add_argument("--recipe", choices=RECIPES, help="layers and pooling of the literature")
    model.add_argument("--layers", type=_layers, metavar="N,N", help="0 embeddings, -1 last layer")
    model.add_argument("--layer_combine", choices=LAYER_COMBINES)
    model.add_argument(
        "--pooling",
        metavar="NAME",
        help=f"how tokens become one vector: {', '.join(POOLINGS)}, or several joined by commas",
    )
    _add_switch(model, "pool_special_tokens", "whether [CLS] and [SEP] count in the pooling")
    _add_switch(model, "dense", "apply the model's own Dense modules")
    model.add_argument(
        "--word_pooling", choices=WORD_POOLINGS, help="tokens of a word or span (default: mean)"
    )
    _add_text_flags(model)
    _add_switch(model, "merge_windows", "one vector a document, the default")
    model.add_argument("--dim", type=_positive, metavar="N", help="keep the first N numbers")
    _add_switch(model, "normalize", "scale vectors to unit length")


def _add_text_flags(model: Any) -> None:
    model.add_argument("--max_seq_length", type=_positive, metavar="N", help="longer texts are cut")
    model.add_argument(
        "--long_text", choices=LONG_TEXTS, help="what becomes of them (default: truncate)"
    )
    model.add_argument(
        "--stride",
        type=_at_least_zero,
        metavar="N",
        help="tokens windows share (default: 64, or half a window)",
    )
    model.add_argument(
        "--prompt", metavar="TEXT", help="before each text, or name:NAME of the model's prompts"
    )


def _add_switch(group: Any, name: str, text: str) -> None:
    """`--name` and `--no_name`, of which one may be given."""
    either = group.add_mutually_exclusive_group()
    either.add_argument(f"--{name}", action="store_const", const=True, help=text)
    either.add_argument(f"--no_{name}", action="store_const", const=False, dest=name, help="or not")


def add_model_flag(parser: Any) -> None:
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="minilm (default), a bundle, a model's folder or .tar.gz, local or gs://, or a "
        "handle of TF Hub",
    )
    add_trust_flag(parser)


def add_trust_flag(parser: Any) -> None:
    parser.add_argument(
        "--allow_untrusted_model",
        action="store_true",
        help="load a SavedModel whatever its graph does, as if running a program of its maker",
    )
