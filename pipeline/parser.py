"""Reads command lines to Options."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from bert_embed.pipeline.beam_words import UnknownFlags, check_beam_words, nearest_flag
from bert_embed.pipeline.config_file import read_options
from bert_embed.pipeline.console import answer
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import (
    NOT_NEGATIVE,
    SWITCH,
    CheckedOptions,
    Flag,
    flag,
    flags_of,
    switch,
)
from bert_embed.pipeline.options import DEFAULTS, EXAMPLES, FLAGS, Options, grouped
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions

_NEGATIVE = re.compile(r"-\d")  # begins a value, no flag
_DESCRIPTIONS = {
    "embed": "Embeds text with BERT. Also takes every option of Apache Beam.",
    "estimate": "Reads a sample of the input and estimates what `embed` with the same flags takes: "
    "documents, tokens, files and hours. Writes nothing.",
    "tokenize": "Writes the examples of texts to TFRecord files, for `embed`; or prints the tokens "
    "of one text. Also takes every option of Apache Beam.",
}
# What `--help` lists; `--help all` lists every flag.
EVERYDAY = {
    *("input", "query", "document", "text_column", "id_column", "extra_columns", "limit"),
    *("output", "overwrite", "output_format", "output_table", "output_dtype"),
    *("skip_existing", "keep_text", "max_rejected"),
    *("model", "granularity", "vectors", "layers", "layer_combine", "pooling", "max_seq_length"),
    *("long_text", "chunk", "chunk_tokens", "prompt", "normalize", "precision"),
    *("runner", "dry_run"),
}
_UNRECOGNIZED = "unrecognized arguments: "  # argparse's own words
_EXAMPLE = "--input books.csv --text_column title --id_column isbn"


@dataclass(frozen=True)
class EstimateOptions(CheckedOptions):
    """The options of `estimate` beside those of `embed`."""

    json: bool = switch("print JSON")
    price_per_hour: float | None = flag(
        "of a machine like this one, in any currency: multiplied by the hours",
        "N",
        kind=NOT_NEGATIVE,
    )
    seconds: float = flag(
        "how long to measure the model's speed here; 0: not at all", "N", 3.0, kind=NOT_NEGATIVE
    )


def program() -> str:
    """How this program was called."""
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("bert-embed") else "bert-embed"


def installed_program() -> str:
    """What starts this program again: its name where the shell finds it, else its path."""
    beside = Path(sys.executable).with_name("bert-embed")
    on_path = shutil.which("bert-embed")
    if not beside.exists() or (on_path and os.path.samefile(on_path, beside)):
        return "bert-embed"
    return str(beside)


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def __init__(self, command: str = "", description: str | None = None, **settings: Any) -> None:
        defaults: dict[str, Any] = {"prog": f"{program()} {command}", "allow_abbrev": False}
        super().__init__(description=description, **defaults | settings)

    def print_help(self, file: Any = None) -> None:
        """Prints the help; AnswerLost where nobody can read it."""
        answer(*self.format_help().splitlines())

    def error(self, message: str) -> NoReturn:
        word = message.removeprefix(_UNRECOGNIZED).split(" ")[0].partition("=")[0]
        if message.startswith(_UNRECOGNIZED) and word.startswith("-"):
            nearest = nearest_flag(word, list(self._option_string_actions))
            raise UnknownFlags([(word, nearest)], self.prog)
        raise UsageError(message)


class _Once(argparse.Action):
    """Stores a list and refuses a second one, which would replace the first silently."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if hasattr(namespace, self.dest):
            raise UsageError(
                f"{option_string} is given twice; join the values with a comma: "
                f"{getattr(namespace, self.dest)},{values}"
            )
        setattr(namespace, self.dest, values)


class _Switch(argparse.Action):
    """`--name`, `--name=true` or `--no_name`, of which one may be given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        is_on = not str(option_string).startswith("--no_")
        if not is_on and values is not None:
            parser.error(f"{option_string} takes no value, got {values!r}")
        value = is_on if values is None else SWITCH(self.dest, values)
        if getattr(namespace, self.dest, value) is not value:
            parser.error(f"{option_string} contradicts what was given before, give only one")
        setattr(namespace, self.dest, value)


def add_flag(
    group: Any, name: str, flag: Flag, shown: bool = True, bare_switches: bool = False
) -> None:
    """Adds a flag to an argparse parser or group.

    What is not given stays out of the parser's result; the options check the values. `shown` says
    whether `--help` lists it; with `bare_switches` a word behind a switch stands alone.
    """
    described: dict[str, Any] = {
        # argparse would take a % for one of its own names.
        "help": flag.help.replace("%", "%%") if shown else argparse.SUPPRESS
    }
    described["metavar"] = f"{{{','.join(flag.choices)}}}" if flag.choices else flag.metavar
    if flag.is_positional:
        group.add_argument(name, nargs="*" if flag.is_repeated else None, **described)
        return
    described["default"] = argparse.SUPPRESS
    if flag.is_switch and bare_switches:
        described.pop("metavar")
        group.add_argument(f"--{name}", action="store_true", **described)
        return
    if flag.is_switch:
        names = [f"--{name}", *([] if flag.default is False else [f"--no_{name}"])]
        described["metavar"] = "BOOL"
        group.add_argument(*names, dest=name, action=_Switch, nargs="?", **described)
        return
    # Of other values the last counts, so that scripts can add to a command.
    action = "append" if flag.is_repeated else _Once if flag.has_several else "store"
    group.add_argument(f"--{name}", action=action, required=flag.default is MISSING, **described)


@dataclass(frozen=True)
class CommandOptions(CheckedOptions):
    """The options of a command, which the docstring describes; `beam_args` takes Beam's flags."""

    def __post_init__(self) -> None:
        super().__post_init__()
        flags = [(name, one) for name, one in flags_of(type(self)).items() if one.is_positional]
        after = [one.metavar or "" for _, one in flags if not one.is_repeated]
        for name, one in flags:
            if one.is_repeated and not getattr(self, name):
                raise UsageError(
                    f"{' or '.join(['DIR', *after])} is missing: give the output of a "
                    f"{', then '.join(['run', *after])}"
                )

    @classmethod
    def command(cls) -> str:
        """The command's name: `model import` of ModelImportOptions."""
        return " ".join(re.findall("[A-Z][a-z]+", cls.__name__)[:-1]).lower()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Self:
        """Reads the command's words; InputError if they are wrong."""
        flags = flags_of(cls)
        takes_beam = "beam_args" in cls.__dataclass_fields__
        command, beam = cls.command(), "Also takes every option of Apache Beam." * takes_beam
        places = [one.metavar or "" for one in flags.values() if one.is_positional]
        required = [name for name, one in flags.items() if one.default is MISSING]
        required = [f"--{name} {name.upper()}" for name in required[len(places) :]]
        usage = " ".join([program(), command, *places, *required, "[flags]"])
        parser = Parser(command, f"{cls.__doc__} {beam}", usage=usage)
        for name, described in flags.items():
            add_flag(parser, name, described, bare_switches=True)
        if not takes_beam:
            return cls(**vars(parser.parse_intermixed_args(arguments)))
        namespace, words = parser.parse_known_intermixed_args(arguments)
        values = vars(namespace)
        job = RunnerOptions(values.get("runner", DEFAULT_RUNNER))
        alone = f"give {' and '.join(places)} once; {command} takes no other words"
        known = list(parser._option_string_actions)
        check_beam_words(words, known, job, parser.prog, alone)
        return cls(**values | {"beam_args": tuple(words)})


