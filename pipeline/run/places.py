"""Finds the run that a command reads, and keeps what the command writes apart from it."""

import os
from collections.abc import Mapping
from typing import Any

from bert_embed.bundle.bundle import Bundle
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import UsageError
from bert_embed.results.names import RUN_FILE
from bert_embed.results.read import read_run
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import absolute, is_remote


def record_of_run(named: str, advice: str | None = "") -> RunRecord:
    """The record of a run's output, as the command line names it; UsageError if there is none.

    The run must be complete, or the message ends with advice; None takes any.
    """
    record = read_run(absolute(named))
    if record is None:
        raise UsageError(f"{named} is not the output of a run: it holds no {RUN_FILE}")
    if advice is not None and not record.is_done:
        raise UsageError(
            f"{named}: the run is not complete (status {record.status}); run its command again"
            f"{advice}"
        )
    return record


def check_model(bundle: Bundle, settings: Mapping[str, Any], place: str) -> None:
    """Refuses a model that did not compute the vectors in a place, by their settings."""
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors in "
            f"{place} come from {settings['model']} ({settings['model_source']})"
        )


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
