"""Cuts files that can only be read from their start, once for all their readers.

The texts of a compressed file are stored part by part, in the run's own folder, where every worker
finds them; memory holds one part. The parts of a plain file are read from where they are.
"""

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bert_embed.storage.checksums import crc32c_of_bytes
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import is_remote, open_listed, read_bytes
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.lines import Lines, read_parts
from bert_embed.transforms.read.parts import end_mark
from bert_embed.transforms.read.tables.csv_records import CsvRecords, read_csv_parts
from bert_embed.transforms.records.read_part import CutPart, FileCut, ReadPart
from bert_embed.transforms.records.spec import BlockSpec

_CODEC = "lz4"  # half of the text's size in half of the time that zstd takes


def cut_file(
    readers: Sequence[BlockSpec],
    folder: OutputFolder,
    part_docs: int,
    block_bytes: int,
    done: Container[int],
) -> list[BlockSpec]:
    """Reads a file once and returns its readers with their parts.

    Args:
        readers: Some or all of those that share the file.
        folder: Where texts are stored, if the file is compressed.
        part_docs: Most records of a part.
        block_bytes: A part is closed at so many bytes of text.
        done: Numbers of parts that are left out.

    Raises:
        ValueError: As `lines.read_parts`.
    """
    first = readers[0]
    stored = first.compression is not None
    parts: dict[int, list[CutPart]] = {spec.stripe: [] for spec in readers}
    marks: list[ReadPart[Any]] = []

    def found() -> Iterator[tuple[CutPart, bytes]]:
        started = time.perf_counter()
        for part in read_records(replace(first, stripe=0, stripes=1), part_docs, block_bytes):
            if part.last:
                marks.append(part)
            elif part.number % first.stripes in parts and part.number not in done:
                (records,) = part.contents
                seconds = time.perf_counter() - started
                bare = replace(part, contents=(records.with_data(b""),), seconds=seconds)
                yield CutPart(bare, len(records.data)), records.data
            started = time.perf_counter()

    def store(item: tuple[CutPart, bytes]) -> CutPart:
        cut, data = item
        if not stored or not data:
            return cut
        small = pa.compress(data, codec=_CODEC, asbytes=True)
        folder.write_text(first.number, cut.part.number, small)
        return replace(cut, crc32c=crc32c_of_bytes(small))

    several = stored and is_remote(folder.path)
    for each in in_parallel(store, found()) if several else map(store, found()):
        parts[each.part.number % first.stripes].append(each)
    (end,) = marks
    place = folder.path if stored else None

    def cut_of(spec: BlockSpec) -> FileCut:
        mark = end_mark(spec, end.number, end.end_of_file or 0)
        return FileCut(tuple(parts[spec.stripe]), mark, place)

    return [replace(spec, cut=cut_of(spec)) for spec in readers]


def read_records(spec: BlockSpec, part_docs: int, block_bytes: int) -> Iterator[ReadPart[Any]]:
    """Reads a block of lines or of CSV."""
    if spec.format == "csv":
        return read_csv_parts(spec, part_docs, block_bytes)
    return read_parts(spec, part_docs, block_bytes)


def parts_of_cut(spec: BlockSpec, cut: FileCut, done: Container[int]) -> Iterator[ReadPart[Any]]:
    """The parts of a reader whose file was cut, without those in `done`, then the mark."""
    for each in cut.parts:
        if each.part.number not in done:
            (records,) = each.part.contents
            data = _data(spec, cut, each, records) if each.size else b""
            yield replace(each.part, contents=(records.with_data(data),))
    yield cut.mark


def _data(spec: BlockSpec, cut: FileCut, part: CutPart, records: Lines | CsvRecords) -> bytes:
    if cut.folder is None:
        with open_listed(spec.slices[0].info) as file:
            file.seek(records.offset)
            return file.read(part.size)
    path = OutputFolder(cut.folder).text(spec.number, part.part.number)
    stored = read_bytes(path)
    if stored is None:
        raise FileNotFoundError(f"{path} is gone; the same command writes it again")
    if crc32c_of_bytes(stored) != part.crc32c:
        raise StorageError(f"{path} is not as it was written; the same command writes it again")
    return pa.decompress(stored, part.size, codec=_CODEC, asbytes=True)
