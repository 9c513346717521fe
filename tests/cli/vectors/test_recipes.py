"""A recipe is a name for flags: it gives the vectors that the flags give."""

import re

import numpy as np
import pytest

from bert_embed.pipeline.cli import main
from bert_embed.settings import RECIPES
from tests.support.command import ROOT, flags_of, vectors
from tests.support.models.tiny import bundle_of, write_tiny_huggingface

pytestmark = pytest.mark.slow

ROW = re.compile(r"^\| `([\w-]+)` \| `([^`]+)` \|", re.MULTILINE)
FLAGS = dict(ROW.findall((ROOT / "docs" / "vectors.md").read_text("utf-8")))  # as the page has them


@pytest.fixture(scope="module")
def five_layers(tmp_path_factory):
    settings = {"layers": 5, "pooling": {"pooling_mode_max_tokens": True}, "normalize": True}
    return bundle_of(tmp_path_factory.mktemp("five"), write_tiny_huggingface, **settings)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_gives_what_its_flags_give(tmp_path, run, five_layers, recipe):
    texts = {"in.txt": "the bank of the river\nmoney\nthe long way down to the vault\n"}
    one = run(texts, "a", model=five_layers, pooling=recipe)
    words = flags_of(tmp_path / "b", five_layers, tmp_path / "in.txt")
    assert main(["embed", *words, *FLAGS[recipe].replace("1,2,…,L", "1,2,3,4,5").split()]) == 0
    np.testing.assert_array_equal(vectors(one), vectors(tmp_path / "b"))
    assert vectors(run(texts, "c", model=five_layers, pooling=recipe, dim=3)).shape == (3, 3)
