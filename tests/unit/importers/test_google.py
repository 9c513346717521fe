"""google-research checkpoints: the same weights give the same vectors, what is wrong is named."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_embed.importers import import_model
from bert_embed.importers.google import casing_of, find_checkpoint
from bert_embed.pipeline.cli import main
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.folder import change
from tests.support.models.google import write_tiny_google, write_tiny_hub
from tests.support.models.tiny import small_vocabulary

NAME = "uncased_L-2_H-32_A-4"
CONFIG, DATA = "bert_config.json", "bert_model.ckpt.data-00000-of-00001"
THREE = np.zeros(3, np.float32)
BIAS = "bert/encoder/layer_1/output/dense/bias"
JINA = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
ACCENTS = {"do_lower_case": True, "strip_accents": False}


def imported(folder, **settings):
    return import_model(str(folder), str(folder.parent / "bundle"), **settings)


def refused(folder, message, **settings):
    with pytest.raises(ValueError, match=message):
        imported(folder, **settings)


def test_the_configuration_is_that_of_its_hugging_face_twin(tmp_path):
    """And its fingerprint that of TF Hub's; optimiser and heads are ignored by name."""
    noise = ["bert/embeddings/word_embeddings/adam_m", "cls/predictions/output_bias"]
    noise += ["bert/encoder/layer_0/output/dense/kernel/adam_v", "output_weights", "output_bias"]
    noise += ["cls/predictions/transform/dense/kernel", "cls/seq_relationship/output_weights"]
    extra = dict.fromkeys(noise, np.zeros((2, 2), np.float32))
    extra["global_step"] = np.zeros((), np.int64)
    write_tiny_google(tmp_path / NAME, changes=extra)
    # White space around entries is none of them, as FullTokenizer reads vocab.txt.
    spaced = {"vocab.txt": lambda data: data.replace(b"\nbank\n", b"\n bank \n") + b"\n \n"}
    change(tmp_path / NAME, spaced)
    google = imported(tmp_path / NAME)
    settings = [google.tokenizer_settings[name] for name in ("lower_case", "max_word_chars")]
    assert [*settings, google.max_seq_length, google.has_pooler] == [True, 200, 64, True]
    assert load_tokenizer(google).vocab == tuple(small_vocabulary())
    twin = import_model(str(tmp_path / "huggingface"), str(tmp_path / "other"))
    assert google.config == twin.config
    # Of the twin nothing says google-research, so its texts are cut into words by other rules.
    write_tiny_hub(tmp_path / "2" / "hub")
    hub = import_model(str(tmp_path / "2" / "hub"), str(tmp_path / "2" / "bundle"))
    assert hub.fingerprint == google.fingerprint != twin.fingerprint


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({"changes": {"bert/adapter/kernel": THREE}}, {}, "bert/adapter/kernel is not"),
        ({"changes": {BIAS: None}}, {}, "layer_1/output/dense/bias is missing"),
        ({"hidden_act": "swish"}, {}, "hidden_act must be gelu or relu, got 'swish'"),
        ({}, {CONFIG: {"vocab_size": 9}}, r"word_embeddings must be \[9, 32\], is"),
        ({}, {CONFIG: {"attention_scale": 0.5}}, "json: attention_scale is not supported, got 0.5"),
        ({}, {CONFIG: [1]}, rf"{CONFIG}: must hold an object, got a list"),
        ({}, {CONFIG: JINA}, rf"{CONFIG}: must be of a BERT encoder, is of a Jina encoder"),
        ({}, {CONFIG: {"num_hidden_layers": 10**9}}, f"layers must be 2, .*, got {10**9}$"),
        ({}, {"tokenizer_config.json": ACCENTS}, "strip_accents is not supported, got False"),
        ({}, {DATA: lambda data: data[:100]}, "the checkpoint cannot be read, perhaps cut"),
        ({}, {DATA: None}, f"{DATA} is missing"),
    ],
)
def test_what_cannot_be_computed_is_named(tmp_path, settings, files, message):
    write_tiny_google(tmp_path / NAME, **settings)
    change(tmp_path / NAME, files)
    refused(tmp_path / NAME, message)


