"""A crash is shown until what the process worked on is finished."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from bert_embed.transforms.activity import crashes
from bert_embed.transforms.ledger import BlockRecord, block_record_bytes
from bert_embed.transforms.output_folder import OutputFolder

CRASHED = """
import os
from bert_embed.storage.file_info import FileInfo
from bert_embed.transforms.activity import crash_marker
from bert_embed.transforms.read.lines import Lines
from bert_embed.transforms.parts import CutPart, ReadPart
from bert_embed.transforms.parts import BlockSpec, Slice
import sys
lines = Lines(0, "/in/a.txt.gz", 700, b"")
spec = BlockSpec(0, "text", (Slice(0, FileInfo("/in/a.txt.gz", 9, 0.0), 0, 9),), "gzip")
if sys.argv[2] != "all":
    import dataclasses
    part = ReadPart(int(sys.argv[2]), (lines,), False)
    spec = dataclasses.replace(spec, cut=CutPart(part, 300))
with crash_marker(sys.argv[1], "run", spec):
    os._exit(1)
"""


def crash(output, part):
    subprocess.run([sys.executable, "-c", CRASHED, str(output), part], check=False)


def finish(output, number, last=False):
    record = BlockRecord(0, number, last, 0, {}, 0 if last else None)
    OutputFolder(str(output)).write_block_record(0, number, block_record_bytes(record, "run"))


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("5", "/in/a.txt.gz, decompressed bytes 700 to 1000"),
        ("all", "/in/a.txt.gz, bytes 0 to 9"),
    ],
)
def test_a_crash_is_shown_until_its_part_is_finished(tmp_path, part, place):
    crash(tmp_path, part)
    for number in (0, 1, 2, 3, 4):
        finish(tmp_path, number)
    finish(tmp_path, 6, last=True)
    (found,) = crashes(str(tmp_path), "run")
    assert (found.block, found.times, found.place, found.certain) == (0, 1, place, True)
    finish(tmp_path, 5)
    assert crashes(str(tmp_path), "run") == []


def test_a_marker_of_an_older_version_is_read(tmp_path):
    crash(tmp_path, "all")
    (path,) = OutputFolder(str(tmp_path)).markers()
    marker = orjson.loads(Path(path).read_bytes())
    del marker["part"]
    Path(path).write_bytes(orjson.dumps(marker))
    assert [crash.block for crash in crashes(str(tmp_path), "run")] == [0]
