"""Names the packages to install where one is missing that only some paths need."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from bert_embed.storage.errors import InputError


@contextmanager
def requires(what: str, *packages: str) -> Iterator[None]:
    """Has a failed import in its block say what needs which packages, and how to install them."""
    try:
        yield
    except ImportError as error:
        raise InputError(missing(what, *packages)) from error


def missing(what: str, *packages: str) -> str:
    """Returns the sentence for packages that are not installed, with the command for it."""
    which = "which is" if len(packages) == 1 else "which are"
    return (
        f"{what} requires {' and '.join(packages)}, {which} not installed here: "
        f"pip install {shlex.join(packages)}"
    )
