import json
import re
import shutil
from pathlib import Path

import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import WEIGHTS, read_bundle, write_metadata
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.settings import TextSpec
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.models.tiny import write_tiny_huggingface


@pytest.fixture
def copied(tiny_bundle, tmp_path):
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def test_a_copy_is_the_same_bundle_elsewhere(tiny_bundle, copied):
    here, there = read_bundle(tiny_bundle), read_bundle(copied)
    assert here.fingerprint == there.fingerprint
    assert there.path == str(copied)
    there.verify_files()


def test_every_file_is_listed(copied):
    names = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert set(read_bundle(copied).files) == names - {"bundle.json"}


def test_a_folder_without_metadata_is_no_bundle(tmp_path):
    with pytest.raises(ValueError, match=r"not a model bundle, bundle\.json cannot be read"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"bundle\.json is not JSON"),
        ("[]", "must have format 7, has None"),
        ('{"format": 99}', "must have format 7, has 99"),
        ('{"format": 7}', r"bundle\.json is damaged: KeyError\('fingerprint'\)"),
    ],
)
def test_damaged_metadata_is_named(copied, text, message):
    (copied / "bundle.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_bundle(copied)


def test_a_wrong_size_in_the_config_is_named(copied):
    path = copied / "bundle.json"
    values = json.loads(path.read_text())
    values["config"]["hidden_size"] = -1
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="hidden_size must be a positive integer, got -1"):
        read_bundle(copied)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("default_prompt", "query", "default_prompt must be one of none, got 'query'"),
        ("dense", [{"in_features": 1}], "dense: fields missing or unknown"),
        ("prompts", 3, "is damaged"),
    ],
)
def test_a_wrong_field_is_named(copied, name, value, message):
    path = copied / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ValueError, match=message):
        read_bundle(copied)


def test_a_bundle_of_the_first_format_is_to_be_imported_again(copied):
    path = copied / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    with pytest.raises(ValueError, match="must have format 7, has 1; import the model again"):
        read_bundle(copied)


def test_a_missing_or_cut_file_is_found_at_once(copied):
    weights = copied / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"weights\.safetensors must have \d+ bytes"):
        read_bundle(copied)
    weights.unlink()
    with pytest.raises(ValueError, match=r"weights\.safetensors is missing"):
        read_bundle(copied)


@pytest.mark.parametrize(
    ("name", "engine"),
    [(WEIGHTS, "tensorflow"), ("float32.tflite", "litert")],
)
def test_a_flipped_byte_is_found_before_an_engine_reads_it(copied, name, engine):
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)
    bundle = read_bundle(copied)
    damage = re.escape(f"{name} is damaged or was changed (sha256")
    with pytest.raises(ValueError, match=damage):
        bundle.verify_files()
    text_spec = TextSpec(bundle.max_seq_length)
    model = str(copied), bundle.fingerprint, bundle.defaults, text_spec
    handler = BlockModelHandler(*model, engine=engine)
    with pytest.raises(ValueError, match=damage):
        handler.load_model()


def test_weights_that_cannot_be_read_are_one_sentence(copied):
    weights = copied / WEIGHTS
    weights.write_bytes(bytes(weights.stat().st_size))
    with pytest.raises(ValueError, match=r"weights\.safetensors is damaged or was changed"):
        load_encoder(read_bundle(copied))


def test_weights_of_another_encoder_are_refused(copied, tmp_path):
    write_tiny_huggingface(tmp_path / "source", hidden=16)
    other = import_huggingface(str(tmp_path / "source"), str(tmp_path / "other"))
    described = read_bundle(copied)
    shutil.copy(Path(other.path, WEIGHTS), copied / WEIGHTS)
    (copied / "bundle.json").unlink()
    write_metadata(copied, described)
    with pytest.raises(ValueError, match=r"weights\.safetensors holds another encoder; remove"):
        load_encoder(read_bundle(copied))


def test_changed_files_are_refused_at_the_next_start(copied):
    """An edited vocabulary would give vectors that no model made, under the model's fingerprint."""
    vocabulary = (copied / "vocab.txt").read_bytes()
    (copied / "vocab.txt").write_bytes(vocabulary.replace(b"money", b"mouse"))
    with pytest.raises(ValueError, match=r"vocab\.txt is damaged or was changed .*import"):
        read_bundle(copied)


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "0" * 64},
        {"max_seq_length": 32},
        {"tokenizer": {"lower_case": False, "max_word_chars": 100}},
        {"digest": None},
        {"digest": "0" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_changed_metadata_is_refused(copied, change):
    path = copied / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"bundle\.json was changed after it was written"):
        read_bundle(copied)
