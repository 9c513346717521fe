"""Describes the flags of `embed` and `tokenize`: what EmbedOptions says of each of its fields."""

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

_MOST = (1 << 63) - 1  # what run.json can hold


@dataclass(frozen=True)
class Checked:
    """Turns the text of a flag into its value.

    Attributes:
        pattern: What the whole text must match.
        wanted: The same in words, for the message.
        convert: Makes the value of a text that matches.
    """

    pattern: str
    wanted: str
    convert: Callable[[str], Any] = str

    def __call__(self, text: str) -> Any:
        """The value; ArgumentTypeError if the text does not match."""
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise argparse.ArgumentTypeError(f"must be {self.wanted}, got {text!r}")
        return self.convert(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _whole(text: str) -> int:
    if (number := int(text)) > _MOST:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST:,}, got {text!r}")
    return number


def _share(text: str) -> str:
    if text.endswith("%") and float(text[:-1]) > 100:
        raise argparse.ArgumentTypeError(f"must be at most 100%, got {text!r}")
    return text


POSITIVE = Checked("0*[1-9][0-9]*", "a whole number of at least 1", _whole)
AT_LEAST_ZERO = Checked("[0-9]+", "a whole number, 0 or more", _whole)
LAYERS = Checked(r"-?\d+(,-?\d+)*", "numbers with commas, such as -1,-2", _numbers)
BLOCKS = Checked(
    r"\d+(,\d+)*", "block numbers with commas", lambda text: tuple(sorted(set(_numbers(text))))
)
SHARE = Checked(r"\d+|\d+(\.\d+)?%", "a number or a share such as 1%", _share)

# What other tools call some of our flags.
OTHER_NAMES = {
    "--batch_size": "--batch_tokens",
    "--bert_config_file": "--model",
    "--column": "--text_column",
    "--cuda": "--device",
    "--fp16": "--precision",
    "--format": "--output_format",
    "--init_checkpoint": "--model",
    "--input_file": "--input",
    "--keep_columns": "--extra_columns",
    "--level": "--granularity",
    "--max_len": "--max_seq_length",
    "--max_length": "--max_seq_length",
    "--max_seq_len": "--max_seq_length",
    "--metadata_columns": "--extra_columns",
    "--model_dir": "--model",
    "--model_name": "--model",
    "--model_name_or_path": "--model",
    "--normalize_embeddings": "--normalize",
    "--num_worker": "--threads",
    "--output_file": "--output",
    "--output_value": "--granularity",
    "--num_results": "--k",
    "--pooling_layer": "--layers",
    "--pooling_strategy": "--pooling",
    "--text_field": "--text_column",
    "--top_k": "--k",
    "--truncate_dim": "--dim",
    "--use_gpu": "--device",
    "--vectors": "--granularity",
    "--vocab_file": "--model",
}


def names(text: str) -> tuple[str, ...]:
    """The names in a text, which commas separate."""
    return tuple(name.strip() for name in text.split(","))


LISTS = (names, LAYERS, BLOCKS)  # kinds that are several values already


@dataclass(frozen=True)
class Flag:
    """What the command line says of one field of EmbedOptions.

    Attributes:
        group: Its group in `--help`; None for those that every command has.
        help: Its help, with the default where that depends on the input or model.
        metavar: What stands for the value in `--help`.
        type: Turns the text of the value into the value.
        choices: The values that are allowed; None for any.
        repeated: Whether it may be given several times.
        switch: Whether it is `--name` or `--no_name`, which need no value.
        embed_only: Whether `tokenize` does not take it.
    """

    group: str | None
    help: str
    metavar: str | None = None
    type: Callable[[str], Any] = str
    choices: Iterable[str] | None = None
    repeated: bool = False
    switch: bool = False
    embed_only: bool = False


def flag(
    group: str | None, text: str, metavar: str | None = None, default: Any = None, **more: Any
) -> Any:
    """A field of EmbedOptions with its flag."""
    return field(default=default, metadata={"flag": Flag(group, text, metavar, **more)})


def switch(group: str | None, text: str, default: bool | None = None, **more: Any) -> Any:
    """A field whose flag is a switch."""
    return flag(group, text, default=default, switch=True, **more)


embed_flag, embed_switch = partial(flag, embed_only=True), partial(switch, embed_only=True)
