"""Writes counts in messages; it is in the lowest package because messages of all of them count."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun; `many` is `one` with an "s" where it is not given.

    >>> counted(1, "file"), counted(2000, "file"), counted(0, "text is", "texts are")
    ('1 file', '2,000 files', '0 texts are')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def counted_of(number: int, total: int, noun: str, one: str, many: str) -> str:
    """Returns a number of a total with its noun and the verb.

    >>> counted_of(1, 2, "part", "is", "are"), counted_of(0, 1, "part", "is", "are")
    ('1 of 2 parts is', '0 of 1 part are')
    """
    return f"{number:,} of {counted(total, noun)} {one if number == 1 else many}"
