"""Tells whether what a command writes would lie among the files of the run that it reads."""

import os

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.files import absolute, is_remote


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
