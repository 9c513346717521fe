"""Files cut once for all their readers: the same parts as when each reader goes through them."""

import bz2
import dataclasses
import gzip
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.storage.errors import StorageError
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.plan.cut import plan_blocks
from bert_embed.transforms.plan.listing import files_to_read, input_files
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.cut_files import cut_file
from bert_embed.transforms.read.reader import document_blocks
from tests.support.command import embed, files, record, reports, rows

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}
DECODER = bz2.BZ2Decompressor
FIRST_LOOKS = 100_000  # bytes that are decompressed before a run starts, to see what is there
LINES = "".join(f"line {number} of a river\n" for number in range(4000)).encode()


def read(specs, done, part_docs, block_bytes):
    """What readers give of each part, by its number."""
    return {
        block.part.number: (
            dataclasses.replace(block.part, seconds={}),
            block.sources.to_pylist(),
            block.texts,
            block.line_numbers.tolist(),
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
    left=st.sets(st.integers(0, 15), min_size=1),
)
def test_a_file_cut_once_gives_each_reader_its_parts(
    tmp_path_factory, records, kind, suffix, closed, block_bytes, part_docs, done, left
):
    folder = tmp_path_factory.mktemp("cut")
    written = {
        "txt": "\n".join(records),
        "jsonl": "\n".join(json.dumps({"text": each}) for each in records),
        "csv": "text\n" + "\n".join('"' + each.replace('"', '""') + '"' for each in records),
    }[kind]
    path = folder / f"in.{kind}{suffix}"
    path.write_bytes(COMPRESS[suffix]((written + "\n" * closed).encode()))
    listed = files_to_read(input_files([str(path)]), "text")
    specs = list(plan_blocks(listed, block_bytes, read_through=True))
    readers = [spec for spec in specs if spec.stripe in left]
    if not specs[0].read_through or not readers:
        return
    output = OutputFolder(str(folder / "out"))
    done = dict.fromkeys(done)
    cut = cut_file(readers, output, part_docs, block_bytes, done)
    assert read(cut, done, part_docs, block_bytes) == read(readers, done, part_docs, block_bytes)


def test_a_stored_text_that_changed_is_refused_by_name(tmp_path):
    path = tmp_path / "in.txt.gz"
    path.write_bytes(gzip.compress(LINES))
    specs = list(plan_blocks(input_files([str(path)]), 1 << 12, read_through=True))
    cut = cut_file(specs, OutputFolder(str(tmp_path / "out")), 1000, 1 << 12, {})
    for text in (tmp_path / "out/_state/texts").iterdir():
        data = bytearray(text.read_bytes())
        data[len(data) // 2] ^= 1
        text.write_bytes(data)
        with pytest.raises(StorageError, match=f"{text} is not as it was written"):
            read(cut, {}, 1000, 1 << 12)
        data[len(data) // 2] ^= 1
        text.write_bytes(data)
    whole = read(specs, {}, 1000, 1 << 12)
    assert len(whole) > 20
    assert read(cut, {}, 1000, 1 << 12) == whole


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


def decompressed_by(output, *arguments):
    """Bytes that a run decompresses of its input."""
    Counted.bytes = 0
    assert embed(output, *arguments, block_bytes=1 << 11, block_docs=100) == 0
    return Counted.bytes


@pytest.mark.slow
def test_a_run_decompresses_a_file_once_and_so_does_its_continuation(
    tmp_path, tiny_bundle, monkeypatch
):
    (tmp_path / "in.txt.bz2").write_bytes(bz2.compress(LINES))
    monkeypatch.setattr("bz2.BZ2Decompressor", Counted)
    check(tmp_path / "out", tmp_path / "out", tiny_bundle, tmp_path / "in.txt.bz2")


@pytest.mark.slow
def test_workers_find_the_texts_of_a_compressed_object_in_the_store(
    gcs, tiny_bundle, tmp_path, monkeypatch
):
    (tmp_path / "in.txt.bz2").write_bytes(bz2.compress(LINES))
    url = gcs.put_folder(tmp_path, "cut", "in")
    monkeypatch.setattr("bz2.BZ2Decompressor", Counted)
    check("gs://cut/out", gcs.root / "cut" / "out", tiny_bundle, f"{url}/in.txt.bz2")


def check(output, folder, *arguments):
    """Runs, loses all but twenty parts, and runs again; `folder` is where the output is."""
    begun = decompressed_by(output, *arguments) - len(LINES)
    assert 0 <= begun < FIRST_LOOKS
    first = files(folder)
    places = [int(each.rsplit(":", 1)[1]) for each in rows(folder)["id"]]
    assert places == [place for place, byte in enumerate(b"\n" + LINES[:-1]) if byte == 10]
    for report in reports(folder)[20:]:
        report.unlink()
    again = decompressed_by(output, *arguments) - len(LINES)
    assert 0 <= again < FIRST_LOOKS
    assert files(folder) == first
    assert record(folder)["counts"]["parts_reused"] == 20
    assert not list(folder.glob("_state/texts/*"))
