"""Finds the parts and blocks that earlier attempts finished."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from bert_embed.formats.output_files import output_name
from bert_embed.storage.files import is_remote, size_of
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.records.block_record import BlockRecord, read_block_record
from bert_embed.transforms.records.spec import BlockSpec

_MOST_SLICES = 1000  # of the blocks whose records one worker reads at a time


@dataclass(frozen=True)
class BegunBlocks:
    """Blocks begun earlier, their parts that have block records, and sizes of files by name."""

    specs: list[BlockSpec]
    parts: dict[int, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def begun_blocks(
    folder: OutputFolder, specs: Iterable[BlockSpec]
) -> Iterator[BlockSpec | BegunBlocks]:
    """Gives blocks of which nothing is written as they are, and all others some at a time."""
    parts: dict[int, list[int]] = {}
    for block, part in folder.recorded_parts():
        parts.setdefault(block, []).append(part)
    files = sorted(_files_by_block(folder)) if parts else []

    def begun(specs: list[BlockSpec]) -> BegunBlocks:
        first, last = specs[0].number, specs[-1].number + 1
        span = files[bisect_left(files, (first, "", 0)) : bisect_left(files, (last, "", 0))]
        numbers = {spec.number: parts[spec.number] for spec in specs}
        return BegunBlocks(specs, numbers, {name: size for _, name, size in span})

    held: list[BlockSpec] = []
    slices = 0
    for spec in specs:
        if spec.number not in parts:
            yield spec
            continue
        held.append(spec)
        slices += len(spec.slices)
        if slices >= _MOST_SLICES or spec.spread:
            yield begun(held)
            held, slices = [], 0
    if held:
        yield begun(held)


def _files_by_block(folder: OutputFolder) -> Iterator[tuple[int, str, int]]:
    for name, size in folder.data_files().items():
        parsed = output_name(name)
        yield parsed.block, name, size


def finished_blocks(
    folder: OutputFolder, run: str, begun: BegunBlocks
) -> Iterator[tuple[BlockSpec, list[BlockRecord]]]:
    """Each block with the records of its finished parts, those whose files are there and whole."""
    pairs = [(spec.number, part) for spec in begun.specs for part in begun.parts[spec.number]]

    def read(pair: tuple[int, int]) -> BlockRecord | None:
        record = read_block_record(folder, *pair, run)
        if record is None:
            return None
        whole = all(begun.sizes.get(name) == file.bytes for name, file in record.files.items())
        return record if whole else None

    block_records: dict[int, list[BlockRecord]] = {}
    for record in in_parallel(read, pairs) if is_remote(folder.path) else map(read, pairs):
        if record is not None:
            block_records.setdefault(record.block, []).append(record)
    for spec in begun.specs:
        of_block = block_records.get(spec.number, [])
        last = max((record.part for record in of_block if record.last), default=-1)
        done = tuple(record.part for record in of_block)
        yield replace(spec, done=done, complete=0 < len(done) == last + 1), of_block


def finished_parts(folder: OutputFolder, run: str, spec: BlockSpec) -> dict[int, BlockRecord]:
    """The records, by part number, that an earlier try of this bundle wrote since the plan."""
    by_number: dict[int, BlockRecord] = {}
    done = frozenset(spec.done)
    for number in count() if spec.cut is None else (spec.cut.part.number,):
        if number in done:
            continue
        record = read_block_record(folder, spec.number, number, run)
        if record is None:
            break
        if all(size_of(folder.path_of(n)) == file.bytes for n, file in record.files.items()):
            by_number[number] = record
        if record.last:
            break
    return by_number


def is_complete(spec: BlockSpec, finished: dict[int, BlockRecord]) -> bool:
    """Whether nothing is left to read, with the parts that `finished_parts` gave."""
    if spec.cut is not None:
        return bool(finished)
    last = max(finished, default=-1)
    return last >= 0 and finished[last].last and len(finished) + len(spec.done) == last + 1