def command_parser(command: str, everything: bool = True) -> argparse.ArgumentParser:
    """The parser of `embed`, `estimate` or `tokenize`; its help lists every flag, or `EVERYDAY`."""
    names = [name for name in FLAGS if FLAGS[name].without != command]
    output = " --output DIR" if command != "estimate" else ""
    rest = f"{program()} {command} --help all lists {len(set(names) - EVERYDAY)} more flags."
    parser = Parser(
        command,
        _DESCRIPTIONS[command],
        usage=f"{program()} {command} --input GLOB{output} [flags]",
        epilog=f"example: {program()} {command} {_EXAMPLE}{' --output vectors' if output else ''}"
        + ("" if everything else f"\n{rest}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config = "YAML file with any of these flags; the command line wins"
    parser.add_argument("--config", metavar="FILE", help=config)
    if command == "tokenize":
        parser.add_argument("--text", metavar="TEXT", help="print the tokens of this text instead")
    if command == "estimate":
        for name, described in flags_of(EstimateOptions).items():
            add_flag(parser, name, described)
    for title, options in grouped().items():
        group = parser if "dry_run" in options else parser.add_argument_group(title)
        for name in options:
            if name in names:
                add_flag(group, name, FLAGS[name], everything or name in EVERYDAY)
    return parser


def parse_embed(arguments: Sequence[str]) -> Options:
    """Reads the command line of `embed`, and the file that its --config names."""
    return _parse("embed", arguments)[0]


def parse_estimate(arguments: Sequence[str]) -> tuple[Options, EstimateOptions]:
    """Reads the command line of `estimate`: the options of `embed`, and its own."""
    options, own = _parse("estimate", arguments)
    return options, EstimateOptions(**own)


def parse_tokenize(arguments: Sequence[str]) -> Options:
    """Reads the command line of `tokenize` for files, likewise."""
    return _parse("tokenize", arguments, output_format=EXAMPLES)[0]


def _parse(command: str, arguments: Sequence[str], **fixed: Any) -> tuple[Options, dict[str, Any]]:
    """The options of a command, and the values of the flags that are no options."""
    parser = command_parser(command)
    namespace, words = parser.parse_known_args(plain_words(arguments))
    values = vars(namespace)
    values.pop("text", None)
    config = values.pop("config", None)
    own = {name: values.pop(name) for name in list(values) if name not in FLAGS}
    flags = list(parser._option_string_actions)
    needed = ("input",) if command == "estimate" else ("input", "output")
    return read_options(values, words, config, flags, parser.prog, needed, **fixed), own


def plain_words(arguments: Sequence[str]) -> list[str]:
    """Rewrites what argparse does not take: dashes in names, and lists that begin with a dash.

    >>> plain_words(["--layers", "-1,-2", "--dry-run"])
    ['--layers=-1,-2', '--dry_run']
    """
    words: list[str] = []
    for word in arguments:
        if word.encode("utf-8", "replace").decode() != word:
            raise UsageError(f"{word!r} is not UTF-8")
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = f"--{name[2:].replace('-', '_')}{equals}{value}"
        if words and words[-1] == "--layers" and _NEGATIVE.match(word):
            words[-1] += "=" + word
        else:
            words.append(word)
    return words


def as_words(name: str, value: Any) -> list[str]:
    """The flags that give an option its value; none for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no_{name}"]
    if isinstance(value, list | tuple):
        if FLAGS[name].is_repeated:
            return [f"--{name}={one}" for one in value]
        value = ",".join(map(str, value))
    return [f"--{name}={value}"]


def command_of(options: Options) -> list[str]:
    """The command that repeats a run: every option that differs from its default."""
    words = [installed_program(), options.command]
    for name in FLAGS:
        value = getattr(options, name)
        if value != DEFAULTS[name] and (name, value) != ("output_format", EXAMPLES):
            words += as_words(name, value)
    return [*words, *options.beam_args]
