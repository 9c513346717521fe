"""Compressed input: every byte of a file is read as text, or its run fails with the file's name."""

import bz2
import gzip
import itertools
import random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.blocks import read_input, texts_of

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
LINES = [f"line {n}" for n in range(2005)]


def read(path, block_bytes=1 << 16):
    return texts_of(read_input(path, block_bytes=block_bytes, part_docs=500))


def failure(path, lines=LINES):
    """What reading a file of some lines raises, None where it gives all of them."""
    try:
        found = read(path)
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
    path.write_bytes(stream.compress(stored(LINES)) + stream.flush())
    repack = "repack it: zstd -dc --long=31 FILE | zstd -o NEW"
    refused = f"{path} needs a zstd window of over 128 MiB; {repack}"
    assert failure(path) == (refused if log > 27 else None)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    suffix=st.sampled_from(sorted(COMPRESS)),
    cuts=st.lists(st.integers(0, len(stored(LINES))), max_size=4),
    block_bytes=st.sampled_from([50, 4000, 1 << 20]),
)
def test_streams_one_after_the_other_are_one_text(tmp_path_factory, suffix, cuts, block_bytes):
    data = stored(LINES)
    places = [0, *sorted(cuts), len(data)]
    path = tmp_path_factory.mktemp("streams") / f"in.txt.{suffix}"
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    path.write_bytes(b"".join(map(COMPRESS[suffix], pieces)))
    assert read(path, block_bytes) == LINES


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
def test_a_flipped_byte_loses_no_line_silently(tmp_path, suffix):
    """In either of two streams: every line comes out, or the file is named."""
    whole = b"".join(COMPRESS[suffix](stored(lines)) for lines in (LINES[:1000], LINES[1000:]))
    path = tmp_path / f"in.txt.{suffix}"
    failed = 0
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        message = failure(path)
        assert message is None or message.startswith(f"{path} is damaged "), message
        failed += message is not None
    assert failed > 0.9 * len(whole) / 11


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
def test_a_flipped_bit_of_a_wrapper_loses_no_line_silently(tmp_path, suffix):
    """Bits of headers, lengths and checksums, where small files have most of theirs."""
    streams = [COMPRESS[suffix](stored([line])) for line in LINES[:20]]
    whole, path = b"".join(streams), tmp_path / f"in.txt.{suffix}"
    for bit in random.Random(6).sample(range(8 * len(whole)), 150):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        message = failure(path, LINES[:20])
        assert message is None or message.startswith(f"{path} is damaged "), bit


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("garbage", [b"x", b"BZh9 and more", bytes(9000) + b"x", b"\n" * 9000])
def test_what_follows_the_last_stream_is_not_passed_over(tmp_path, suffix, garbage):
    path = tmp_path / f"in.txt.{suffix}"
    path.write_bytes(COMPRESS[suffix](stored(LINES)) + garbage)
    with pytest.raises(ValueError, match=rf"in\.txt\.{suffix} is damaged"):
        read(path)


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
def test_a_file_cut_anywhere_is_an_error(tmp_path, suffix):
    whole = b"".join(COMPRESS[suffix](stored(lines)) for lines in (LINES[:1000], LINES[1000:]))
    between = len(COMPRESS[suffix](stored(LINES[:1000])))
    path = tmp_path / f"in.txt.{suffix}"
    for stop in [1, 2, 5, 11, between - 1, between + 1, between + 3, len(whole) - 1]:
        path.write_bytes(whole[:stop])
        with pytest.raises(ValueError, match=rf"in\.txt\.{suffix} is damaged"):
            read(path)


def test_what_the_programs_of_the_formats_pass_over_is_passed_over(tmp_path):
    padded, skippable = tmp_path / "padded.txt.gz", tmp_path / "skippable.txt.zst"
    padded.write_bytes(gzip.compress(stored(LINES)) + bytes(20_000))
    frame = COMPRESS["zst"](stored(LINES))
    skippable.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + frame)
    assert read(padded) == LINES
    assert read(skippable) == LINES
