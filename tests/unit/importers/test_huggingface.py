import json
import resource
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, load_file, save, save_file

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import read_bundle
from bert_embed.settings import VectorSpec
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, imported, refused
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface

# Settings of config.json by family, those of every family under "base": all that the configurations
# of transformers 4.46, 4.57 and 5.23 write, and what models of the hub have besides. None is empty
# or off, but for those that would change vectors.
DATA = Path(__file__).parents[2] / "data"
SETTINGS = json.loads((DATA / "huggingface_settings.json").read_text())
BASE = SETTINGS.pop("base")
QUERY = "encoder.layer.1.attention.self.query.weight"
SPARE, BIAS = (f"encoder.layer.{number}.output.dense.bias" for number in (2, 1))
INDEX = "model.safetensors.index.json"
THREE = np.zeros(3, np.float32)
HEADS = ("cls.predictions.bias", "cls.seq_relationship.weight", "cls.predictions.decoder.weight")
HEADS += ("cls.predictions.transform.dense.weight", "qa_outputs.weight", "classifier.weight")
WEIGHTS = "model.safetensors"
NO_WEIGHTS = {WEIGHTS: None}
# Settings that are neither followed nor known, the last two of other kinds of encoders.
UNKNOWN = {
    **{"attention_scale": 0.5, "is_encoder_decoder": True, "pruned_heads": {"0": [1]}},
    **{"quantization_config": {"bits": 8}, "embedding_size": 16, "rope_theta": 10000.0},
}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"prefix": "bert."}, True),
        ({"gamma_beta": True, "dtype": np.float64}, True),
        ({"changes": dict.fromkeys((*HEADS, "embeddings.position_ids"), THREE)}, True),
        ({"prefix": "bert.", "changes": {"bert.embeddings.position_ids": THREE}}, True),
        ({"seed": 1}, False),
        ({"vocab": [*small_vocabulary()[:-1], "##zzz"]}, False),
        ({"vocab": small_vocabulary(), "cased": True}, False),
        ({"hidden_act": "relu"}, False),
    ],
)
def test_forms_of_the_same_weights_give_one_model_and_others_another(
    tmp_path, tiny_bundle, settings, same
):
    write_tiny_huggingface(tmp_path / "source", **settings)
    assert (imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint) is same


def test_weights_in_several_files_are_read(tmp_path, tiny_bundle):
    write_tiny_huggingface(tmp_path / "source")
    whole = tmp_path / "source" / "model.safetensors"
    tensors = sorted(load_file(whole).items())
    whole.unlink()
    for number, part in enumerate((tensors[:9], tensors[9:])):
        save_file(dict(part), tmp_path / "source" / f"part-{number}.safetensors")
    places = {name: f"part-{int(at >= 9)}.safetensors" for at, (name, _) in enumerate(tensors)}
    change(tmp_path / "source", {INDEX: {"weight_map": places}})
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


def test_two_tensors_of_one_name_are_refused_unless_they_are_equal(tmp_path, tiny_bundle):
    name = "pooler.dense.bias"
    bias = write_tiny_huggingface(tmp_path / "source")[name]
    write_tiny_huggingface(tmp_path / "source", changes={f"bert.{name}": bias + 1})
    refused(tmp_path, rf"tensors bert\.{name} and {name} are both {name} of the model")
    write_tiny_huggingface(tmp_path / "source", changes={f"bert.{name}": bias})
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


def test_a_plain_folder_pools_by_mean_up_to_its_positions(tmp_path):
    write_tiny_huggingface(tmp_path / "source", positions=48, pooler=False)
    bundle = imported(tmp_path)
    assert (bundle.defaults, bundle.max_seq_length) == (VectorSpec(), 48)
    assert bundle.source == str(tmp_path / "source")
    with pytest.raises(ValueError, match="pooling must not be pooler for this model"):
        bundle.check(VectorSpec(pooling="pooler"))


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len"),
        ({"pooling_mode": ["lasttoken"]}, "lasttoken"),
        ({}, "mean"),
    ],
)
def test_sentence_transformers_files_say_how_to_pool(tmp_path, pooling, wanted):
    settings = {"pooling": pooling, "normalize": True, "max_seq_length": 20}
    write_sentence_transformers(tmp_path / "source", **settings)
    bundle = imported(tmp_path)
    assert bundle.defaults == VectorSpec(pooling=wanted, normalize=True)
    assert bundle.max_seq_length == 20


def cut(size):
    return {WEIGHTS: lambda data: data[:size]}


