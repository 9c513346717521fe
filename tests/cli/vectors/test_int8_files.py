"""Int8 runs of bundles with unlike files for it: those of earlier versions, and of today."""

import shutil
from dataclasses import replace

import numpy as np

from bert_embed.bundle.bundle import read_bundle, write_metadata
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from tests.support.command import record
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface


def test_only_int8_runs_of_older_bundles_are_other_runs(tiny_bundle, tmp_path, run):
    """Of a bundle whose int8 file has one scale for all words."""
    older = shutil.copytree(tiny_bundle, tmp_path / "older")
    described = read_bundle(older)
    (older / "bundle.json").unlink()
    write_metadata(older, replace(described, int8_word_scales="table"))
    for precision, scales in (("float32", None), ("int8", "balanced")):
        new, old = (
            record(run({"in.txt": "the bank of the river\n"}, **flags, precision=precision))
            for flags in ({"to": f"new-{precision}"}, {"to": precision, "model": older})
        )
        assert (new["run"] == old["run"]) == (precision == "float32")
        assert new["vectors"].get("int8_word_scales") == scales


def test_a_word_of_small_numbers_is_as_exact_as_one_of_large_numbers(tmp_path):
    random = np.random.default_rng(5)
    count = len(small_vocabulary())
    words = random.normal(size=(count, 32)) * 10.0 ** -(np.arange(count) % 4)[:, None]
    changes = {
        "embeddings.word_embeddings.weight": words.astype(np.float32),
        "embeddings.position_embeddings.weight": np.zeros((64, 32), np.float32),
        "embeddings.token_type_embeddings.weight": np.zeros((2, 32), np.float32),
    }
    write_tiny_huggingface(tmp_path / "source", changes=changes)
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    text = " ".join(small_vocabulary()[60:110])
    exact, int8 = (
        Encoder(bundle, precision=precision, threads=1).units([text], layers=0)[0].vectors
        for precision in ("float32", "int8")
    )
    errors = np.linalg.norm(exact - int8, axis=1) / np.linalg.norm(exact, axis=1)
    assert errors.max() < 0.02
