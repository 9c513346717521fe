"""Options: the command line and a YAML file in, checked EmbedOptions and Beam's own flags out."""

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from pipeline.flags import add_embed_flags, add_tokenize_flags

_NEGATIVE_LIST = re.compile(r"^-\d+(,-?\d+)*$")
# Runners whose own flags Beam's Python side does not know: unknown flags are passed on to them.
FOREIGN_RUNNERS = ("flinkrunner", "portablerunner", "sparkrunner")
MOST_CONFIG = 1 << 20  # characters of a --config file
DEFAULT_RUNNER = "FnApiRunner"  # DirectRunner picks another runner by what the network allows


EXAMPLES = "examples"  # the output format of `tokenize`
REPEATED = ("input", "skip_existing")  # flags that may be given several times
# Switches that have no --no_ form.
_ONLY_ON = (
    "overwrite",
    "dry_run",
    "check_ids",
    "list_vanished",
    "allow_untrusted_model",
    "right_fitting",
)


class UsageError(ValueError):
    """The command line or configuration is wrong; the message says what to do."""


@dataclass(frozen=True)
class EmbedOptions:
    """What `embed` was asked for; None where the model or the input decides.

    `tokenize` is asked for a part of it; its `output_format` is `examples`.
    """

    input: tuple[str, ...] = ()
    output: str = ""
    input_format: str | None = None
    text_column: str | None = None
    text_b_column: str | None = None
    pair_separator: str | None = None
    span_columns: tuple[str, ...] | None = None
    id_column: str | None = None
    extra_columns: tuple[str, ...] | None = None
    query: str | None = None
    temp_dataset: str | None = None
    output_format: str = "parquet"
    output_table: str | None = None
    write_disposition: str | None = None
    tfrecord_output: str | None = None
    compression: str = "none"
    block_bytes: int | None = None
    block_docs: int | None = None
    limit: int | None = None
    model: str = "minilm"
    allow_untrusted_model: bool = False
    granularity: tuple[str, ...] = ("sentence",)
    recipe: str | None = None
    layers: tuple[int, ...] | None = None
    layer_combine: str | None = None
    pooling: str | None = None
    pool_special_tokens: bool | None = None
    dense: bool | None = None
    word_pooling: str = "mean"
    max_seq_length: int | None = None
    long_text: str = "truncate"
    stride: int | None = None
    merge_windows: bool | None = None
    prompt: str | None = None
    dim: int | None = None
    normalize: bool | None = None
    output_dtype: str = "float32"
    precision: str = "float32"
    device: str = "auto"
    batch_tokens: int | None = None
    threads: int | None = None
    inference_timeout: int = 600
    leave_out: tuple[int, ...] = ()
    accelerator: str | None = None
    right_fitting: bool = False
    overwrite: bool = False
    skip_existing: tuple[str, ...] = ()
    list_vanished: bool = False
    check_ids: bool = False
    max_rejected: str | None = None
    dry_run: bool = False
    beam_args: tuple[str, ...] = field(default=())

    @property
    def command(self) -> str:
        """The command that takes these options."""
        return "tokenize" if self.output_format == EXAMPLES else "embed"

    @property
    def runner(self) -> str:
        """Name of Beam's runner; the last one that is given counts, as for Beam itself."""
        name = DEFAULT_RUNNER
        for flag, following in itertools.pairwise((*self.beam_args, "")):
            if flag.startswith("--runner="):
                name = flag.partition("=")[2]
            elif flag == "--runner":
                name = following
        return name

    @property
    def runner_name(self) -> str:
        """The runner as one word, however it was spelt: Beam takes `flink` and a path, too."""
        name = self.runner.rpartition(".")[2].lower()
        return name if name.endswith("runner") else f"{name}runner"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def embed_parser() -> argparse.ArgumentParser:
    """The parser of `embed`; raises UsageError where argparse would exit."""
    parser = _Parser(
        prog="python -m pipeline embed",
        description="Text to BERT vectors. Takes every option of Apache Beam, too.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add_embed_flags(parser)
    return parser


def tokenize_parser() -> argparse.ArgumentParser:
    """The parser of `tokenize`, likewise."""
    parser = _Parser(
        prog="python -m pipeline tokenize",
        description="Text to TFRecord files of examples, to be embedded later or elsewhere; or the "
        "tokens, ids and places of one text. Takes every option of Apache Beam, too.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add_tokenize_flags(parser)
    return parser


def parse_embed(arguments: Sequence[str]) -> EmbedOptions:
    """Reads the command line of `embed`, and the file that its --config names.

    Raises:
        UsageError: An unknown flag (the nearest is named), a wrong value, a bad file.
    """
    return _parse(embed_parser(), arguments)


def parse_tokenize(arguments: Sequence[str]) -> EmbedOptions:
    """Reads the command line of `tokenize` for files, likewise."""
    return _parse(tokenize_parser(), arguments, output_format=EXAMPLES)


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str], **fixed: Any) -> EmbedOptions:
    given, unknown = parser.parse_known_args(join_negative_lists(arguments))
    values = vars(given)
    values.pop("text", None)
    config = values.pop("config", None)
    unknown_keys: list[str] = []
    if config is not None:
        from_file, unknown_keys = _read_config(config, parser)
        values = from_file | values
    for name in REPEATED:
        values[name] = tuple(values.get(name, ()))
    options = EmbedOptions(**values, **fixed, beam_args=(*unknown_keys, *unknown))
    try:
        _check_beam_flags(parser, options)
    except UsageError as error:
        if unknown_keys and not unknown:
            raise UsageError(f"--config {config}: {error}") from error
        raise
    for name in ("input", "output"):
        if not getattr(options, name) and not (name == "input" and options.query):
            raise UsageError(f"--{name} is missing: " + _MISSING[name])
    if "" in options.input:
        raise UsageError("--input is empty: " + _MISSING["input"])
    _check_runner(options.runner)
    return options


