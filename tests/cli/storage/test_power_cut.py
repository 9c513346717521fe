"""Whatever a power cut leaves of what a command writes, the same command completes it."""

from types import SimpleNamespace

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import embed, write_json
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.outputs import contents, export
from tests.support.power import restore, states, traced

pytestmark = pytest.mark.slow

EVERY = 7  # of the states of a run; 1 tries all of them
SETTINGS = {"block_bytes": 900, "threads": 1, "report": "false", "id_column": "id"}


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny_bundle):
    """A bundle, a folder of Hugging Face, the input of two days, and the output of the first."""
    folder = tmp_path_factory.mktemp("places")
    write_tiny_huggingface(folder / "source")
    texts = ["the red river", "", *(f"a bank of seven stars {n}" for n in range(20))]
    rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    days = [write_json(folder / "1.jsonl", *rows), write_json(folder / "2.jsonl", *rows[5:])]
    with days[1].open("a") as file:
        file.write('{"id": "new", "text": "the moon"}\n')
    assert embed(folder / "first", tiny_bundle, days[0], **SETTINGS) == 0
    return SimpleNamespace(
        model=tiny_bundle, source=folder / "source", days=days, first=folder / "first"
    )


def run(places, output):
    return embed(output, places.model, places.days[0], **SETTINGS)


def increment(places, output):
    earlier = {"skip_existing": places.first, "max_deleted": "90%"}
    return embed(output, places.model, places.days[1], **SETTINGS, **earlier)


def npy(places, output):
    return export(places.first, output, "npy")


def imported(places, output):
    return main(["model", "import", str(places.source), str(output / "bundle")])


def cached(places, output):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_EMBED_CACHE", str(output))
        return main(["model", "verify", str(places.source)])


def results(output):
    """The files that a command is for, by name: not those of its own, nor temporary ones."""
    own = ("/.", "/_state/", "/run.json")
    return {
        name: data
        for name, data in contents(output).items()
        if not any(mark in f"/{name}" for mark in own)
    }


@pytest.mark.parametrize("command", [run, increment, npy, cached, imported])
def test_the_same_command_completes_what_a_power_cut_left(tmp_path, places, command):
    whole = tmp_path / "whole"
    with traced(whole) as moments:
        assert command(places, whole) == 0
    expected = results(whole)
    # What the command said to be there stays, whatever happens then
    for what, tree in moments[-1].cuts():
        assert results(restore(tree, tmp_path / what)) == expected, what
    every = EVERY if command in (run, increment) else 1
    for number, (what, tree) in enumerate(states(moments, every)):
        output = restore(tree, tmp_path / str(number))
        assert command(places, output) == 0, what
        assert results(output) == expected, what
