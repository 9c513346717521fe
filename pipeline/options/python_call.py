"""Reads the keyword arguments of `bert_embed.embed` to Options."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypedDict

from bert_embed.base.errors import InputError, SettingError, StorageError, error_text, is_passing
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import NoAnswer, UsageError
from bert_embed.pipeline.options.command_line import UnknownFlag, beam_words, read_options
from bert_embed.pipeline.options.commands import CompareOptions, ExportOptions, SearchOptions
from bert_embed.pipeline.options.embed import FLAGS, Options
from bert_embed.pipeline.options.flags import flags_of, items_of, one_text

Path: TypeAlias = str | os.PathLike[str]

_OF_OTHERS = map(flags_of, (CompareOptions, ExportOptions, SearchOptions))
_OUR_FLAG = re.compile(rf"--(no_)?({'|'.join({*FLAGS}.union(*_OF_OTHERS))})\b")
_PATTERN = re.compile(r"://|[*?[]|\{(?:today|yesterday|date:)")  # of files, if a text has blanks
_IN_MEMORY = "for texts in memory use bert_embed.load().encode"


class EmbedKeywords(TypedDict, total=False):
    """The options of `bert_embed.embed` beside input and output; None leaves one out.

    `docs/options.md` says what they mean.

    Attributes:
        beam_args: Flags of Beam, as on a command line: `["--direct_num_workers=2"]`.
        config: A YAML file with any of these options; what the call gives wins.
    """

    # `python -m docs.options_page` writes these.
    query: str | None
    today: str | None
    input_format: str | None
    text_column: str | Sequence[str] | None
    text_b_column: str | None
    extra_columns: str | Sequence[str] | None
    id_column: str | None
    csv_quoting: str | None
    csv_separator: str | None
    csv_header: str | Sequence[str] | None
    limit: int | None
    overwrite: bool | None
    max_rejected: str | int | None
    skip_blocks: int | Sequence[int] | None
    block_bytes: int | None
    output_format: str | None
    output_table: str | None
    write_disposition: str | None
    output_dtype: str | None
    skip_existing: Path | Sequence[Path] | None
    max_deleted: str | int | None
    keep_text: bool | None
    report: bool | str | None
    model: Path | None
    granularity: str | Sequence[str] | None
    vectors: str | Sequence[str] | None
    top_k: int | None
    layers: int | Sequence[int] | None
    layer_combine: str | None
    pooling: str | Sequence[str] | None
    max_seq_length: int | None
    long_text: str | None
    overlap: int | None
    chunk: str | None
    chunk_context: str | Sequence[str] | None
    prompt: str | None
    dim: int | None
    normalize: bool | None
    precision: str | None
    device: str | None
    engine: str | None
    batch_tokens: int | None
    threads: int | None
    runner: str | None
    accelerator: str | None
    dry_run: bool | None
    # Not flags of `embed`.
    beam_args: Sequence[str] | None
    config: Path | None


def options_of_call(values: Mapping[str, Any]) -> Options:
    """The options that keyword arguments stand for; others than ours are Beam's flags."""
    ours: dict[str, Any] = {}
    words: list[str] = []
    for name, value in values.items():
        if value is None or name == "config":
            continue
        if name == "beam_args":
            words += _beam_args(value)
        elif name in FLAGS:
            ours[name] = value
        else:
            words += beam_words(name, value)
    if "input" in ours:
        ours["input"] = _files(ours["input"])
    try:
        return read_options(Options, "embed", ours, words, values.get("config"))
    except UnknownFlag as error:  # as Python spells it
        hint = f"; did you mean {error.nearest}?" if error.nearest else ""
        raise UsageError(f"unknown flag {error.name}{hint}".replace("--", "")) from None


def _beam_args(value: Any) -> list[str]:
    items = items_of(value)
    if items is None:
        raise SettingError("beam_args", 'must be a list of words, such as ["--num_workers=2"]')
    words = [one_text("beam_args", item) for item in items]
    for word in words:
        name = word.partition("=")[0].removeprefix("--")
        if word.startswith("--") and name in FLAGS:
            raise SettingError("beam_args", f"names {name}, which is an argument of its own", name)
    return words


def _files(value: Any) -> Any:
    """A file, or a list of them; refuses texts in their place by number: no message has a text."""
    items = items_of(value)
    if items is None and not isinstance(value, str | os.PathLike):
        kind = type(value).__name__
        raise SettingError("input", f"must be a text or a number, got a {kind}; {_IN_MEMORY}")
    for number, item in enumerate(items or [value]):
        words = isinstance(item, str) and len(item.split()) > 1 and not _PATTERN.search(item)
        if words and not os.path.exists(os.path.expanduser(item)):
            raise SettingError("input", f"number {number} names no file; {_IN_MEMORY}")
    return value if items is None else items


def outputs_given(name: str, value: Any) -> tuple[str, ...]:
    """The outputs that an argument names: one, or a list of them; never arrays of vectors."""
    items = [value] if isinstance(value, str | os.PathLike) else items_of(value)
    for item in [value] if items is None else items:
        if not isinstance(item, str | os.PathLike):
            hint = "vectors in memory are compared by similarity of an encoder"
            kind = type(item).__name__
            raise SettingError(name, f"must name outputs of runs, got a {kind}; {hint}")
    if not items:
        raise SettingError(name, "must name an output, got none")
    return tuple(map(os.fspath, items))


@contextmanager
def named_as_in_python() -> Iterator[None]:
    """Spells our options in an InputError as keyword arguments, and hides secrets in it."""
    try:
        yield
    except SettingError as error:
        problem = hide_secrets(str(error)).removeprefix(f"{error.setting} ")
        raise SettingError(error.setting, problem, *error.settings[1:]) from None
    except (InputError, NoAnswer) as error:
        kind = NoAnswer if isinstance(error, NoAnswer) else UsageError
        raise kind(hide_secrets(without_dashes(str(error)))) from None
    except OSError as error:  # of a file that cannot be read or written
        passing = StorageError if is_passing(error) else UsageError
        raise passing(hide_secrets(error_text(error))) from error


def without_dashes(message: str) -> str:
    """Returns a message on a file, a model or a job with our options spelled as in Python.

    >>> without_dashes("--input x names no file, give --machine_type")
    'input x names no file, give --machine_type'
    """
    return _OUR_FLAG.sub(r"\1\2", message)
