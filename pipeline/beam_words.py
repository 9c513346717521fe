"""Finds the flags that neither this program nor Beam has, and the one that may be meant."""

import argparse
import difflib
import logging
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import items_of, one_text
from bert_embed.pipeline.options import FLAGS
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.storage.errors import SettingError

_OF_COMMANDS = ("h", "help", "text", "version")  # what they print is for people
_TYPO = 0.8  # no flag of Beam, of Flink or of Spark is so similar to one of ours
_TYPO_OF_BEAM = 0.92  # --spark_master, of Spark's job server, is similar to --spark_master_url
_logger = logging.getLogger(__name__)
# What other tools call some of our flags.
_OTHER_NAMES = {
    "--batch_size": "--batch_tokens",
    "--bert_config_file": "--model",
    "--cuda": "--device",
    "--format": "--output_format",
    "--fp16": "--precision",
    "--init_checkpoint": "--model",
    "--input_file": "--input",
    "--max_length": "--max_seq_length",
    "--model_name_or_path": "--model",
    "--normalize_embeddings": "--normalize",
    "--num_worker": "--threads",
    "--output_file": "--output",
    "--pooling_strategy": "--pooling",
    "--top_k": "--k",
    "--truncate_dim": "--dim",
    "--use_gpu": "--device",
    "--vocab_file": "--model",
}


class UnknownFlags(UsageError):
    """Flags do not exist; `flags` has each with the one that may be meant, or None."""

    def __init__(self, flags: Sequence[tuple[str, str | None]], program: str) -> None:
        hints = [
            (name, f"did you mean {nearest}?" if nearest else f"see {program} --help")
            for name, nearest in flags
        ]
        if len(hints) == 1:
            message = f"unknown flag {hints[0][0]}; {hints[0][1]}"
        else:
            shown = ", ".join(f"{name} ({hint})" for name, hint in hints)
            message = f"unknown flags: {shown}"
        super().__init__(message)
        self.flags = tuple(flags)


def nearest_flag(word: str, flags: Sequence[str], only_typos: bool = False) -> str | None:
    """The flag that a wrong one stands for, or else the one that is most like it."""
    word = f"--{word.lstrip('-')}"
    if (known := _OTHER_NAMES.get(word)) in flags:
        return known
    similar = difflib.get_close_matches(word, flags, 1, _TYPO)
    if not similar and not only_typos:
        similar = sorted((flag for flag in flags if flag.startswith(word)), key=len)
        similar = similar or difflib.get_close_matches(word, flags, 1)
    return similar[0] if similar else None


def check_beam_words(
    words: Sequence[str],
    flags: Sequence[str],
    job: RunnerOptions,
    program: str,
    alone: str = "repeat --input for each file, or put a glob in quotes",
) -> None:
    """Refuses words that are no flags of Beam, and a runner that it does not have.

    `flags` are our own, one of which may be meant; `program` lists them; `alone` says what to do
    about a word that is no flag. InputError names what is wrong.
    """
    if words:
        _check_words(words, flags, job, program, alone)
    if job.runner == DEFAULT_RUNNER:
        return
    from apache_beam.runners.runner import create_runner

    try:
        create_runner(job.runner)
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingError("runner", f"{job.runner} is not available: {error}") from error


def _check_words(
    words: Sequence[str], flags: Sequence[str], job: RunnerOptions, program: str, alone: str
) -> None:
    typos = [(name, nearest_flag(name, flags, only_typos=True)) for name in _names(words)]
    if mistyped := [(name, nearest) for name, nearest in typos if nearest and name != nearest]:
        raise UnknownFlags(mistyped, program)  # so nobody waits for the import of Beam
    beam_parser = _beam_parser()
    _, unknown = beam_parser.parse_known_args(list(words))
    if not unknown:
        return
    of_beam = list(beam_parser._option_string_actions)
    if job.is_portable:
        _check_foreign(unknown, of_beam, job, program, alone)
        return
    if not unknown[0].startswith("-"):
        raise UsageError(f"{unknown[0]} stands alone: {alone}")
    every = [*flags, *of_beam]
    raise UnknownFlags([(name, nearest_flag(name, every)) for name in _names(unknown)], program)


def _check_foreign(
    unknown: Sequence[str], of_beam: Sequence[str], job: RunnerOptions, program: str, alone: str
) -> None:
    """Refuses what no job server can mean; its own flags, which only it knows, are passed on."""
    names, of_embed = _names(unknown), [f"--{name}" for name in FLAGS]
    mistyped: list[tuple[str, str | None]] = []
    for name in names:
        if nearest := difflib.get_close_matches(name, of_beam, 1, _TYPO_OF_BEAM):
            mistyped.append((name, nearest[0]))
        elif nearest_flag(name, of_embed, only_typos=True):  # this command does not have it
            mistyped.append((name, None))
    if mistyped:
        raise UnknownFlags(mistyped, program)
    for word, before in zip(unknown, ("", *unknown), strict=False):
        if not word.startswith("-") and not (before.startswith("--") and "=" not in before):
            raise UsageError(f"{word} stands alone: {alone}")
    for name in names:
        _logger.warning(
            "%s is no flag of this program and none that Beam knows here; the job server of %s "
            "gets it as it is",
            name,
            job.runner,
        )


def _names(words: Iterable[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("-")]


class _BeamParser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _beam_parser() -> argparse.ArgumentParser:
    """The parser of all of Beam's own flags."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = _BeamParser(add_help=False, conflict_handler="resolve", allow_abbrev=False)
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
    if value is None:
        return []
    if value is False and _is_beam_switch(name):
        return []  # Beam's switches have no --no_ form: without the flag they are off
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no_{name}"]
    items = items_of(value)
    words = [one_text(name, item) for item in ([value] if items is None else items)]
    return [f"--{name}={','.join(words)}"]


def _is_beam_switch(name: str) -> bool:
    flags = _beam_parser()._option_string_actions
    flag = flags.get(f"--{name}")
    return flag is not None and flag.nargs == 0 and f"--no_{name}" not in flags
