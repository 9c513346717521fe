"""Runs `embed` with the parameters of a Flex Template; its image holds this file alone."""

import re
import sys
from collections.abc import Sequence
from typing import Any

from bert_embed.pipeline.cli import exit_code
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.command_line import read_options
from bert_embed.pipeline.options.embed import FLAGS, Options
from bert_embed.transforms.bigquery.client import looks_like_table

_DAY = re.compile(r"\{[^{}]*\}")


def template_options(words: Sequence[str]) -> Options:
    """The options for the words with which a launcher starts a template.

    Parameters that were left empty are dropped; those that are none of ours are Beam's flags.
    """
    values: dict[str, Any] = {}
    beam_args: list[str] = []
    config = None
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UsageError(f"{word} is not name=value, as a template's parameters must be")
        if equals and not value:
            continue
        if name == "config":
            config = value
        elif name not in FLAGS:
            beam_args.append(word)
        elif FLAGS[name].is_repeated:
            values[name] = [*values.get(name, ()), *_places(value)]
        else:  # the launcher's own switches have no value
            values[name] = value if equals else True
    return read_options(values, beam_args, config)


def _places(text: str) -> list[str]:
    """The places in a text with commas, which a file's name may hold, too.

    >>> _places("gs://b/x,gs://b/y,z,my-project.d.t")
    ['gs://b/x', 'gs://b/y,z', 'my-project.d.t']
    """
    first, *others = text.split(",")
    places = [first]
    for part in others:
        # A table may be named by its day.
        if part.startswith("gs://") or looks_like_table(_DAY.sub("1", part)):
            places.append(part)
        else:
            places[-1] += f",{part}"
    return places


def run_template() -> int:
    """Runs `embed` with the words with which a launcher starts this program."""
    options = template_options(sys.argv[1:])
    from bert_embed.pipeline.embedding import start  # imports Beam

    return start(options)


if __name__ == "__main__":
    sys.exit(exit_code("embed", run_template))
