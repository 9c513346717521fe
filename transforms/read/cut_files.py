"""Cuts files that can only be read from their start, once, into parts for many workers.

The parts of a compressed file go to the run's own folder, those of another are read from where
they are; memory holds one part.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bert_embed.storage.checksums import crc32c_of_bytes
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import is_remote, open_listed, read_bytes
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.records.read_part import CutPart, ReadPart
from bert_embed.transforms.records.spec import BlockSpec

_CODEC = "lz4"  # half of the text's size in half of the time that zstd takes


def cut_file(
    spec: BlockSpec,
    read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]],
    folder: OutputFolder,
) -> Iterator[BlockSpec]:
    """Reads a file once; a BlockSpec for each part not done, its text in `folder`."""
    stored = spec.compression is not None
    done = frozenset(spec.done)

    def cuts() -> Iterator[tuple[CutPart, bytes]]:
        started = time.perf_counter()
        for part in read_parts(spec):
            if part.number not in done:
                data = b"".join(content.data for content in part.contents)
                bare = tuple(content.with_data(b"") for content in part.contents)
                seconds = time.perf_counter() - started
                yield CutPart(replace(part, contents=bare, seconds=seconds), len(data)), data
            started = time.perf_counter()

    def store(item: tuple[CutPart, bytes]) -> CutPart:
        cut, data = item
        if not stored or not data:
            return cut
        small = pa.compress(data, codec=_CODEC, asbytes=True)
        folder.write_text(spec.number, cut.part.number, small)
        return replace(cut, folder=folder.path, crc32c=crc32c_of_bytes(small))

    several = stored and is_remote(folder.path)
    for cut in in_parallel(store, cuts()) if several else map(store, cuts()):
        yield replace(spec, spread=False, done=(), cut=cut)


def cut_part(spec: BlockSpec, cut: CutPart) -> ReadPart[Any]:
    """The one part of a BlockSpec that `cut_file` gave, with its bytes."""
    if not cut.size:
        return cut.part
    (records,) = cut.part.contents
    return replace(cut.part, contents=(records.with_data(_data(spec, cut, records.offset)),))


def _data(spec: BlockSpec, cut: CutPart, offset: int) -> bytes:
    if cut.folder is None:
        with open_listed(spec.slices[0].info) as file:
            file.seek(offset)
            return file.read(cut.size)
    path = OutputFolder(cut.folder).text(spec.number, cut.part.number)
    stored = read_bytes(path)
    if stored is None:
        raise FileNotFoundError(f"{path} is gone; the same command writes it again")
    if crc32c_of_bytes(stored) != cut.crc32c:
        raise StorageError(f"{path} is not as it was written; the same command writes it again")
    return pa.decompress(stored, cut.size, codec=_CODEC, asbytes=True)
