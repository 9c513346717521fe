"""Part: what travels with the documents of a part from room to room."""

from dataclasses import dataclass, field, replace

from transforms.block_spec import part_name
from transforms.dead_letter import Rejected


@dataclass(frozen=True)
class Part:
    """A piece of a block: what was read, refused and spent on the way so far.

    Attributes:
        block: Number of the block.
        number: Number of the part in its block.
        last: Whether its reader has no further part.
        records: Records read, counted as lines before anything looks into them.
        covered: Bytes of each file (by its number in the listing) that those records took; rows
            of a Parquet file.
        end_of_file: For a file that is read through, in the part that marks its end: the records
            that this reader saw in the whole file.
        rejected: Records that got no vector so far.
        skipped: Documents that an earlier output has.
        seconds: Wall seconds spent in each room so far.
        files: Files of the part that a room has written already, by name, to their bytes.
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
    files: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return part_name(self.block, self.number)

    def then(self, room: str, seconds: float, rejected: tuple[Rejected, ...] = ()) -> "Part":
        """The part after another room: with its time and what it refused."""
        return replace(
            self,
            rejected=self.rejected + rejected,
            seconds={**self.seconds, room: self.seconds.get(room, 0.0) + seconds},
        )
