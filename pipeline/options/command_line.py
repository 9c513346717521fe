"""Reads command lines to Options: flags of ours and of Beam, a YAML file below them."""

import argparse
import difflib
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from functools import partial
from typing import Any, NoReturn, TypeVar

from bert_embed.base.arguments import OTHER_NAMES
from bert_embed.base.errors import InputError, SettingError, StorageError, error_text
from bert_embed.pipeline.console import installed_program, program
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import DEFAULTS, FLAGS, Options, grouped
from bert_embed.pipeline.options.flags import (
    CommandOptions,
    Flag,
    flags_of,
    items_of,
    one_text,
    place,
    true_or_false,
)
from bert_embed.pipeline.runners.options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.results.files import EXAMPLES
from bert_embed.storage.files import read_bytes
from bert_embed.transforms.read.columns import joined_fields

_OF_COMMANDS = ("h", "help", "version")  # what they print is for people
_TYPO = 0.8  # no flag of Beam, of Flink or of Spark is so similar to one of ours
_TYPO_OF_BEAM = 0.92  # --spark_master, of Spark's job server, is similar to --spark_master_url
_logger = logging.getLogger(__name__)
_OTHER_NAMES = OTHER_NAMES | {"batch_size": "batch_tokens"}  # of which Python says more


class UnknownFlag(UsageError):
    """A flag does not exist; `nearest` is the one that may be meant, or None."""

    def __init__(self, name: str, nearest: str | None, program: str) -> None:
        hint = f"did you mean {nearest}?" if nearest else f"see {program} --help"
        super().__init__(f"unknown flag {name}; {hint}")
        self.name, self.nearest = name, nearest


def nearest_flag(word: str, flags: Sequence[str], only_typos: bool = False) -> str | None:
    """The flag that a wrong one stands for, or else the one that is most like it."""
    word = f"--{word.lstrip('-')}"
    if (known := f"--{_OTHER_NAMES.get(word.lstrip('-'))}") in flags:
        return known
    similar = difflib.get_close_matches(word, flags, 1, _TYPO)
    if not similar and not only_typos:
        similar = sorted((flag for flag in flags if flag.startswith(word)), key=len)
        similar = similar or difflib.get_close_matches(word, flags, 1)
    return similar[0] if similar else None


def check_beam_words(
    words: Sequence[str], flags: Mapping[str, Flag], job: RunnerOptions, command: str
) -> None:
    """Refuses words that are no flags of Beam, and a runner that it does not have.

    `flags` are those of the command, one of which may be meant. InputError names what is wrong.
    """
    if words:
        _check_words(words, flags, job, command)
    if job.runner == DEFAULT_RUNNER:
        return
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(job.runner)
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingError("runner", f"{job.runner} is not available: {error}") from error


def _words_of(flags: Mapping[str, Flag]) -> list[str]:
    return [f"--{name}" for name, one in flags.items() if not one.is_positional]


def _check_words(
    words: Sequence[str], flags: Mapping[str, Flag], job: RunnerOptions, command: str
) -> None:
    ours, called = _words_of(flags), f"{program()} {command}"
    # What `embed` has, and this command does not, is no typo.
    of_embed = [f"--{name}" for name in FLAGS]
    for name in _names(words):
        near = None if name in of_embed else nearest_flag(name, ours, only_typos=True)
        if near and near != name:
            raise UnknownFlag(name, near, called)  # so nobody waits for the import of Beam
    beam_parser = _beam_parser()
    _, unknown = beam_parser.parse_known_args(list(words))
    of_beam = list(beam_parser._option_string_actions)
    for name in _names(unknown):
        if not job.is_portable:
            near = nearest_flag(name, [*ours, *of_beam], only_typos=True)
            near = None if name in of_embed else near or nearest_flag(name, ours)
            raise UnknownFlag(name, near, called)
        # A job server's own flags, which only it knows, are passed on.
        similar = difflib.get_close_matches(name, of_beam, 1, _TYPO_OF_BEAM)
        if similar or nearest_flag(name, of_embed, only_typos=True):
            raise UnknownFlag(name, similar[0] if similar else None, called)
    for word, before in zip(unknown, ("", *unknown), strict=False):
        if not word.startswith("-") and not (before.startswith("--") and "=" not in before):
            raise _stands_alone(word, flags, command)
    for name in _names(unknown):
        _logger.warning(
            "%s is no flag of this program and none that Beam knows here; the job server of %s "
            "gets it as it is",
            name,
            job.runner,
        )