def test_a_checkpoint_of_tensorflow_2_is_refused_with_the_way_out(tmp_path):
    write_tiny_google(tmp_path / NAME)
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(tmp_path / NAME / "bert_model.ckpt"))
    refused(tmp_path / NAME, "is a checkpoint of TensorFlow 2, only those of Tens")


def test_the_checkpoint_is_chosen_by_name_or_is_the_latest(tmp_path):
    folder = tmp_path / NAME
    write_tiny_google(folder, checkpoint="model.ckpt-10", seed=1)
    first = (folder / "checkpoint").read_text()
    write_tiny_google(folder, checkpoint="model.ckpt-20", seed=2)
    escaped = r'model_checkpoint_path: "/home/m\303\274ller/model.ckpt-20"'  # as TensorFlow has it
    for latest, number in (((folder / "checkpoint").read_text(), 20), (first, 10), (escaped, 20)):
        (folder / "checkpoint").write_text(latest)
        assert find_checkpoint(folder, None).endswith(f"model.ckpt-{number}")
    assert find_checkpoint(folder, "model.ckpt-10").endswith("model.ckpt-10")
    (folder / "checkpoint").unlink()
    for name in (None, "model.ckpt-30"):
        with pytest.raises(ValueError, match=r"must be one of model\.ckpt-10, model\.ckpt-20 in"):
            find_checkpoint(folder, name)


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("multi_cased_L-12_H-768_A-12", False),
    ],
)
def test_casing_goes_by_the_names_that_google_gave(name, lower):
    assert casing_of(Path("/models") / name) is lower


@pytest.mark.parametrize("place", ["bert_config.json", "tokenizer_config.json"])
def test_casing_that_files_say_is_followed_or_refused(tmp_path, place):
    for name, said in (("mine", True), ("other", False), (NAME, False)):
        write_tiny_google(tmp_path / name / name, pooler=False)
        change(tmp_path / name / name, {place: {"do_lower_case": said}})
        if name != NAME:
            bundle = imported(tmp_path / name / name)
            assert (bundle.tokenizer_settings["lower_case"], bundle.has_pooler) == (said, False)
    refused(tmp_path / NAME / NAME, f"{place}: do_lower_case is False, but the folder's name")
    bundle = imported(tmp_path / NAME / NAME, lower_case=True)
    assert bundle.tokenizer_settings["lower_case"]


def test_a_folder_of_hugging_face_with_a_bert_config_is_one(tmp_path):
    write_tiny_google(tmp_path / NAME)
    for path in (tmp_path / NAME).glob("bert_model.ckpt*"):
        path.unlink()
    config = (tmp_path / "huggingface" / "config.json").read_bytes()
    change(tmp_path / NAME, {"config.json": config, "pytorch_model.bin": b""})
    with pytest.raises(ValueError, match=r"model\.safetensors is missing and pytorch_model"):
        import_model(str(tmp_path / NAME), str(tmp_path / "bundle"))


def test_casing_that_nobody_told_is_asked_for(tmp_path, capsys):
    write_tiny_google(tmp_path / "mine")
    words = ["model", "import", str(tmp_path / "mine"), str(tmp_path / "bundle")]
    assert main(words) == 2
    assert "--lower_case or --cased" in capsys.readouterr().err
    assert main([*words, "--cased", "--activation", "relu"]) == 0
    assert "2 layers of 32, relu, WordPiece, cased" in capsys.readouterr().out
    other = [*words[:2], str(tmp_path / "huggingface"), str(tmp_path / "b")]
    for flag in (["--cased"], ["--activation", "relu"]):
        assert main([*other, *flag]) == 2
        assert "is for google-research checkpoints" in capsys.readouterr().err
