"""Removes the messages of third-party errors, which may quote a text."""

import traceback
from collections.abc import Iterator
from pathlib import Path

import bert_embed

_PACKAGE = str(Path(bert_embed.__file__).parent) + "/"
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
    frames = traceback.extract_tb(error.__traceback__)
    # An error of C code ends in our frame, too, but only our own errors at a line with "raise".
    if not frames:
        return True
    is_ours = frames[-1].filename.startswith(_PACKAGE)
    return is_ours and (frames[-1].line or "").startswith("raise ")


def described(error: BaseException) -> str:
    """Kind and places of an error, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    places = [
        f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}"
        for frame in (ours[-1:] + frames[-1:])
    ]
    module = type(error).__module__
    name = type(error).__name__ if module == "builtins" else f"{module}.{type(error).__name__}"
    return f"{name} at {', '.join(dict.fromkeys(places))} (its message may hold a text: not shown)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    while (following := error.__cause__ or error.__context__) is not None:
        yield following
        error = following
