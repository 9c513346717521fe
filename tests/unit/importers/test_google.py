"""google-research checkpoints: the same weights give the same vectors, what is wrong is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from bert_embed.importers.google import casing_of, find_checkpoint, import_google
from bert_embed.pipeline.cli import main
from tests.support.models.google import write_tiny_google

TEXTS = ["the bank of the river", "money in the vault", "a"]
NAME = "uncased_L-2_H-32_A-4"


def imported(folder, **settings):
    return import_google(str(folder), str(folder.parent / "bundle"), **settings)


def test_the_weights_give_the_vectors_of_their_hugging_face_twin(tmp_path):
    write_tiny_google(tmp_path / NAME)
    google = import_model(str(tmp_path / NAME), str(tmp_path / "bundle"))
    twin = import_model(str(tmp_path / "huggingface"), str(tmp_path / "other"))
    assert (
        google.tokenizer_settings["lower_case"],
        google.tokenizer_settings["max_word_chars"],
        google.max_seq_length,
    ) == (True, 200, 64)
    assert google.config == twin.config
    for settings in ({"pooling": "mean"}, {"pooling": "pooler"}, {"layers": [0]}):
        one, other = (Encoder(each).encode(TEXTS, **settings) for each in (google, twin))
        np.testing.assert_array_equal(one, other)


def test_optimiser_and_heads_are_ignored_by_name(tmp_path):
    noise = np.zeros((2, 2), np.float32)
    extra = {
        "global_step": np.zeros((), np.int64),
        "bert/embeddings/word_embeddings/adam_m": noise,
        "bert/encoder/layer_0/output/dense/kernel/adam_v": noise,
        "cls/predictions/output_bias": noise,
        "cls/predictions/transform/dense/kernel": noise,
        "cls/seq_relationship/output_weights": noise,
        "output_weights": noise,
        "output_bias": noise,
    }
    write_tiny_google(tmp_path / NAME, extra=extra)
    assert imported(tmp_path / NAME).has_pooler


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"extra": {"bert/adapter/kernel": np.zeros(2, np.float32)}},
            "bert/adapter/kernel is not",
        ),
        (
            {"without": "bert/encoder/layer_1/output/dense/bias"},
            "layer_1/output/dense/bias is mis",
        ),
        ({"hidden_act": "swish"}, "hidden_act must be gelu or relu, got 'swish'"),
    ],
    ids=["left-over", "missing", "activation"],
)
def test_what_cannot_be_computed_is_named(tmp_path, changes, message):
    write_tiny_google(tmp_path / NAME, **changes)
    with pytest.raises(ValueError, match=message):
        imported(tmp_path / NAME)


def test_a_checkpoint_of_tensorflow_2_is_refused_with_the_way_out(tmp_path):
    write_tiny_google(tmp_path / NAME)
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(tmp_path / NAME / "bert_model.ckpt"))
    with pytest.raises(ValueError, match="is a checkpoint of TensorFlow 2, only those of Tens"):
        imported(tmp_path / NAME)


def test_a_tensor_of_another_shape_is_named(tmp_path):
    write_tiny_google(tmp_path / NAME)
    config = json.loads((tmp_path / NAME / "bert_config.json").read_text())
    (tmp_path / NAME / "bert_config.json").write_text(json.dumps(config | {"vocab_size": 9}))
    with pytest.raises(ValueError, match=r"word_embeddings must be \[9, 32\], is"):
        imported(tmp_path / NAME)


def test_a_model_without_a_pooler_is_fine_until_it_is_asked_for(tmp_path):
    write_tiny_google(tmp_path / NAME, pooler=False)
    encoder = Encoder(imported(tmp_path / NAME))
    assert encoder.encode(TEXTS).shape == (3, 32)
    with pytest.raises(ValueError, match="pooling must not be pooler"):
        encoder.encode(TEXTS, pooling="pooler")


def test_the_checkpoint_is_chosen_by_name_or_is_the_latest(tmp_path):
    folder = tmp_path / NAME
    write_tiny_google(folder, checkpoint="model.ckpt-10", seed=1)
    first = (folder / "checkpoint").read_text()
    write_tiny_google(folder, checkpoint="model.ckpt-20", seed=2)
    assert find_checkpoint(folder, None).endswith("model.ckpt-20")
    assert find_checkpoint(folder, "model.ckpt-10").endswith("model.ckpt-10")
    (folder / "checkpoint").write_text(first)
    assert find_checkpoint(folder, None).endswith("model.ckpt-10")
    escaped = r'model_checkpoint_path: "/home/m\303\274ller/model.ckpt-20"'  # as TensorFlow has it
    (folder / "checkpoint").write_text(escaped)
    assert find_checkpoint(folder, None).endswith("model.ckpt-20")
    with pytest.raises(ValueError, match=r"must be one of model\.ckpt-10, model\.ckpt-20 in .*got"):
        find_checkpoint(folder, "model.ckpt-30")
    (folder / "checkpoint").unlink()
    with pytest.raises(ValueError, match=r"checkpoint must be one of model\.ckpt-10, model"):
        find_checkpoint(folder, None)


def test_missing_and_cut_files_are_named(tmp_path):
    write_tiny_google(tmp_path / NAME)
    data = next((tmp_path / NAME).glob("*.data-*"))
    content = data.read_bytes()
    data.write_bytes(content[:100])
    with pytest.raises(ValueError, match="the checkpoint cannot be read, perhaps cut"):
        imported(tmp_path / NAME)
    data.unlink()
    with pytest.raises(ValueError, match=r"bert_model\.ckpt\.data-00000-of-00001 is missing"):
        imported(tmp_path / NAME)


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
    ],
)
def test_casing_goes_by_the_names_that_google_gave(name, lower):
    assert casing_of(Path("/models") / name) is lower


@pytest.mark.parametrize("place", ["bert_config.json", "tokenizer_config.json"])
def test_casing_that_files_say_is_followed_or_refused(tmp_path, place):
    for name, said in (("mine", True), ("other", False), (NAME, False)):
        write_tiny_google(tmp_path / name)
        path = tmp_path / name / place
        values = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(values | {"do_lower_case": said}))
    for name, said in (("mine", True), ("other", False)):
        bundle = import_google(str(tmp_path / name), str(tmp_path / f"bundle of {name}"))
        assert bundle.tokenizer_settings["lower_case"] is said
    with pytest.raises(
        ValueError, match=rf"{place}: do_lower_case is False, but the folder's name"
    ):
        imported(tmp_path / NAME)
    assert imported(tmp_path / NAME, lower_case=True).tokenizer_settings["lower_case"]


def test_accents_that_stay_are_refused(tmp_path):
    write_tiny_google(tmp_path / NAME)
    path = tmp_path / NAME / "tokenizer_config.json"
    path.write_text('{"do_lower_case": true, "strip_accents": false}')
    with pytest.raises(ValueError, match="strip_accents is not supported, got False"):
        imported(tmp_path / NAME)


def test_white_space_around_entries_is_none_of_them(tmp_path):
    """As FullTokenizer reads vocab.txt."""
    write_tiny_google(tmp_path / NAME)
    path = tmp_path / NAME / "vocab.txt"
    entries = path.read_text().split("\n")
    number = entries.index("bank")
    path.write_text("\n".join([*entries[:number], " bank ", *entries[number + 1 :]]))
    assert Encoder(imported(tmp_path / NAME)).tokenizer.vocab[number] == "bank"


def test_a_folder_of_hugging_face_with_a_bert_config_is_one(tmp_path):
    write_tiny_google(tmp_path / NAME)
    for path in (tmp_path / NAME).glob("bert_model.ckpt*"):
        path.unlink()
    (tmp_path / NAME / "config.json").write_bytes(
        (tmp_path / "huggingface" / "config.json").read_bytes()
    )
    (tmp_path / NAME / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"model\.safetensors is missing and pytorch_model\.bin is"
    ):
        import_model(str(tmp_path / NAME), str(tmp_path / "bundle"))


def test_casing_that_nobody_told_is_asked_for(tmp_path, capsys):
    write_tiny_google(tmp_path / "mine")
    words = ["model", "import", str(tmp_path / "mine"), str(tmp_path / "bundle")]
    assert main(words) == 2
    assert "--lower_case or --cased" in capsys.readouterr().err
    assert main([*words, "--cased", "--activation", "relu"]) == 0
    said = capsys.readouterr().out
    assert "2 layers of 32, relu, WordPiece, cased" in said


def test_settings_of_a_checkpoint_are_refused_for_other_folders(tmp_path, capsys):
    write_tiny_google(tmp_path / NAME)
    words = ["model", "import", str(tmp_path / "huggingface"), str(tmp_path / "b"), "--cased"]
    assert main(words) == 2
    assert "--lower_case is for google-research checkpoints" in capsys.readouterr().err


@pytest.mark.parametrize("number", [3, 10**9])
def test_more_layers_than_there_are_are_refused_at_once(tmp_path, number):
    write_tiny_google(tmp_path / NAME)
    path = tmp_path / NAME / "bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": number}))
    with pytest.raises(ValueError, match=f"num_hidden_layers must be 2, .*, got {number}$"):
        import_google(str(tmp_path / NAME), str(tmp_path / "bundle"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_act": {"a": 1}}, "hidden_act must be gelu or relu, got {'a': 1}"),
        ({"attention_scale": 0.5}, r"attention_scale is not supported, got 0\.5"),
        ([1], "must hold an object, got a list"),
        (
            {"position_embedding_type": "alibi", "feed_forward_type": "geglu"},
            "must be of a BERT encoder, is of a Jina encoder",
        ),
    ],
)
def test_a_configuration_of_another_type_is_refused(tmp_path, values, message):
    write_tiny_google(tmp_path / NAME)
    path = tmp_path / NAME / "bert_config.json"
    is_object = isinstance(values, dict)
    path.write_text(json.dumps(json.loads(path.read_text()) | values if is_object else values))
    with pytest.raises(ValueError, match=rf"bert_config\.json: {message}"):
        import_google(str(tmp_path / NAME), str(tmp_path / "bundle"))
