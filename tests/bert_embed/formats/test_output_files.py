"""Files are read in the order of their numbers, whatever number of digits those have."""

import bert_embed
from bert_embed.formats.output_files import file_name
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.finished_runs import finished_run


def test_blocks_beyond_seven_digits_are_read_behind_the_others(tmp_path):
    run = finished_run(tmp_path / "out", [1, 1, 1, 1], first_block=9_999_998)
    blocks = range(9_999_998, 10_000_002)
    names = [file_name("embeddings", block, 0, ".parquet") for block in blocks]
    folder = OutputFolder(str(run))
    assert [name for name in folder.data_files() if name.startswith("embeddings")] == names
    ids, _ = bert_embed.read(run)
    assert list(ids) == ["d/0", "d/1", "d/2", "d/3"]
