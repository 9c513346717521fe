"""Parses command lines and YAML files to EmbedOptions."""

import argparse
import difflib
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import LISTS, OTHER_NAMES
from bert_embed.pipeline.options import (
    DEFAULT_RUNNER,
    DEFAULTS,
    EXAMPLES,
    FLAGS,
    GROUPS,
    EmbedOptions,
)
from bert_embed.pipeline.resolve.config_file import parse_config

_NEGATIVE = re.compile(r"-\d")  # begins a value, no flag
_TYPO = 0.8  # no flag of Beam is so similar to one of ours
_SWITCHES = {name for name, flag in FLAGS.items() if flag.switch}
_DESCRIPTIONS = {
    "embed": "Embeds text with BERT. Also takes every option of Apache Beam.",
    "estimate": "Reads a sample of the input and estimates what `embed` with the same flags takes: "
    "documents, tokens, files, hours and cost. Writes nothing.",
    "tokenize": "Writes the examples of texts to TFRecord files, for `embed`; or prints the tokens "
    "of one text. Also takes every option of Apache Beam.",
}
# What `--help` lists; `--help all` lists every flag.
EVERYDAY = {
    *("input", "query", "document", "text_column", "id_column", "extra_columns", "limit"),
    *("output", "overwrite", "output_format", "output_table", "output_dtype"),
    *("skip_existing", "keep_text", "max_rejected"),
    *("model", "granularity", "layers", "layer_combine", "pooling", "max_seq_length"),
    *("long_text", "chunk", "chunk_tokens", "prompt", "normalize", "precision"),
    *("runner", "dry_run"),
}
_UNRECOGNIZED = "unrecognized arguments: "  # argparse's own words
_EXAMPLE = "--input books.csv --text_column title --id_column isbn"
_MISSING = {
    "input": "give the files to embed, such as --input 'texts/*.txt'",
    "output": "give a folder for the vectors, such as --output build/out",
}


def program() -> str:
    """How this program was called."""
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("bert-embed") else "bert-embed"


def installed_program() -> str:
    """What starts this program again: its name where the shell finds it, else its path."""
    beside = Path(sys.executable).with_name("bert-embed")
    found = shutil.which("bert-embed")
    is_found = found is not None and beside.exists() and os.path.samefile(found, beside)
    return str(beside) if beside.exists() and not is_found else "bert-embed"


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def __init__(self, command: str = "", description: str | None = None, **more: Any) -> None:
        settings: dict[str, Any] = {
            "prog": f"{program()} {command}",
            "allow_abbrev": False,
        } | more
        super().__init__(description=description, **settings)

    def error(self, message: str) -> NoReturn:
        word = message.removeprefix(_UNRECOGNIZED).split(" ")[0].partition("=")[0]
        if message.startswith(_UNRECOGNIZED) and word.startswith("-"):
            nearest = _nearest(word, list(self._option_string_actions))
            raise UsageError(_unknown_flags([(word, nearest)], self.prog))
        raise UsageError(message)


def _nearest(word: str, flags: Sequence[str], only_typos: bool = False) -> str | None:
    """The flag that a wrong one stands for, or else the one that is most like it."""
    word = f"--{word.lstrip('-')}"
    if (known := OTHER_NAMES.get(word)) in flags:
        return known
    found = difflib.get_close_matches(word, flags, 1, _TYPO)
    if not found and not only_typos:
        found = sorted((flag for flag in flags if flag.startswith(word)), key=len)
        found = found or difflib.get_close_matches(word, flags, 1)
    return found[0] if found else None


class Once(argparse.Action):
    """Stores a value and refuses a second one, which would replace the first silently."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if getattr(namespace, self.dest, None) is not None:
            several = ", give it once, with commas" if isinstance(values, tuple) else ""
            raise UsageError(f"{option_string} takes one value, it was given twice{several}")
        setattr(namespace, self.dest, values)


class _Switch(argparse.Action):
    """`--name` and `--no_name`, of which one may be given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        value = not str(option_string).startswith("--no_")
        if getattr(namespace, self.dest, None) is (not value):
            other = self.option_strings[value]
            parser.error(f"argument {option_string}: not allowed with argument {other}")
        setattr(namespace, self.dest, value)


def help_of(name: str) -> str:
    """The help of a flag, with its default."""
    text, default = FLAGS[name].help, DEFAULTS[name]
    if not default or FLAGS[name].switch:
        return text
    shown = ",".join(default) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})"


def add_flag(group: Any, name: str, shown: bool = True) -> None:
    """Adds the flag of an option to an argparse parser or group; `--help` lists it if `shown`."""
    flag = FLAGS[name]
    text = help_of(name) if shown else argparse.SUPPRESS
    if flag.switch:
        names = f"--{name}", f"--no_{name}"
        group.add_argument(*names, dest=name, action=_Switch, nargs=0, help=text)
        return
    group.add_argument(
        f"--{name}",
        # Of other values the last counts, so that scripts can add to a command.
        action="append" if flag.repeated else Once if flag.type in LISTS else "store",
        type=flag.type,
        choices=flag.choices,
        metavar=flag.metavar,
        help=text,
    )


