"""All readers distinguish a damaged run.json of `embed` from the record of something else."""

import json
import re

import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.results.run_record import read_record
from tests.support.golden import GOLDEN, RUNS
from tests.support.outputs import whole_record

MINE = {"name": "mine"}


def change(folder, keys, value):
    """Writes a whole record in which one value is another; ... takes the key away."""
    record = whole_record({})
    *above, last = keys.split(".")
    place = record
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    (folder / "run.json").write_text(json.dumps(record))


def test_readers_say_what_a_folder_is_and_not_to_remove_it(tmp_path, capsys):
    output, other = tmp_path / "out", str(tmp_path / "other")
    output.mkdir()
    newer = "was written by a newer version of bert-embed (format 3, this one reads 2): update "
    for content, told in (
        (whole_record({}, format=3), f"{output} {newer}bert-embed"),
        (
            MINE,
            f"{output} is not the output of `embed`: {output}/run.json is not the record of one",
        ),
        ([1], f"{output}/run.json is damaged: it is not a JSON object"),
    ):
        (output / "run.json").write_text(json.dumps(content))
        for name, *words in (["verify"], ["report"], ["search", "bank"], ["export", other]):
            assert main([name, str(output), *words, *["--to=npy"] * (name == "export")]) == 2
            assert capsys.readouterr().err == f"error: {told}\n", name


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        ("counts.embedded", ..., "it has no counts.embedded"),
        ("ended", ..., "it has no ended"),
        ("vectors", ..., "it must have vectors or examples"),
        ("vectors.shape", ..., "it has no vectors.shape"),
        ("vectors.granularity", ["a", 1], "vectors.granularity[1] must be a text, got 1"),
        ("written.embeddings", {"files": 1, "bytes": 1}, "it has no written.embeddings.rows"),
        ("plan.blocks", "3", 'plan.blocks must be a whole number, got "3"'),
        ("plan.blocks", True, "plan.blocks must be a whole number, got true"),
        ("cut_share", None, "cut_share must be a number, got null"),
        ("input.patterns", "x" * 99, f'input.patterns must be a list, got "{"x" * 39}…'),
        (
            "status",
            "well",
            "status must be planned or running or done or refused or failed or interrupted, "
            'got "well"',
        ),
    ],
)
def test_a_damaged_record_is_named_with_its_key(tmp_path, keys, value, told):
    change(tmp_path, keys, value)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/run.json is damaged: {told}")):
        bert_embed.read(tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_read_is_written_again_word_for_word(name):
    record = read_record(str(GOLDEN / name))
    assert json.loads(record.to_json()) == json.loads((GOLDEN / name / "run.json").read_text())
