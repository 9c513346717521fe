"""Compressed files: every byte is read, or the file is named; cut once, they keep their parts."""

import bz2
import dataclasses
import gzip
import itertools
import json
import random
from functools import partial

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.base.errors import StorageError
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read import reader
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import cut_file, document_blocks
from tests.support.blocks import read_input, texts_of
from tests.support.command import block_records, embed, files, flip, record, rows

STREAMS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
COMPRESS = {"": bytes} | {f".{suffix}": compress for suffix, compress in STREAMS.items()}
DECODER = bz2.BZ2Decompressor
FIRST_LOOKS = 100_000  # bytes that are decompressed before a run starts, to see what is there
LINES = "".join(f"line {number} of a river\n" for number in range(4000)).encode()


def parts_of(part_docs, block_bytes):
    return partial(reader.parts_of, part_docs=part_docs, block_bytes=block_bytes)


def read(specs, part_docs, block_bytes, done=()):
    """What is read of each part, by its number."""
    return {
        block.part.number: (
            dataclasses.replace(block.part, seconds={}),
            block.sources.to_pylist(),
            block.texts,
        )
        for spec in specs
        for block in document_blocks(spec, Columns(), part_docs, block_bytes, done)
    }


@settings(max_examples=50, deadline=None)
@given(
    records=st.lists(st.text('ab",é \n', max_size=12), max_size=25),
    kind=st.sampled_from(["txt", "jsonl", "csv"]),
    suffix=st.sampled_from(sorted(COMPRESS)),
    closed=st.booleans(),
    block_bytes=st.integers(1, 60),
    part_docs=st.integers(1, 6),
    done=st.sets(st.integers(0, 20)),
)
def test_a_file_that_is_cut_has_the_parts_of_one_that_is_read(
    tmp_path_factory, records, kind, suffix, closed, block_bytes, part_docs, done
):
    folder = tmp_path_factory.mktemp("cut")
    written = {
        "txt": "\n".join(records),
        "jsonl": "\n".join(json.dumps({"text": each}) for each in records),
        "csv": "text\n" + "\n".join('"' + each.replace('"', '""') + '"' for each in records),
    }[kind]
    path = folder / f"in.{kind}{suffix}"
    path.write_bytes(COMPRESS[suffix]((written + "\n" * closed).encode()))
    listed = list_input([str(path)]).first(None)
    spec = next(plan_blocks(listed, block_bytes), None)
    if spec is None or not spec.read_through:
        return
    output = OutputFolder(str(folder / "out"))
    output.prepare()
    whole = read([spec], part_docs, block_bytes)
    spec = dataclasses.replace(spec, done=tuple(sorted(done & whole.keys())))
    cut = list(cut_file(spec, parts_of(part_docs, block_bytes), output))
    wanted = {n: part for n, part in whole.items() if n not in done}
    assert read([spec], part_docs, block_bytes, done) == wanted
    assert read(cut, part_docs, block_bytes) == wanted
    assert [each.cut.part.number for each in cut] == list(wanted)


def test_a_stored_text_that_changed_is_refused_by_name(tmp_path):
    path = tmp_path / "in.txt.gz"
    path.write_bytes(gzip.compress(LINES))
    (spec,) = plan_blocks(list_input([str(path)]).files, 1 << 12)
    output = OutputFolder(str(tmp_path / "out"))
    output.prepare()
    cut = list(cut_file(spec, parts_of(1000, 1 << 12), output))
    for text in (tmp_path / "out/_state/texts").iterdir():
        flip(text)
        with pytest.raises(StorageError, match=f"{text} is not as it was written"):
            read(cut, 1000, 1 << 12)
        flip(text)
    whole = read([spec], 1000, 1 << 12)
    assert len(whole) > 20
    assert read(cut, 1000, 1 << 12) == whole


class Counted:
    """bzip2's own decoder, which adds up what it gave."""

    bytes = 0

    def __init__(self):
        self._decoder = DECODER()

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def decompress(self, data, *size):
        found = self._decoder.decompress(data, *size)
        Counted.bytes += len(found) if size else 0  # Beam decompresses its graphs in one go
        return found


