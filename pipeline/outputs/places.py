"""Checks the output that a command reads, and that what it writes lies elsewhere."""

import os

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.results import read_run
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import absolute, is_remote


def complete_run(name: str, folder: str, advice: str | None = None) -> RunRecord:
    """The record of the complete run in a folder; else UsageError, perhaps with `advice`."""
    record = read_run(folder)
    if record is None:
        raise UsageError(f"{name} is not the output of a run: it holds no run.json")
    if not record.is_done:
        alternative = "" if advice is None else f", or {advice}"
        raise UsageError(
            f"{name}: the run is not complete (status {record.status}); run its command again"
            f"{alternative}"
        )
    return record


def check_outside(name: str, place: str, run: str) -> None:
    """Refuses a place in a run's output, links followed: readers take every file there."""
    if lies_in(place, run):
        raise UsageError(
            f"{name} {hide_secrets(place)} lies in the output itself; choose a folder outside it"
        )


def lies_in(place: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it, links followed."""
    return f"{_real(place)}/".startswith(f"{_real(folder)}/")


def _real(path: str) -> str:
    path = absolute(path)
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path).rstrip("/")
