"""Discreet: what a room raises, without the words of others in which a text may stand."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_HOME = Path(__file__).resolve().parents[1]
_FLOORS = tuple(str(_HOME / floor) + "/" for floor in ("bert", "transforms", "pipeline"))
# Of files and networks: they tell of names and states, and what is to be done depends on them.
_OUTSIDE = ("google.", "apache_beam.", "apitools.", "grpc.", "requests.", "urllib3.")


class Discreet:
    """Within it, an error keeps its sentence only if this program, or a storage's client, wrote it.

    What a library says of a value, it often says with the value: "could not convert '…'". Runners
    log the errors of a step, and pass them on, on other machines too, where nobody filters them. Of
    such an error kind and place are kept.

    Args:
        room: The step, for the message.

    Raises:
        RuntimeError: In the place of an error whose words may hold a text.
    """

    def __init__(self, room: str) -> None:
        self._room = room

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception):
            return
        if not has_own_words(error):
            raise RuntimeError(f"{self._room}: {described(error)}") from None
        causes = list(_causes(error))
        if not all(map(has_own_words, causes)):
            # A traceback would show the cause's words below ours.
            error.__cause__, error.__context__ = None, None
            error.__suppress_context__ = True


def has_own_words(error: BaseException) -> bool:
    """Whether this program wrote an error's message, or one that speaks of files and networks."""
    module = type(error).__module__ + "."
    if isinstance(error, (OSError, MemoryError)) or module.startswith(_OUTSIDE):
        return True
    if not isinstance(error, (ValueError, RuntimeError)) or module.startswith("pyarrow."):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    # What C code raises ends in our frame, too; but the line that says "raise" is ours alone.
    return not frames or (frames[-1].filename.startswith(_FLOORS) and _raises(frames[-1]))


def _raises(frame: traceback.FrameSummary) -> bool:
    return (frame.line or "").startswith("raise ")


def described(error: BaseException) -> str:
    """Kind and places of an error, without its words.

    >>> try:
    ...     int("a text")
    ... except ValueError as error:
    ...     described(error).split(" at ")[0]
    'ValueError'
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_FLOORS)]
    places = [f"{_short(frame)}:{frame.lineno}" for frame in (ours[-1:] + frames[-1:])]
    module = type(error).__module__
    name = type(error).__name__ if module == "builtins" else f"{module}.{type(error).__name__}"
    return f"{name} at {', '.join(dict.fromkeys(places))} (its message may hold a text: not shown)"


def _short(frame: traceback.FrameSummary) -> str:
    return "/".join(Path(frame.filename).parts[-2:])


def _causes(error: BaseException) -> Iterator[BaseException]:
    while (following := error.__cause__ or error.__context__) is not None:
        yield following
        error = following
