"""Removes the messages of third-party errors, which may quote a text."""

import dis
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_PACKAGE = __name__.partition(".")[0]
_RAISE = dis.opmap["RAISE_VARARGS"]
# Errors of files and networks: they describe names and states, which users need to see.
_OUTSIDE = ("google.", "apache_beam.", "apitools.", "grpc.", "requests.", "urllib3.")


class RedactErrors:
    """Keeps the message of an error only if this program, or the client of a store, wrote it.

    Libraries' messages often quote a value, and runners log them. Of such an error only kind and
    place are kept, in a RuntimeError that names the step.
    """

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        if not has_own_words(error):
            raise RuntimeError(f"{self._step}: {described(error)}") from None
        causes = list(_causes(error))
        if not all(map(has_own_words, causes)):
            # A traceback would show the message of the cause.
            error.__cause__, error.__context__ = None, None
            error.__suppress_context__ = True


def has_own_words(error: BaseException) -> bool:
    """Whether this program, or a client of files and networks, wrote an error's message."""
    module = type(error).__module__ + "."
    if isinstance(error, (OSError, MemoryError)) or module.startswith(_OUTSIDE):
        return True
    if not isinstance(error, (ValueError, RuntimeError)) or module.startswith("pyarrow."):
        return False
    places = list(_places(error))
    # An error of C code ends in our frame, too, but only our own errors at a `raise`. The compiled
    # code says so: an image may have no sources.
    if not places or not _is_ours(places[-1]):
        return not places
    return places[-1].tb_frame.f_code.co_code[places[-1].tb_lasti] == _RAISE


def described(error: BaseException) -> str:
    """Kind and places of an error, without its message."""
    every = list(_places(error))
    ours = [place for place in every if _is_ours(place)]
    places = [
        f"{'/'.join(Path(place.tb_frame.f_code.co_filename).parts[-2:])}:{place.tb_lineno}"
        for place in (ours[-1:] + every[-1:])
    ]
    module = type(error).__module__
    name = type(error).__name__ if module == "builtins" else f"{module}.{type(error).__name__}"
    return f"{name} at {', '.join(dict.fromkeys(places))} (its message may hold a text: not shown)"


def _places(error: BaseException) -> Iterator[TracebackType]:
    place = error.__traceback__
    while place is not None:
        yield place
        place = place.tb_next


def _is_ours(place: TracebackType) -> bool:
    return str(place.tb_frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE


def _causes(error: BaseException) -> Iterator[BaseException]:
    while (following := error.__cause__ or error.__context__) is not None:
        yield following
        error = following
