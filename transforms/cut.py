"""Cuts files into blocks, the same way every time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from bert_embed.transforms.parts import WHOLE_FILES, BlockSpec, Footer, InputFile, Slice

_KIB, _MIB = 1 << 10, 1 << 20
# Much larger blocks spend time on fresh memory, much smaller ones on padding.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 256 * _KIB, _MIB
_BLOCKS_WANTED = 64
_FEW_FILES = 32  # that are read through; more keep many workers busy with a file each
# The number of tiny files in a block is limited, too, so that there are blocks for many workers; a
# block of a few dozen takes about as long to finish as to compute.
_FEWEST_FILES, _MOST_FILES = 64, 10_000
_MOST_CUTS = 16  # of a row group: each begins to read at the group's first row


def default_block_bytes(total: int) -> int:
    """Bytes of text in a block: about 64 blocks a run, between two limits."""
    return min(max(total // _BLOCKS_WANTED, _SMALLEST_BLOCK), _LARGEST_BLOCK)


def plan_blocks(files: Sequence[InputFile], block_bytes: int) -> Iterator[BlockSpec]:
    """Cuts the files into blocks, in their order, from sizes alone.

    A large file gives blocks of `block_bytes`. Neighbouring small files of one format share a
    block, at most `files_of_a_block`. A compressed file is one block, and so is a large CSV file;
    if there are few of these, the parts of each are spread over workers. A Parquet file's footer
    says where rows are. A file that is one document is never cut.
    """
    read_through = [file for file in files if file.read_through]
    few = sum(_stands_alone(file, block_bytes) for file in read_through) <= _FEW_FILES
    most_files = files_of_a_block(sum(not _stands_alone(file, block_bytes) for file in files))
    number = held = 0
    run: list[Slice] = []
    for index, file in enumerate(files):
        small = not _stands_alone(file, block_bytes)
        full = held + file.text_bytes > block_bytes or len(run) >= most_files
        if run and (not small or full or file.format != files[run[0].file].format):
            yield BlockSpec(number, files[run[0].file].format, tuple(run))
            number, run, held = number + 1, [], 0
        rows = None if file.footer is None else file.footer.rows
        whole = Slice(index, file.info, 0, file.stop, rows)
        if small:
            run.append(whole)
            held += file.text_bytes
        elif file.read_through:
            large = _is_large(file, block_bytes) and file.format != WHOLE_FILES
            yield BlockSpec(
                number,
                file.format,
                (whole,),
                file.compression,
                file.records,
                read_through=True,
                spread=few and large,
            )
            number += 1
        else:
            size = file.stop if file.format == WHOLE_FILES else block_bytes
            for start, stop in _cuts(file, size):
                yield BlockSpec(number, file.format, (replace(whole, start=start, stop=stop),))
                number += 1
    if run:
        yield BlockSpec(number, files[run[0].file].format, tuple(run))


def files_of_a_block(small_files: int) -> int:
    """The most small files in one block, so that there are about 64 blocks.

    >>> files_of_a_block(100), files_of_a_block(20_000), files_of_a_block(10_000_000)
    (64, 313, 10000)
    """
    return min(max(-(-small_files // _BLOCKS_WANTED), _FEWEST_FILES), _MOST_FILES)


def _stands_alone(file: InputFile, block_bytes: int) -> bool:
    return not file.can_share or _is_large(file, block_bytes)


def _is_large(file: InputFile, block_bytes: int) -> bool:
    return file.text_bytes >= block_bytes


def _cuts(file: InputFile, block_bytes: int) -> Iterable[tuple[int, int]]:
    """Where each block of a file begins and ends, in bytes, or in rows of Parquet."""
    starts: Iterable[int] = range(0, file.stop, block_bytes)
    if file.footer is not None:
        starts = [start for start in _row_starts(file.footer, block_bytes) if start < file.stop]
    return pairwise([*starts, file.stop])


def _row_starts(footer: Footer, block_bytes: int) -> Iterator[int]:
    """The first row of each block: whole row groups, except those much larger than a block."""
    row = held = 0
    for group in footer.groups:
        if group.rows == 0:
            continue
        cuts = max(1, min(_MOST_CUTS, group.size // block_bytes, group.rows))
        if row == 0 or held + group.size > block_bytes:
            yield row
            held = 0
        for cut in range(1, cuts):
            yield row + group.rows * cut // cuts
        held += group.size
        row += group.rows