def wrapped(data):
    return save({f"module.{name}": array for name, array in load(data).items()})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({WEIGHTS: wrapped}, r"begins with encoder\.layer\., but module\.embeddings\."),
        ({WEIGHTS: {QUERY: None}}, f"tensor {QUERY} is missing"),
        ({WEIGHTS: {QUERY: np.zeros((32, 16))}}, rf"{QUERY} must be \[32, 32\], is \[32, 16\]"),
        ({WEIGHTS: {SPARE: THREE}}, f"tensor {SPARE} is not part of a BERT encoder"),
        ({WEIGHTS: {BIAS: np.ones(32, np.int8)}}, "must be one of F32, F16, BF16, F64, is I8"),
        *[
            ({WEIGHTS: {BIAS: np.full(32, value)}}, "source: its weights give no text a vector of")
            for value in (np.nan, np.inf)
        ],
        *[({name: None}, name) for name in ("config.json", "vocab.txt", WEIGHTS)],
        *[(cut(size), r"model\.safetensors: cannot be read as safet") for size in (3, 60, -1)],
        ({WEIGHTS: POINTER}, "model.safetensors: is a pointer of Git LFS, get the fil"),
        ({"tokenizer.json": POINTER}, "tokenizer.json: is a pointer of Git LFS, get the file with"),
        ({INDEX: {}} | NO_WEIGHTS, "weight_map must name the weights' files"),
        ({INDEX: {"weight_map": {"a": "../b"}}} | NO_WEIGHTS, "must be a path inside the model's"),
        ({INDEX: {"weight_map": {"a": "none"}}} | NO_WEIGHTS, "none: cannot be read"),
        ({"pytorch_model.bin": ""} | NO_WEIGHTS, r"bin is refused \(.*can run code.*save_pretrai"),
        ({"tf_model.h5": ""} | NO_WEIGHTS, r"tf_model.h5 is refused \(.*not readable here.*save_"),
        ({"vocab.txt": lambda data: data + b"more\n"}, "vocab.txt: must have at most 211 entries"),
        ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "pooling 'median' is not suppo"),
        *[
            ({"config.json": {name: value}}, rf"config\.json: {name} is not supported, got ")
            for name, value in UNKNOWN.items()
        ],
    ],
)
def test_what_is_missing_damaged_or_unknown_is_named(tmp_path, files, message):
    write_sentence_transformers(tmp_path / "source")
    refused(tmp_path, message, files)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("family", SETTINGS)
def test_settings_that_change_no_vector_are_no_obstacle(tmp_path, family):
    source, kind = tmp_path / "source", family.removesuffix("_hub")
    if family == "bert":
        write_tiny_huggingface(source)
    else:
        write_architecture(source, kind, hub=True if kind != family else None)
    plain = imported(tmp_path, "plain")
    values = json.loads((source / "config.json").read_text())
    nulls = dict.fromkeys(UNKNOWN)  # which are no settings
    said = {**nulls, **BASE, **SETTINGS[family], **values}
    bundle = imported(tmp_path, files={"config.json": said})
    assert bundle.fingerprint == plain.fingerprint


def test_a_folder_that_holds_something_else_is_not_overwritten(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    assert imported(tmp_path) == imported(tmp_path)  # the same bundle may lie there
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "link"):
        with pytest.raises(InputError, match=f"{name}: exists and is not empty"):
            imported(tmp_path, name)
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "link", "mine", "source"}
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


SIZES = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings")
SIZES += ("num_hidden_layers", "type_vocab_size", "num_attention_heads")
GATED = ("modernbert", "nomic_bert", "new", "jina")  # for some of whose sizes no weights speak


@pytest.mark.parametrize("number", [10**9, 10**30])
@pytest.mark.timeout(60)  # a loop of so many steps takes longer
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *product(("vocab.txt",), SIZES),
        ("tokenizer.json", "vocab_size"),
        *product(GATED, ("num_hidden_layers", "max_position_embeddings")),
    ],
)
def test_a_number_that_the_weights_do_not_have_is_refused_at_once(tmp_path, kind, name, number):
    files = {"config.json": {name: number}}
    if kind in GATED:
        write_architecture(tmp_path / "source", kind)
    else:
        write_tiny_huggingface(tmp_path / "source")
    if kind == "tokenizer.json":
        entries = {entry: row for row, entry in enumerate(small_vocabulary())}
        files |= {"tokenizer.json": {"model": {"vocab": entries}}, "vocab.txt": None}
    with limited_memory():
        refused(tmp_path, f"{name} must be " if kind in GATED else "must ", files)


@contextmanager
def limited_memory():
    """A gigabyte more than there is: what runs away ends in MemoryError, not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
