"""Runs `embed` with the parameters of a Flex Template; its image holds this file alone."""

import datetime
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bert_embed.pipeline.cli import exit_code
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.command_line import read_options
from bert_embed.pipeline.options.embed import FLAGS, Options
from bert_embed.pipeline.options.flags import Whole, looks_like_table
from bert_embed.results.run_record import read_record
from bert_embed.storage.files import list_files
from bert_embed.transforms.bigquery.client import bigquery_client, get_table, table_name

_DAY = re.compile(r"\{[^{}]*\}")
_CATCH_UP = Whole(1, 3660)  # days


def template_options(words: Sequence[str]) -> Options:
    """The options for the words with which a launcher starts a template.

    Parameters that were left empty are dropped; those that are none of ours are Beam's flags.
    """
    return _options_and_days(words)[0]


def _options_and_days(words: Sequence[str]) -> tuple[Options, int]:
    values: dict[str, Any] = {}
    beam_args: list[str] = []
    config, days = None, 1
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UsageError(f"{word} is not name=value, as a template's parameters must be")
        if equals and not value:
            continue
        if name == "config":
            config = value
        elif name == "catch_up_days":
            days = _CATCH_UP(name, value)
        elif name not in FLAGS:
            beam_args.append(word)
        elif FLAGS[name].is_repeated:
            values[name] = [*values.get(name, ()), *_places(value)]
        else:  # the launcher's own switches have no value
            values[name] = value if equals else True
    return read_options(Options, "embed", values, beam_args, config), days


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


def oldest_due(options: Options, days: int, now: datetime.datetime) -> Options:
    """The options for the oldest of some days that is due, up to the day of the launch itself.

    A day before it is due if it has an input and no complete run: its job failed, or was refused
    because the one before still ran. UsageError if all days would have one output.
    """
    from bert_embed.pipeline.run.prepare import day_of, with_dates  # imports Beam
    from bert_embed.pipeline.runners.beam import configure_storage

    today = day_of(options.today, now)
    of_days = [
        with_dates(replace(options, today=str(today - datetime.timedelta(days=back))))
        for back in range(days)
    ]
    if len({one.output for one in of_days}) < days:
        raise UsageError(
            f"catch_up_days {days} requires a day in output, such as {{yesterday}}, got "
            f"{options.output}"
        )
    configure_storage(options.job)
    return next(filter(_is_due, reversed(of_days[1:])), of_days[0])


def _is_due(options: Options) -> bool:
    record, is_there = read_record(options.output), _is_table if options.reads_table else list_files
    return not (record and record.is_done) and all(map(is_there, options.input))


def _is_table(place: str) -> bool:
    table = table_name(place, "input")
    with bigquery_client(table.project) as client:
        return get_table(client, table) is not None


def run_template(words: Sequence[str], now: datetime.datetime) -> int:
    """Runs `embed` with the words with which a launcher starts this program."""
    options, days = _options_and_days(words)
    from bert_embed.pipeline.job import start  # imports Beam

    return start(oldest_due(options, days, now))


if __name__ == "__main__":
    at = datetime.datetime.now(datetime.UTC)
    sys.exit(exit_code("embed", lambda: run_template(sys.argv[1:], at)))
