"""Chooses which pieces of an input are read to estimate the whole, the same ones every time."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from bert_embed.transforms.parts import WHOLE_FILES, BlockSpec, InputFile, Slice

_PIECE, _ROWS = 16 << 10, 256  # bytes, or rows of Parquet, in a piece
_PIECES = 128  # of each kind of files; what is not larger is read as a whole


@dataclass(frozen=True)
class Piece:
    """What is read at one place, or at several that are in one file."""

    specs: tuple[BlockSpec, ...]  # how to read it: files one after the other
    size: int  # its share of the files of its kind, in their unit
    times: int = 1  # how many of the places that were chosen it stands for
    # The stored file of which only the beginning is read, as many pieces as `times` says, because
    # no reader can begin within it; None for what is read as a whole
    head: InputFile | None = None


@dataclass(frozen=True)
class Stratum:
    """The files of one kind, and the pieces of them to read."""

    size: int  # of all files: bytes as stored, or rows of Parquet
    pieces: list[Piece]  # each is chosen with a probability that is proportional to its size
    exact: bool  # whether the pieces are all there is
    records: int | None  # how many there are, if listing the files told that
    heads: bool = False  # whether some files are only read at their beginning


def strata_of(files: Sequence[InputFile]) -> list[Stratum]:
    """Divides files into kinds, each sampled for itself, evenly over bytes (of Parquet, rows)."""
    ordered = sorted(files, key=_kind)  # stable: in the listing's order
    return [_stratum(kind, list(of_kind)) for kind, of_kind in groupby(ordered, _kind)]


def _kind(file: InputFile) -> str:
    if file.footer is not None:
        return "rows"
    if file.format == WHOLE_FILES:
        return "files"
    return "through" if file.read_through else "bytes"


def _stratum(kind: str, files: list[InputFile]) -> Stratum:
    size, unit = sum(file.stop for file in files), _ROWS if kind == "rows" else _PIECE
    records = {"rows": size, "files": len(files)}.get(kind)
    if size <= unit * _PIECES:
        pieces = [Piece(_specs(file), file.stop) for file in files if file.stop]
        return Stratum(size, pieces, exact=True, records=records)
    pieces = list(_chosen(kind, files, size, unit))
    heads = any(piece.head for piece in pieces)
    return Stratum(size, pieces, exact=False, records=records, heads=heads)


def _specs(file: InputFile, start: int = 0, stop: int | None = None) -> tuple[BlockSpec, ...]:
    piece = Slice(0, file.info, start, file.stop if stop is None else stop)
    through = file.read_through
    return (
        BlockSpec(0, file.format, (piece,), file.compression, file.records, read_through=through),
    )


def _chosen(kind: str, files: list[InputFile], size: int, unit: int) -> Iterator[Piece]:
    starts = [0, *accumulate(file.stop for file in files)]
    heads: Counter[int] = Counter()
    for number in range(_PIECES):
        place = (2 * number + 1) * size // (2 * _PIECES)
        at = bisect_right(starts, place) - 1
        file = files[at]
        if file.stop <= unit:
            yield _run(files, at, unit)
        elif kind == "files":
            yield Piece(_specs(file), file.stop)
        elif kind == "through":
            heads[at] += 1
        else:  # a piece on a grid, so that pieces do not overlap
            start = (place - starts[at]) // unit * unit
            stop = min(start + unit, file.stop)
            yield Piece(_specs(file, start, stop), stop - start)
    for at, times in heads.items():
        yield Piece(_specs(files[at]), files[at].stop, times, files[at])


def _run(files: list[InputFile], at: int, unit: int) -> Piece:
    """A small file with those that follow it."""
    specs: tuple[BlockSpec, ...] = ()
    size = 0
    for file in files[at:]:
        if specs and size + file.stop > unit:
            break
        specs, size = specs + _specs(file), size + file.stop
    return Piece(specs, size)
