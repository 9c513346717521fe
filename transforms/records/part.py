"""Defines Part, which travels with the documents of a part, and UnknownWords, which it counts."""

from dataclasses import dataclass, field, replace

from bert_embed.transforms.output_folder import part_name
from bert_embed.transforms.records.rejected import Rejected


@dataclass(frozen=True)
class UnknownWords:
    """The words of a part that became [UNK]."""

    tokens: int = 0  # that were looked at
    unknown: int = 0  # of them, [UNK]
    continuing: int = 0  # of them, those that continue a word, as `##ding` does
    files: dict[str, tuple[int, int]] = field(default_factory=dict)  # worst files: [UNK] and tokens
    scripts: dict[str, int] = field(default_factory=dict)  # of a sample's [UNK]


@dataclass(frozen=True)
class Part:
    """A part of a block: what was read, what was rejected and the time spent so far."""

    block: int
    number: int  # in its block
    last: bool = True  # its reader has no further part
    records: int = 0  # counted before they are parsed
    covered: dict[int, int] = field(default_factory=dict)  # bytes, of Parquet rows, by file
    end_of_file: int | None = None  # at the end of a file read through: all records seen in it
    rejected: tuple[Rejected, ...] = ()  # so far
    unfit: dict[str, int] = field(default_factory=dict)  # values of extra columns that are null
    skipped: int = 0  # documents that an earlier output has
    seconds: dict[str, float] = field(default_factory=dict)  # wall time of each stage
    unknown: UnknownWords = field(default_factory=UnknownWords)  # in what was tokenized

    @property
    def name(self) -> str:
        """Its numbers, as the names of its files hold them."""
        return part_name(self.block, self.number)

    def then(self, stage: str, seconds: float, rejected: tuple[Rejected, ...] = ()) -> "Part":
        """The part after another stage: with its time and the records that it rejected."""
        return replace(
            self,
            rejected=self.rejected + rejected,
            seconds={**self.seconds, stage: self.seconds.get(stage, 0.0) + seconds},
        )
