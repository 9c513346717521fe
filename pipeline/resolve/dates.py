"""Puts the day of a run into its places, for schedulers that always send the same request."""

import datetime
import os
import re
from dataclasses import replace
from typing import Any

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options

_PLACES = ("input", "query", "output", "output_table", "skip_existing")
_PATHS = ("input", "output", "skip_existing")
_WORD = re.compile(r"\{([A-Za-z_]+)(?::[^{}]*)?\}[^/]*")
_DAY = re.compile(r"\{(today|yesterday|date)(?::([^{}]*))?\}")


def with_dates(options: Options, now: datetime.datetime | None = None) -> Options:
    """Replaces `{today}`, `{yesterday}` and `{date:FORMAT}` in places by days of UTC at `now`.

    `{today}` becomes `2026-11-22`, `{date:%Y/%m/%d}` is today as `datetime.strftime` writes it,
    `{yesterday:%Y%m%d}` the day before likewise. UsageError for another word in braces, unless a
    local file or folder has that name.
    """
    today = (now or datetime.datetime.now(datetime.UTC)).date()
    changed = {name: _dated(name, getattr(options, name), today) for name in _PLACES}
    return replace(options, **changed)


def _dated(name: str, value: Any, today: datetime.date) -> Any:
    if isinstance(value, tuple):
        return tuple(_dated(name, place, today) for place in value)

    for match in _WORD.finditer(value or "") if name in _PATHS else ():
        if not _DAY.match(match[0]) and not os.path.exists(value[: match.end()]):
            raise UsageError(
                f"--{name} {value}: {{{match[1]}}} is none of {{yesterday}}, {{today}}, "
                "{date:FORMAT}"
            )

    def day(match: re.Match[str]) -> str:
        which, form = match.groups()
        if which == "date" and not form:
            raise UsageError(f"--{name} {value}: give {{date}} a format, such as {{date:%Y/%m/%d}}")
        return (today - datetime.timedelta(days=which == "yesterday")).strftime(form or "%Y-%m-%d")

    return value and _DAY.sub(day, value)
