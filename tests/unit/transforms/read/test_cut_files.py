"""Files cut once into parts: the same parts as when the file is read."""

import bz2
import dataclasses
import gzip
import json
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
from tests.support.command import block_records, embed, files, record, rows

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}
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
        data = bytearray(text.read_bytes())
        data[len(data) // 2] ^= 1
        text.write_bytes(data)
        with pytest.raises(StorageError, match=f"{text} is not as it was written"):
            read(cut, 1000, 1 << 12)
        data[len(data) // 2] ^= 1
        text.write_bytes(data)
    whole = read([spec], 1000, 1 << 12)
    assert len(whole) > 20
    assert read(cut, 1000, 1 << 12) == whole


def test_parts_that_are_done_are_not_given_again(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(LINES))
    (spec,) = plan_blocks(list_input([str(tmp_path)]).files, 1 << 12)
    blocks = read([spec], 100, 1 << 12)
    assert len(blocks) > 20
    done = set(range(0, len(blocks), 2))
    rest = read([spec], 100, 1 << 12, done)
    assert rest == {number: part for number, part in blocks.items() if number not in done}


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
    """Bytes that a run decompresses of its input; a report reads texts again."""
    Counted.bytes = 0
    assert embed(output, *arguments, block_bytes=1 << 11, part_docs=100, report="false") == 0
    return Counted.bytes


@pytest.mark.slow
def test_a_run_decompresses_a_file_once_and_so_does_its_continuation(
    tmp_path, tiny_bundle, monkeypatch
):
    (tmp_path / "in.txt.bz2").write_bytes(bz2.compress(LINES))
    monkeypatch.setattr("bz2.BZ2Decompressor", Counted)
    check(tmp_path / "out", tmp_path / "out", tiny_bundle, tmp_path / "in.txt.bz2")


def check(output, folder, *arguments):
    """Runs, loses all but twenty parts, and runs again; `folder` is where the output is."""
    begun = decompressed_by(output, *arguments) - len(LINES)
    assert 0 <= begun < FIRST_LOOKS
    first = files(folder)
    places = [int(each.rsplit(":", 1)[1]) for each in rows(folder)["id"]]
    assert places == [place for place, byte in enumerate(b"\n" + LINES[:-1]) if byte == 10]
    for path in block_records(folder)[20:]:
        path.unlink()
    again = decompressed_by(output, *arguments) - len(LINES)
    assert 0 <= again < FIRST_LOOKS
    assert files(folder) == first
    assert record(folder)["counts"]["parts_reused"] == 20
    assert not list(folder.glob("_state/texts/*"))
