"""Files are read in the order of their numbers, whatever number of digits those have."""

import subprocess
import sys

import pytest

import bert_embed
from bert_embed.results.names import file_name
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.outputs import finished_run


def test_blocks_beyond_seven_digits_are_read_behind_the_others(tmp_path):
    run = finished_run(tmp_path / "out", [1, 1, 1, 1], first_block=9_999_998)
    blocks = range(9_999_998, 10_000_002)
    names = [file_name("embeddings", block, 0, ".parquet") for block in blocks]
    folder = OutputFolder(str(run))
    assert [name for name in folder.data_files() if name.startswith("embeddings")] == names
    ids, _ = bert_embed.read(run)
    assert list(ids) == ["d/0", "d/1", "d/2", "d/3"]


@pytest.mark.slow
def test_what_is_read_whole_is_in_memory_once(tmp_path):
    folder = finished_run(tmp_path / "out", [8_000] * 6, width=384, kept=False)
    program = """
import resource, sys
import bert_embed.results.read
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = most()
vectors = bert_embed.read(sys.argv[1])[1]
print((most() - before) / vectors.nbytes)
"""
    command = [sys.executable, "-c", program, str(folder)]
    assert float(subprocess.run(command, capture_output=True, check=True).stdout) < 2.2