def _stands_alone(word: str, flags: Mapping[str, Flag], command: str) -> UsageError:
    places = [one.metavar or "" for one in flags.values() if one.is_positional]
    alone = f"give {' and '.join(places)} once; {command} takes no other words"
    alone = alone if places else "repeat --input for each file, or put a glob in quotes"
    return UsageError(f"{word} stands alone: {alone}")


def _names(words: Iterable[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("-")]


def _beam_parser() -> argparse.ArgumentParser:
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for view in PipelineOptions.__subclasses__():
        if "_add_argparse_args" in vars(view):
            view._add_argparse_args(parser)
    return parser


def beam_words(name: str, value: Any) -> list[str]:
    """The words for a flag of Beam with a value of YAML or Python; none for None."""
    switch = name.removeprefix("no_")
    if name in _OF_COMMANDS:
        raise SettingError(name, "is for the command line")
    if name != switch and switch in FLAGS:
        raise SettingError(name, f"is no option: set {switch} to false", switch)
    if value is False:
        flags = _beam_parser()._option_string_actions
        flag = flags.get(f"--{name}")
        if flag is not None and flag.nargs == 0 and f"--no_{name}" not in flags:
            return []  # Beam's switches have no --no_ form: without the flag they are off
    elif value is not None and value is not True:
        items = items_of(value)
        value = [one_text(name, item) for item in ([value] if items is None else items)]
        flag = _beam_parser()._option_string_actions.get(f"--{name}") if len(value) > 1 else None
        if flag is not None and not isinstance(flag, argparse._StoreAction):
            return [f"--{name}={text}" for text in value]  # with commas they could be one value
    return as_words(name, value)


def _of_file(path: str, flags: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of our flags in a YAML file, and those of others as words."""
    ours: dict[str, Any] = {}
    words: list[str] = []
    for name, value in _settings(path).items():
        if name in flags:
            ours |= {} if value is None else {name: value}
            continue
        try:
            words += beam_words(str(name), value)
        except SettingError as error:
            raise SettingError("config", f"{path}: {error}") from error
    return ours, words


Chosen = TypeVar("Chosen", bound=CommandOptions)


def read_options(
    kind: type[Chosen],
    command: str,
    values: Mapping[str, Any],
    words: Sequence[str] = (),
    config: Any = None,
) -> Chosen:
    """The options of a command line, a call or a template, above those of a YAML file.

    `values` are of our options, `words` of Beam, `config` is the file. InputError if a needed
    option is missing, or any is unknown or wrong.
    """
    flags = taken(kind, command)
    names = [name for name, one in flags.items() if not one.is_positional]
    path = None if config is None else place("config", config)
    below, file_words = ({}, []) if path is None else _of_file(path, names)
    given = below | dict(values)
    if "beam_args" in kind.__dataclass_fields__:
        given["beam_args"] = (*file_words, *words)
        job = RunnerOptions(one_text("runner", given.get("runner", DEFAULT_RUNNER)))
        check = partial(check_beam_words, flags=flags, job=job, command=command)
        with _naming_file(path, lambda _: bool(file_words) or "runner" not in values):
            check(file_words)
        check(words)
    elif file_words:
        name = file_words[0].removeprefix("--").partition("=")[0]
        near = nearest_flag(f"--{name}", _words_of(flags))
        hint = f"; did you mean {near.removeprefix('--')}?" if near else ""
        raise SettingError("config", f"{path}: {command} has no flag {name}{hint}")
    for name in names:
        if flags[name].default is MISSING and name not in given:
            raise UsageError(f"the following arguments are required: --{name}")
    with _naming_file(path, lambda setting: setting in below.keys() - values.keys()):
        options = kind(**given)
    options.require(*kind.needed)
    return options


def taken(kind: type[CommandOptions], command: str) -> dict[str, Flag]:
    """The flags of a command, and what stands alone on its line."""
    return {name: one for name, one in flags_of(kind).items() if one.without != command}


@contextmanager
def _naming_file(path: str | None, is_of_file: Callable[[str], bool]) -> Iterator[None]:
    """Names the YAML file in an error of a setting that is of the file."""
    try:
        yield
    except InputError as error:
        if path is not None and is_of_file(getattr(error, "setting", "")):
            raise SettingError("config", f"{path}: {error}") from error
        raise


def _settings(path: str) -> dict[Any, Any]:
    import yaml

    try:
        if (data := read_bytes(path)) is None:
            raise FileNotFoundError(f"{path} is not there")
        text = data.decode()
        root = yaml.compose(text, yaml.SafeLoader)
        names = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
        settings = yaml.safe_load(text) or {}
    except StorageError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("config", f"{path} cannot be read: {error_text(error)}") from error
    except (yaml.YAMLError, ValueError) as error:  # such as 2026-02-30
        raise SettingError("config", f"{path} is not YAML: {_yaml_problem(error)}") from None
    if not isinstance(settings, dict) or "config" in settings:
        raise SettingError("config", f"{path} must hold flags, one `name: value` a line")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingError("config", f"{path} names {twice} twice; give several values as a list")
    return settings


def _yaml_problem(error: Exception) -> str:
    """What is wrong, and in which lines: neither a line nor a word of it, which may be a secret."""
    names = ("context", "problem")
    parts = [(getattr(error, name, None), getattr(error, f"{name}_mark", None)) for name in names]
    said = [f"line {mark.line + 1}: {text}" if mark else text for text, mark in parts if text]
    said = [re.sub("(alias|anchor|tag) '.*'", r"\1", text) for text in said]
    return "; ".join(said) or " ".join(str(error).split())


_FLAG = re.compile(r"--(\w[\w-]*)(?==|\Z)")
_NEGATIVE = re.compile(r"-\d")  # begins a value, no flag
_DESCRIPTIONS = {
    "embed": "Embeds text with BERT.",
    "estimate": "Reads a sample of the input and estimates what `embed` with the same flags takes: "
    "documents, tokens, files and hours. Writes nothing.",
    "tokenize": "Writes the examples of texts to TFRecord files, for `embed`.",
}
# What `--help` lists; `--help all` lists every flag.
EVERYDAY = {
    *("input", "query", "input_format", "text_column", "id_column", "extra_columns", "limit"),
    *("output", "overwrite", "output_format", "output_table", "output_dtype"),
    *("skip_existing", "max_deleted", "keep_text", "max_rejected"),
    *("model", "granularity", "vectors", "layers", "layer_combine", "pooling", "max_seq_length"),
    *("long_text", "chunk", "prompt", "normalize", "precision"),
    *("runner", "dry_run"),
}
_EXAMPLE = "--input books.csv --text_column title --id_column isbn"


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _Once(argparse.Action):
    """Stores a list and refuses a second one, which would replace the first silently."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if (first := getattr(namespace, self.dest, None)) is not None:
            cure = f"join the values with a comma: {first},{values}"
            raise UsageError(f"{option_string} is given twice; {cure}")
        setattr(namespace, self.dest, values)


class _Switch(argparse.Action):
    """`--name`, `--name=true` or `--no_name`, of which one may be given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        is_on = not str(option_string).startswith("--no_")
        if not is_on and values is not None:
            parser.error(f"{option_string} takes no value, got {values!r}")
        value = is_on if values is None else true_or_false(self.dest, values)
        if getattr(namespace, self.dest, value) is not value:
            parser.error(f"{option_string} contradicts what was given before, give only one")
        setattr(namespace, self.dest, value)


def add_flag(group: Any, name: str, flag: Flag, shown: bool, bare_switches: bool) -> None:
    """Adds a flag to an argparse parser or group.

    What is not given stays out of the parser's result; the options check the values. `shown` says
    whether `--help` lists it; with `bare_switches` a word behind a switch stands alone.
    """
    # argparse would take a % for one of its own names.
    described: dict[str, Any] = {"help": flag.help.replace("%", "%%")}
    if not shown:
        described["help"] = argparse.SUPPRESS
    metavar = f"{{{','.join(flag.choices)}}}" if flag.choices else flag.metavar
    if flag.is_positional:
        number = "*" if flag.is_repeated else None
        group.add_argument(name, nargs=number, metavar=metavar, **described)
        return
    described["default"] = argparse.SUPPRESS
    if flag.is_switch and bare_switches:
        group.add_argument(f"--{name}", action="store_true", **described)
    elif flag.is_switch:
        names = [f"--{name}", *([] if flag.default is False else [f"--no_{name}"])]
        described |= {"dest": name, "metavar": "BOOL", "nargs": "?"}
        group.add_argument(*names, action=_Switch, **described)
    else:
        # Of other values the last counts, so that scripts can add to a command.
        action = "append" if flag.is_repeated else _Once if flag.has_several else "store"
        group.add_argument(f"--{name}", action=action, metavar=metavar, **described)


_CONFIG = "YAML file with any of these flags; the command line wins"


def parser_of(kind: type[CommandOptions], command: str, everything: bool = True) -> Parser:
    """The parser of a command; its help lists every flag, or of `embed` the `EVERYDAY` ones."""
    flags = taken(kind, command)
    called, of_embed = f"{program()} {command}", issubclass(kind, Options)
    places = [one.metavar or "" for one in flags.values() if one.is_positional]
    needed = [name for name, one in flags.items() if one.default is MISSING][len(places) :]
    required = [f"--{name} {flags[name].metavar or name.upper()}" for name in needed]
    required += [f"--{name} {flags[name].metavar}" for name in kind.needed]
    about = _DESCRIPTIONS.get(command, kind.__doc__)
    if "beam_args" in kind.__dataclass_fields__:
        about = f"{about} Also takes every option of Apache Beam."
    # The console would show the colours of Python 3.14 as text.
    more: dict[str, Any] = {"color": False} if sys.version_info >= (3, 14) else {}
    if of_embed:
        output = " --output vectors" if "output" in kind.needed else ""
        epilog = f"example: {called} {_EXAMPLE}{output}"
        if not everything:
            rest = len(flags.keys() & FLAGS.keys() - EVERYDAY)
            epilog += f"\n{called} --help all lists {rest} more flags."
        more |= {"epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
    usage = " ".join([called, *places, *required, "[flags]"])
    parser = Parser(prog=called, usage=usage, description=about, allow_abbrev=False, **more)
    parser.add_argument("--config", metavar="FILE", help=_CONFIG)
    titles = {name: title for title, names in grouped().items() for name in names}
    groups: dict[str, Any] = {titles["dry_run"]: parser}
    for name, one in flags.items():
        group = parser
        if of_embed and (title := titles.get(name)) is not None:
            group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        shown = everything or not of_embed or name in EVERYDAY or name not in FLAGS
        add_flag(group, name, one, shown, bare_switches=bool(places))
    return parser


def read_command(kind: type[Chosen], command: str, arguments: Sequence[str]) -> Chosen:
    """Reads the words of a command, and the file that --config names; InputError if wrong."""
    parser = parser_of(kind, command)
    namespace, words = parser.parse_known_intermixed_args(plain_words(arguments))
    if words and "beam_args" not in kind.__dataclass_fields__:
        if not words[0].startswith("-"):
            raise _stands_alone(words[0], taken(kind, command), command)
        [word] = _names(words[:1])
        nearest = nearest_flag(word, list(parser._option_string_actions))
        raise UnknownFlag(word, nearest, parser.prog)
    values = vars(namespace)
    return read_options(kind, command, values, words, values.pop("config", None))


def parse_embed(arguments: Sequence[str]) -> Options:
    """Reads the command line of `embed`."""
    return read_command(Options, "embed", arguments)


def plain_words(arguments: Sequence[str]) -> list[str]:
    """Rewrites what argparse does not take: dashes in names, and lists that begin with a dash.

    >>> plain_words(["--layers", "-1,-2", "--dry-run"])
    ['--layers=-1,-2', '--dry_run']
    """
    words: list[str] = []
    are_flags = True
    for word in arguments:
        if word.encode("utf-8", "replace").decode() != word:
            raise UsageError(f"{word!r} is not UTF-8")
        are_flags &= word != "--"
        if are_flags and (flag := _FLAG.match(word)):  # no query or SQL that begins with dashes
            word = f"--{flag[1].replace('-', '_')}{word[flag.end() :]}"
        if words and words[-1] == "--layers" and _NEGATIVE.match(word):
            words[-1] += "=" + word
        else:
            words.append(word)
    return words


def as_words(name: str, value: Any) -> list[str]:
    """The words that give a flag its value; none for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no_{name}"]
    texts = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    is_whole = not isinstance(value, list | tuple) or (name in FLAGS and FLAGS[name].is_repeated)
    return [f"--{name}={text}" for text in (texts if is_whole else [joined_fields(texts)])]


def command_of(options: Options) -> list[str]:
    """The command that repeats a run: every option that differs from its default."""
    words = [installed_program(), options.command]
    for name in FLAGS:
        value = getattr(options, name)
        if value != DEFAULTS[name] and (name, value) != ("output_format", EXAMPLES):
            words += as_words(name, value)
    return [*words, *options.beam_args]
