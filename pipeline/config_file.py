"""Reads the options in a YAML file, and puts them below those of a command line."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_embed.pipeline.beam_words import beam_words, check_beam_words
from bert_embed.pipeline.errors import flag_message
from bert_embed.pipeline.flags import one_text
from bert_embed.pipeline.options import FLAGS, Options
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.storage.files import read_bytes


@dataclass(frozen=True)
class Config:
    """What a YAML file sets: the values of our options, and the flags of Beam as words."""

    path: str
    values: dict[str, Any]
    words: tuple[str, ...]


def read_config(path: str, flags: Collection[str]) -> Config:
    """Reads a YAML file of options, and of flags of Beam; `flags` are those of the command."""
    try:
        data = read_bytes(path)
        if data is None:
            raise FileNotFoundError(f"{path} is not there")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("config", f"{path} cannot be read: {error}") from error
    values: dict[str, Any] = {}
    words: list[str] = []
    for key, value in parse_config(path, text).items():
        name = str(key)
        try:
            if name in FLAGS and f"--{name}" in flags:
                if value is not None:
                    values[name] = FLAGS[name].kind(name, value)
            else:
                _check_name(name)
                words += beam_words(name, value)
        except SettingError as error:
            raise SettingError("config", f"{path}: {error}") from error
    return Config(path, values, tuple(words))


def _check_name(name: str) -> None:
    if name == "text":
        raise SettingError(name, "is for the command line")
    switch = name.removeprefix("no_")
    if name != switch and switch in FLAGS:
        raise SettingError(name, f"is no option, write {switch}: false")


def combined(
    values: Mapping[str, Any],
    config: Config | None,
    words: Sequence[str],
    flags: Sequence[str],
    program: str,
    fixed: Mapping[str, Any] | None = None,
) -> Options:
    """The options of a command line, or of a call, above those of a file.

    `values` are of our options, `words` of Beam; `flags` and `program` are for the messages about
    mistyped flags; `fixed` are options that the command itself sets.
    """
    below = {} if config is None else config.values
    job = RunnerOptions(one_text("runner", (below | dict(values)).get("runner", DEFAULT_RUNNER)))
    if config is not None:
        try:
            check_beam_words(config.words, flags, job, program)
        except InputError as error:
            if config.words or "runner" not in values:
                raise SettingError("config", f"{config.path}: {flag_message(error)}") from error
            raise
    check_beam_words(words, flags, job, program)
    try:
        every = below | {name: FLAGS[name].kind(name, value) for name, value in values.items()}
        return Options(
            **(every | dict(fixed or {})), beam_args=(*(config.words if config else ()), *words)
        )
    except SettingError as error:
        if config is not None and error.setting in below and error.setting not in values:
            raise SettingError("config", f"{config.path}: {error}") from error
        raise


def parse_config(path: str, text: str) -> dict[str, Any]:
    """The flags in a YAML file; SettingError if it is not such a file."""
    import yaml

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        names = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
        settings = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError) as error:  # such as 2026-02-30
        raise SettingError(
            "config", f"{path} is not YAML: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(settings, dict) or "config" in settings:
        raise SettingError("config", f"{path} must hold flags, one `name: value` a line")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingError("config", f"{path} names {twice} twice; give several values as a list")
    return settings
