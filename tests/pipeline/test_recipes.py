"""A recipe is a name for flags: it gives the vectors that the flags give."""

import numpy as np
import pytest

from bert.importers import import_model
from bert.recipes import RECIPES
from tests.models import write_tiny_huggingface
from tests.pipeline.helpers import embed, vectors

LAST_FOUR = {"layers": "-1,-2,-3,-4", "pooling": "mean"}
FLAGS = {
    "second-to-last-mean": {"layers": "-2", "pooling": "mean"},
    "sum-last-four": {**LAST_FOUR, "layer_combine": "sum"},
    "concat-last-four": {**LAST_FOUR, "layer_combine": "concat"},
    "sum-all": {"layers": "1,2,3,4,5", "layer_combine": "sum", "pooling": "mean"},
    "cls": {"layers": "-1", "pooling": "cls"},
    "bert-as-service": {"layers": "-2", "pooling": "mean", "pool_special_tokens": True},
}


@pytest.fixture(scope="module")
def five_layers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five")
    mean = {"pooling_mode_max_tokens": True}
    write_tiny_huggingface(folder / "source", layers=5, pooling=mean, normalize=True)
    return import_model(str(folder / "source"), str(folder / "bundle")).path


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_gives_what_its_flags_give(tmp_path, five_layers, recipe):
    (tmp_path / "in.txt").write_text(
        "the bank of the river\nmoney\nthe long way down to the vault\n"
    )
    assert embed(tmp_path / "a", five_layers, tmp_path / "in.txt", recipe=recipe) == 0
    flags = {**FLAGS[recipe], "no_normalize": True}
    assert embed(tmp_path / "b", five_layers, tmp_path / "in.txt", **flags) == 0
    np.testing.assert_array_equal(vectors(tmp_path / "a"), vectors(tmp_path / "b"))
    assert embed(tmp_path / "c", five_layers, tmp_path / "in.txt", recipe=recipe, dim=3) == 0
    assert vectors(tmp_path / "c").shape == (3, 3)
