"""Defines Part, which travels with the documents of a part, and UnknownWords, which it counts."""

from dataclasses import dataclass, field, replace

from bert_embed.transforms.output_folder import OutputFile, part_name
from bert_embed.transforms.records.rejected import Rejected


@dataclass(frozen=True)
class UnknownWords:
    """The words of a part that became [UNK].

    Attributes:
        tokens: Tokens that were looked at.
        unknown: How many of them are [UNK].
        continuing: How many of them continue a word, as `##ding` does.
        files: For the files with most [UNK]: how many, and how many tokens.
        scripts: For a sample of the texts: how many [UNK] are words of each script.
    """

    tokens: int = 0
    unknown: int = 0
    continuing: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    scripts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part of a block: what was read, what was rejected and the time spent so far.

    Attributes:
        block: Number of the block.
        number: Number of the part in its block.
        last: Whether its reader has no further part.
        records: Records read, counted before they are parsed.
        covered: Bytes of each file (by its number in the listing) that those records are; rows of
            a Parquet file.
        end_of_file: For a file that is read through, in the part that marks its end: the records
            that this reader saw in the whole file.
        rejected: Records that got no vector so far.
        skipped: Documents that an earlier output has.
        seconds: Wall seconds spent in each stage so far.
        files: Files of the part that a stage has written already, by name.
        unknown: The words that the model's vocabulary lacks, in what was tokenized.
    """

    block: int
    number: int
    last: bool = True
    records: int = 0
    covered: dict[int, int] = field(default_factory=dict)
    end_of_file: int | None = None
    rejected: tuple[Rejected, ...] = ()
    skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    files: dict[str, OutputFile] = field(default_factory=dict)
    unknown: UnknownWords = field(default_factory=UnknownWords)

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