@pytest.mark.slow
def test_a_run_decompresses_a_file_once_and_so_does_its_continuation(
    tmp_path, tiny_bundle, monkeypatch
):
    (tmp_path / "in.txt.bz2").write_bytes(bz2.compress(LINES))
    monkeypatch.setattr("bz2.BZ2Decompressor", Counted)
    output = tmp_path / "out"

    def decompressed():
        """Bytes beyond the file that a run decompresses; a report reads texts again."""
        Counted.bytes = 0
        small = {"block_bytes": 1 << 11, "part_docs": 100, "report": "false"}
        assert embed(output, tiny_bundle, tmp_path / "in.txt.bz2", **small) == 0
        return Counted.bytes - len(LINES)

    assert 0 <= decompressed() < FIRST_LOOKS
    first = files(output)
    places = [int(each.rsplit(":", 1)[1]) for each in rows(output)["id"]]
    assert places == [place for place, byte in enumerate(b"\n" + LINES[:-1]) if byte == 10]
    for path in block_records(output)[20:]:
        path.unlink()
    assert 0 <= decompressed() < FIRST_LOOKS
    assert files(output) == first
    assert record(output)["counts"]["parts_reused"] == 20
    assert not list(output.glob("_state/texts/*"))


NUMBERED = [f"line {n}" for n in range(2005)]


def texts_in(path, block_bytes=1 << 16):
    return texts_of(read_input(path, block_bytes=block_bytes, part_docs=500))


def failure(path, lines=NUMBERED):
    """What reading a file of some lines raises, None where it gives all of them."""
    try:
        found = texts_in(path)
    except ValueError as error:
        return str(error)
    assert found == lines
    return None


def stored(*streams):
    return "".join(f"{line}\n" for lines in streams for line in lines).encode()


@pytest.mark.parametrize("log", [27, 28])
def test_a_window_of_zstd_over_128_mib_is_refused_with_what_to_do(tmp_path, log):
    long = zstandard.ZstdCompressionParameters(window_log=log, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=long).compressobj()
    path = tmp_path / "in.txt.zst"
    path.write_bytes(stream.compress(stored(NUMBERED)) + stream.flush())
    repack = "repack it: zstd -dc --long=31 FILE | zstd -o NEW"
    refused = f"{path} needs a zstd window of over 128 MiB; {repack}"
    assert failure(path) == (refused if log > 27 else None)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    suffix=st.sampled_from(sorted(STREAMS)),
    cuts=st.lists(st.integers(0, len(stored(NUMBERED))), max_size=4),
    block_bytes=st.sampled_from([50, 4000, 1 << 20]),
)
def test_streams_one_after_the_other_are_one_text(tmp_path_factory, suffix, cuts, block_bytes):
    data = stored(NUMBERED)
    places = [0, *sorted(cuts), len(data)]
    path = tmp_path_factory.mktemp("streams") / f"in.txt.{suffix}"
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    path.write_bytes(b"".join(map(STREAMS[suffix], pieces)))
    assert texts_in(path, block_bytes) == NUMBERED


@pytest.mark.parametrize("suffix", sorted(STREAMS))
def test_flipped_bits_lose_no_line_silently(tmp_path, suffix):
    """In two streams, and in the headers, lengths and checksums of twenty small ones."""
    path, failed = tmp_path / f"in.txt.{suffix}", 0
    for lines, size, flips in ((NUMBERED, 1000, 400), (NUMBERED[:20], 1, 150)):
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        whole = b"".join(STREAMS[suffix](stored(piece)) for piece in pieces)
        for bit in random.Random(6).sample(range(8 * len(whole)), flips):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            message = failure(path, lines)
            assert message is None or message.startswith(f"{path} is damaged "), bit
            failed += message is not None
    assert failed > 400


@pytest.mark.parametrize("suffix", sorted(STREAMS))
def test_a_file_cut_anywhere_or_with_more_behind_its_last_stream_is_an_error(tmp_path, suffix):
    first, last = (STREAMS[suffix](stored(lines)) for lines in (NUMBERED[:1000], NUMBERED[1000:]))
    whole, between, path = first + last, len(first), tmp_path / f"in.txt.{suffix}"
    stops = [1, 2, 5, 11, between - 1, between + 1, between + 3, len(whole) - 1]
    garbage = [b"x", b"BZh9 and more", bytes(9000) + b"x", b"\n" * 9000]
    for data in [*(whole[:stop] for stop in stops), *(whole + more for more in garbage)]:
        path.write_bytes(data)
        assert failure(path).startswith(f"{path} is damaged ")


def test_what_the_programs_of_the_formats_pass_over_is_passed_over(tmp_path):
    padded, skippable = tmp_path / "padded.txt.gz", tmp_path / "skippable.txt.zst"
    padded.write_bytes(gzip.compress(stored(NUMBERED)) + bytes(20_000))
    frame = STREAMS["zst"](stored(NUMBERED))
    skippable.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + frame)
    assert texts_in(padded) == NUMBERED
    assert texts_in(skippable) == NUMBERED