_MISSING = {
    "input": "give the files to embed, such as --input 'texts/*.txt'",
    "output": "give a folder for the vectors, such as --output build/out",
}


def join_negative_lists(arguments: Sequence[str]) -> list[str]:
    """Ties `--layers -1,-2` together, which argparse would take for two flags.

    >>> join_negative_lists(["--layers", "-1,-2", "--dim", "3"])
    ['--layers=-1,-2', '--dim', '3']
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--layers" and _NEGATIVE_LIST.match(argument):
            joined[-1] += "=" + argument
        else:
            joined.append(argument)
    return joined


def parse_config(path: str, text: str) -> dict[str, Any]:
    """The flags in a YAML file; each has one value, or a list of them.

    Raises:
        UsageError: It is none, too large, or refers to itself: a few lines of references can stand
            for any number of values.
    """
    import yaml

    wanted = f"--config {path} must hold flags, one `name: value` a line"
    if len(text) > MOST_CONFIG:
        raise UsageError(f"{wanted}, and not more than {MOST_CONFIG:,} characters")
    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise UsageError(f"{wanted}, without references to each other (*{event.anchor})")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > 2:
                raise UsageError(f"{wanted}, the value a list at most")
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or "config" in settings:
        raise UsageError(wanted)
    return settings


def _read_config(path: str, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], list[str]]:
    try:
        text = _config_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    settings = parse_config(path, text)
    switches = {name for name in settings if f"--no_{name}" in parser._option_string_actions}
    for name in switches:
        if not isinstance(settings[name], bool | None):
            raise UsageError(f"--config {path}: {name} must be true or false")
    arguments = [each for name, value in settings.items() for each in _as_flags(name, value)]
    try:
        given, unknown = parser.parse_known_args(arguments)
    except UsageError as error:
        raise UsageError(f"--config {path}: {error}") from error
    return vars(given), unknown


def _config_text(path: str) -> str:
    from transforms.files import read_bytes  # imports Beam only for a path that is no local one

    data = read_bytes(path)
    if data is None:
        raise FileNotFoundError(f"{path} is not there")
    return data.decode()


def _as_flags(name: str, value: Any) -> list[str]:
    if value is None or (value is False and name in _ONLY_ON):
        return []  # as if the line were not there
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no_{name}"]
    if isinstance(value, list) and name in REPEATED:
        return [f"--{name}={each}" for each in value]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return [f"--{name}={text}"]


def _check_beam_flags(parser: argparse.ArgumentParser, options: EmbedOptions) -> None:
    """Refuses what neither we nor Beam know."""
    if not options.beam_args or options.runner_name in FOREIGN_RUNNERS:
        return
    from apache_beam.options.pipeline_options import PipelineOptions

    beam_parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    for each in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(each):
            each._add_argparse_args(beam_parser)
    _, unknown = beam_parser.parse_known_args(list(options.beam_args))
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    known = [flag for p in (parser, beam_parser) for flag in p._option_string_actions]
    nearest = difflib.get_close_matches(name, known, n=1)
    if not name.startswith("-"):
        raise UsageError(
            f"{name} stands alone: repeat --input for each file, or put a glob in quotes"
        )
    hint = f"did you mean {nearest[0]}?" if nearest else f"see {parser.prog} --help"
    raise UsageError(f"unknown flag {name}; {hint}")


def _check_runner(name: str) -> None:
    if name == DEFAULT_RUNNER:
        return
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner {name} is not to be had: {error}") from error


def command_of(options: EmbedOptions) -> list[str]:
    """The command that repeats a run: every option that was asked for."""
    words = [sys.executable, "-m", "pipeline", options.command]
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name == "beam_args" or value == each.default:
            continue
        if isinstance(value, bool):
            words.append(f"--{each.name}" if value else f"--no_{each.name}")
        elif value == EXAMPLES and each.name == "output_format":
            continue
        elif each.name in REPEATED:
            words += [f"--{each.name}={one}" for one in value]
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"--{each.name}={text}")
    return [*words, *options.beam_args]
