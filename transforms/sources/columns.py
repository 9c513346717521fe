"""Columns: which fields of a record are its text, its id and the like, and which pass through."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Columns:
    """Where the fields of a record stand.

    Attributes:
        text: Name of the text's field; its value is a string, or a list of words.
        id: Name of the id's field; None: a record's place in its file is its id.
        text_b: Name of the second text's field; None: there is none.
        spans: Names of the fields with the starts and the stops of spans, in code points of the
            text, or in words where the text is a list of these: a whole number each, or a list of
            them each; None: no spans are asked for.
        pair_separator: What stands between the two texts of a line of plain text; None: a line is
            one text.
        extra: Names and types of the fields that are passed through to the output; None: none.
    """

    text: str = "text"
    id: str | None = None
    text_b: str | None = None
    spans: tuple[str, str] | None = None
    pair_separator: str | None = None
    extra: pa.Schema | None = None

    def __post_init__(self) -> None:
        if self.pair_separator == "":
            raise ValueError("--pair_separator must not be empty")

    @property
    def has_pairs(self) -> bool:
        """Whether a document may have a second text."""
        return self.text_b is not None or self.pair_separator is not None

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The flag and the name of every field that each record should have."""
        wanted = [
            ("text_column", self.text),
            ("id_column", self.id),
            ("text_b_column", self.text_b),
        ]
        wanted += [("span_columns", name) for name in self.spans or ()]
        wanted += [("extra_columns", name) for name in (self.extra.names if self.extra else ())]
        return [(flag, name) for flag, name in wanted if name is not None]
