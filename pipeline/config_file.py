"""Reads the options in a YAML file, and puts them below those of a command line."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_embed.pipeline.beam_words import beam_words, check_beam_words
from bert_embed.pipeline.errors import flag_message
from bert_embed.pipeline.flags import one_text
from bert_embed.pipeline.options import FLAGS, Options
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.storage.files import read_bytes

_FLAGS_OF_EMBED = tuple(f"--{name}" for name in FLAGS)


def read_options(
    values: Mapping[str, Any],
    words: Sequence[str],
    config: Any = None,
    flags: Sequence[str] = _FLAGS_OF_EMBED,
    program: str = "bert-embed embed",
    needed: Sequence[str] = ("input", "output"),
    **fixed: Any,
) -> Options:
    """The options of a command line, a call or a template, above those of a YAML file.

    `values` are of our options, `words` of Beam; `flags` and `program` are for the messages about
    mistyped flags; `fixed` are options that the command itself sets. InputError if a needed option
    is missing, or any is unknown or wrong.
    """
    path = None if config is None else one_text("config", config)
    below, file_words = ({}, []) if path is None else _read_config(path, flags)
    job = RunnerOptions(one_text("runner", (below | dict(values)).get("runner", DEFAULT_RUNNER)))
    if path is not None:
        try:
            check_beam_words(file_words, flags, job, program)
        except InputError as error:
            if file_words or "runner" not in values:
                raise SettingError("config", f"{path}: {flag_message(error)}") from error
            raise
    check_beam_words(words, flags, job, program)
    try:
        every = below | {name: FLAGS[name].kind(name, value) for name, value in values.items()}
        options = Options(**every | fixed, beam_args=(*file_words, *words))
    except SettingError as error:
        if error.setting in below and error.setting not in values:
            raise SettingError("config", f"{path}: {error}") from error
        raise
    options.require(*needed)
    return options


def _read_config(path: str, flags: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of our options in a YAML file, and the flags of Beam in it as words."""
    try:
        data = read_bytes(path)
        if data is None:
            raise FileNotFoundError(f"{path} is not there")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("config", f"{path} cannot be read: {error}") from error
    values: dict[str, Any] = {}
    words: list[str] = []
    for key, value in _settings(path, text).items():
        name = str(key)
        try:
            if name in FLAGS and f"--{name}" in flags:
                if value is not None:
                    values[name] = FLAGS[name].kind(name, value)
            else:
                words += beam_words(name, value)
        except SettingError as error:
            raise SettingError("config", f"{path}: {error}") from error
    return values, words


def _settings(path: str, text: str) -> dict[str, Any]:
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