def command_parser(command: str, everything: bool = True) -> argparse.ArgumentParser:
    """The parser of `embed` or `tokenize`; options that are not given stay out of its result.

    Its help lists every flag, or those of `EVERYDAY`.
    """
    names = [name for name, flag in FLAGS.items() if command != "tokenize" or not flag.embed_only]
    output = " --output DIR" if command != "estimate" else ""
    rest = f"{program()} {command} --help all lists {len(set(names) - EVERYDAY)} more flags."
    parser = Parser(
        command,
        _DESCRIPTIONS[command],
        usage=f"{program()} {command} --input GLOB{output} [flags]",
        argument_default=argparse.SUPPRESS,
        epilog=f"example: {program()} {command} {_EXAMPLE}{' --output vectors' if output else ''}"
        + ("" if everything else f"\n{rest}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with any of these flags; the command line wins"
    )
    if command == "tokenize":
        parser.add_argument("--text", metavar="TEXT", help="print the tokens of this text instead")
    if command == "estimate":
        _add_estimate_flags(parser)
    groups = {None: parser} | {title: parser.add_argument_group(title) for title in GROUPS}
    for name in names:
        add_flag(groups[FLAGS[name].group], name, everything or name in EVERYDAY)
    return parser


def _add_estimate_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", default=False, help="print JSON")
    parser.add_argument(
        "--prices", metavar="FILE", default=None, help="machines and prices (default: the packaged)"
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=float,
        default=3.0,
        help="how long to measure the model's speed here; 0: not at all (default: 3)",
    )


def parse_embed(arguments: Sequence[str]) -> EmbedOptions:
    """Reads the command line of `embed`, and the file that its --config names.

    Raises:
        UsageError: An unknown flag (the nearest is named), a wrong value, a bad file.
    """
    return _parse("embed", arguments)[0]


def parse_estimate(arguments: Sequence[str]) -> tuple[EmbedOptions, argparse.Namespace]:
    """Reads the command line of `estimate`: the options of `embed`, and its own flags.

    Its own are `json`, `prices` and `seconds`.
    """
    options, own = _parse("estimate", arguments)
    if not 0 <= own.seconds < math.inf:
        raise UsageError(f"--seconds must be at least 0, got {own.seconds:g}")
    return options, own


def parse_tokenize(arguments: Sequence[str]) -> EmbedOptions:
    """Reads the command line of `tokenize` for files, likewise."""
    return _parse("tokenize", arguments, output_format=EXAMPLES)[0]


def _parse(
    command: str, arguments: Sequence[str], **fixed: Any
) -> tuple[EmbedOptions, argparse.Namespace]:
    """The options of a command, and the values of the flags that are no options."""
    parser = command_parser(command)
    given, unknown = parser.parse_known_args(plain_words(arguments))
    values = vars(given)
    values.pop("text", None)
    config = values.pop("config", None)
    unknown_keys: list[str] = []
    if config is not None:
        from_file, unknown_keys = _read_config(config, parser)
        values = from_file | values
    values |= {
        name: tuple(value)
        for name, value in values.items()
        if name in FLAGS and FLAGS[name].repeated
    }
    own = {name: values.pop(name) for name in list(values) if name not in FLAGS}
    options = EmbedOptions(**values, **fixed, beam_args=(*unknown_keys, *unknown))
    try:
        check_beam_flags(parser, options)
    except UsageError as error:
        if unknown_keys and not unknown:
            raise UsageError(f"--config {config}: {error}") from error
        raise
    for name in ("input", "output") if command != "estimate" else ("input",):
        found = getattr(options, name) or (
            options.query if name == "input" else options.loads_table
        )
        if not found:
            raise UsageError(f"--{name} is missing: " + _MISSING[name])
    if "" in options.input:
        raise UsageError("--input is empty: " + _MISSING["input"])
    check_runner(options.runner)
    return options, argparse.Namespace(**own)


def plain_words(arguments: Sequence[str]) -> list[str]:
    """Rewrites what argparse does not take: dashes, negative lists, and switches with a value.

    >>> plain_words(["--layers", "-1,-2", "--overwrite=false", "--normalize", "true", "--dry-run"])
    ['--layers=-1,-2', '--no_overwrite', '--normalize', '--dry_run']
    """
    words: list[str] = []
    for word in arguments:
        if word.encode("utf-8", "replace").decode() != word:
            raise UsageError(f"{word!r} is not UTF-8")
        name, given, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            name = name.replace("-", "_")
            word = f"--{name}{given}{value}"
        if words and words[-1] == "--layers" and _NEGATIVE.match(word):
            words[-1] += "=" + word
        elif words and words[-1].removeprefix("--") in _SWITCHES and word in ("true", "false"):
            words[-1] = words[-1] if word == "true" else f"--no_{words[-1].removeprefix('--')}"
        elif given and name in _SWITCHES and word.startswith("--"):
            if value.lower() not in ("true", "false"):
                raise UsageError(f"--{name} must be true or false, got {value!r}")
            words.append(f"--{name}" if value.lower() == "true" else f"--no_{name}")
        else:
            words.append(word)
    return words


def _read_config(path: str, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], list[str]]:
    """The options that a YAML file sets, and the flags in it that are not ours."""
    from bert_embed.storage.files import read_bytes

    try:
        data = read_bytes(path)
        if data is None:
            raise FileNotFoundError(f"{path} is not there")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    settings = parse_config(path, text)
    if "text" in settings:
        raise UsageError(f"--config {path}: text is for the command line, give --text there")
    for name in _SWITCHES & settings.keys():
        if not isinstance(settings[name], bool | None):
            raise UsageError(f"--config {path}: {name} must be true or false")
    words = [word for name, value in settings.items() for word in as_words(str(name), value)]
    try:
        given, unknown = parser.parse_known_args(words)
    except UsageError as error:
        raise UsageError(f"--config {path}: {error}") from error
    return vars(given), unknown


