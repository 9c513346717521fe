"""Writes counts in messages; it is in the lowest package because messages of all of them count."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun; `many` is `one` with an "s" where it is not given."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def counted_of(number: int, total: int, noun: str, one: str, many: str) -> str:
    """Returns a number of a total with its noun and the verb: "1 of 2 parts is"."""
    return f"{number:,} of {counted(total, noun)} {one if number == 1 else many}"
