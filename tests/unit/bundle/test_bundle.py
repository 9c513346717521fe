import json
import re
import shutil
from pathlib import Path

import pytest

from bert_embed.backends.tensorflow.model import TensorFlowModule
from bert_embed.bundle.bundle import WEIGHTS, read_bundle, write_metadata
from bert_embed.settings import TextSpec
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.command import flip
from tests.support.models.folder import change, imported
from tests.support.models.tiny import write_tiny_huggingface

CHANGED = r"bundle\.json was changed after it was written"


@pytest.fixture
def copied(tiny_bundle, tmp_path):
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def test_a_copy_is_the_same_bundle_elsewhere(tiny_bundle, copied):
    there = read_bundle(copied)
    assert there.fingerprint == read_bundle(tiny_bundle).fingerprint
    assert there.path == str(copied)
    there.verify_files()
    names = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert set(there.files) == names - {"bundle.json"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"not a model bundle, bundle\.json cannot be read"),
        ("{", r"bundle\.json is not JSON"),
        ("[]", "must have format 8, has None"),
        ('{"format": 8}', r"bundle\.json is damaged: KeyError\('fingerprint'\)"),
        ({"format": 1}, "must have format 8, has 1; import the model again"),
        ({"config": {"hidden_size": -1}}, "hidden_size must be a positive integer, got -1"),
        ({"default_prompt": "query"}, "default_prompt must be one of none, got 'query'"),
        ({"dense": [{"in_features": 1}]}, "dense: fields missing or unknown"),
        ({"fingerprint": "0" * 64}, CHANGED),
        ({"digest": None}, CHANGED),
    ],
)
def test_damaged_metadata_is_named(copied, content, message):
    if content and "config" in content:
        config = json.loads((copied / "bundle.json").read_text())["config"]
        content = {"config": config | content["config"]}
    change(copied, {"bundle.json": content})
    with pytest.raises(ValueError, match=message):
        read_bundle(copied)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (WEIGHTS, lambda data: data[:-1], r"weights\.safetensors must have \d+ bytes"),
        (WEIGHTS, None, r"weights\.safetensors is missing"),
        # It would give vectors that no model made, under the model's fingerprint.
        ("vocab.txt", lambda data: data.replace(b"money", b"mouse"), "txt is damaged or .*import"),
    ],
)
def test_a_missing_cut_or_edited_file_is_found_at_once(copied, name, content, message):
    change(copied, {name: content})
    with pytest.raises(ValueError, match=message):
        read_bundle(copied)


@pytest.mark.parametrize(
    ("name", "engine"), [(WEIGHTS, "tensorflow"), ("float32.tflite", "litert")]
)
def test_a_flipped_byte_is_found_before_an_engine_reads_it(copied, name, engine):
    flip(copied / name)
    bundle = read_bundle(copied)
    damage = re.escape(f"{name} is damaged or was changed (sha256")
    text_spec = TextSpec(bundle.max_seq_length)
    model = str(copied), bundle.fingerprint, bundle.defaults, text_spec
    handler = BlockModelHandler(*model, engine=engine)
    for read in (bundle.verify_files, handler.load_model):
        with pytest.raises(ValueError, match=damage):
            read()
    if name == WEIGHTS:
        with pytest.raises(ValueError, match=damage):
            TensorFlowModule(bundle)


def test_weights_of_another_encoder_are_refused(copied, tmp_path):
    write_tiny_huggingface(tmp_path / "source", hidden=16)
    other = imported(tmp_path, "other")
    described = read_bundle(copied)
    shutil.copy(Path(other.path, WEIGHTS), copied / WEIGHTS)
    (copied / "bundle.json").unlink()
    write_metadata(copied, described)
    with pytest.raises(ValueError, match=r"weights\.safetensors holds another encoder; remove"):
        TensorFlowModule(read_bundle(copied))