def as_words(name: str, value: Any) -> list[str]:
    """The flags that a line of YAML, or an option's value, stands for; none for None."""
    if value is None:
        return []
    if value is False and name not in FLAGS and _is_beam_switch(name):
        return []  # Beam's switches have no --no_ form: without the flag they are off
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no_{name}"]
    if isinstance(value, list | tuple):
        if name in FLAGS and FLAGS[name].repeated:
            return [f"--{name}={one}" for one in value]
        value = ",".join(map(str, value))
    return [f"--{name}={value}"]


def _beam_parser() -> argparse.ArgumentParser:
    """The parser of all of Beam's own flags."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = Parser(add_help=False, conflict_handler="resolve")
    for view in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(view):
            view._add_argparse_args(parser)
    return parser


def _is_beam_switch(name: str) -> bool:
    flags = _beam_parser()._option_string_actions
    flag = flags.get(f"--{name}")
    return flag is not None and flag.nargs == 0 and f"--no_{name}" not in flags


def check_beam_flags(
    parser: argparse.ArgumentParser,
    options: EmbedOptions,
    alone: str = "repeat --input for each file, or put a glob in quotes",
) -> None:
    """Refuses flags that neither this program nor Beam has; `alone` says what to do with words."""
    if not options.beam_args:
        return
    if options.is_portable:  # its runner may have further flags; wrong values are refused
        _beam_parser().parse_known_args(list(options.beam_args))
        return
    flags = list(parser._option_string_actions)
    names = [word.partition("=")[0] for word in options.beam_args if word.startswith("-")]
    typos = {name: _nearest(name, flags, only_typos=True) for name in names}
    if any(typos.values()):  # so nobody waits for the import of Beam
        found = [(name, nearest) for name, nearest in typos.items() if nearest]
        raise UsageError(_unknown_flags(found, parser.prog))
    beam_parser = _beam_parser()
    _, unknown = beam_parser.parse_known_args(list(options.beam_args))
    if not unknown:
        return
    if not unknown[0].startswith("-"):
        raise UsageError(f"{unknown[0]} stands alone: {alone}")
    every = [*flags, *beam_parser._option_string_actions]
    names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    raise UsageError(_unknown_flags([(name, _nearest(name, every)) for name in names], parser.prog))


def _unknown_flags(found: Sequence[tuple[str, str | None]], program_name: str) -> str:
    """The message on flags that do not exist, each with the one that may be meant."""
    hints = [
        (name, f"did you mean {nearest}?" if nearest else f"see {program_name} --help")
        for name, nearest in found
    ]
    if len(hints) == 1:
        return f"unknown flag {hints[0][0]}; {hints[0][1]}"
    return f"unknown flags: {', '.join(f'{name} ({hint})' for name, hint in hints)}"


def check_runner(name: str) -> None:
    """Refuses a runner that Beam does not have."""
    if name == DEFAULT_RUNNER:
        return
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner {name} is not available: {error}") from error


def command_of(options: EmbedOptions) -> list[str]:
    """The command that repeats a run: every option that differs from its default."""
    words = [installed_program(), options.command]
    for name in FLAGS:
        value = getattr(options, name)
        if value != DEFAULTS[name] and (name, value) != ("output_format", EXAMPLES):
            words += as_words(name, value)
    return [*words, *options.beam_args]
