"""TF Hub encoders: imported by their variables, or refused."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import load_tensors
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from bert_embed.importers.sources import unpack
from bert_embed.pipeline.cli import main
from tests.support.command import flip
from tests.support.models.folder import change, imported, refused
from tests.support.models.google import write_tiny_hub

pytestmark = pytest.mark.slow

HANDLE = "https://tfhub.dev/tensorflow/tiny_bert/4"
DATA = "variables/variables.data-00000-of-00001"
GRAPH, VOCABULARY = "saved_model.pb", "assets/vocab.txt"
OTHER = r"/source: is not a BERT encoder of TF Hub or tf-models: it has no variable word_emb"


@pytest.mark.parametrize(
    ("scope", "hidden_act"), [("", "gelu_new"), ("bert_encoder_v2_1/", "gelu"), ("", "relu")]
)
def test_official_names_have_the_activation_of_the_graph(tmp_path, monkeypatch, scope, hidden_act):
    """The model is read, and never runs; what beside the call computes says nothing."""
    beside = tf.nn.relu if hidden_act == "gelu" else None
    write_tiny_hub(tmp_path / "source", scope=scope, hidden_act=hidden_act, beside=beside)
    monkeypatch.setattr(tf.saved_model, "load", None)
    bundle = imported(tmp_path)
    assert bundle.config.hidden_act == hidden_act
    settings = [bundle.tokenizer_settings[name] for name in ("lower_case", "max_word_chars")]
    assert [*settings, bundle.max_seq_length, bundle.has_pooler] == [True, 200, 64, True]
    twin = import_model(str(tmp_path / "huggingface"), str(tmp_path / "twin"))
    assert bundle.config == twin.config
    ours, theirs = load_tensors(bundle), load_tensors(twin)
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor)


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({"official": False}, {}, OTHER),
        ({"hidden_act": "tanh"}, {}, "its graph computes none of gelu, gelu_new and relu"),
        ({"lower_case": None}, {}, r"does not say whether .* lower_case or cased"),
        ({"vocabulary": False}, {}, r"has no vocabulary, put the model's vocab\.txt into"),
        ({}, {DATA: lambda data: data[:100]}, "the variables cannot be read, perhaps cut"),
        ({}, {GRAPH: lambda data: data[:1000]}, r"saved_model\.pb cannot be read, perhaps cut"),
        ({}, {VOCABULARY: lambda data: data + b"more\n"}, "vocab.txt: must have 211 entries as"),
    ],
)
def test_any_other_saved_model_is_refused_by_what_it_holds(tmp_path, settings, files, message):
    write_tiny_hub(tmp_path / "source", **settings)
    refused(tmp_path, message, files)


def test_a_model_without_a_pooler_is_imported_with_a_vocabulary_beside_it(tmp_path):
    write_tiny_hub(tmp_path / "source", pooler=False, vocabulary=False)
    entries = (tmp_path / "huggingface" / "vocab.txt").read_bytes()
    change(tmp_path / "source" / "assets", {"vocab.txt": entries})
    bundle = imported(tmp_path)
    assert (bundle.config.num_hidden_layers, bundle.has_pooler) == (2, False)
    assert bundle.tokenizer_settings["lower_case"]
    assert Encoder(bundle).encode("the bank").shape == (32,)


def test_casing_is_the_models_own_or_what_the_caller_says(tmp_path):
    write_tiny_hub(tmp_path / "a" / "source", lower_case=False, cased=True)
    assert imported(tmp_path / "a").tokenizer_settings["lower_case"] is False
    write_tiny_hub(tmp_path / "b" / "source", lower_case=None)
    words = ["model", "import", str(tmp_path / "b" / "source"), str(tmp_path / "b" / "bundle")]
    assert main([*words, "--cased"]) == 0
    with pytest.raises(ValueError, match="is a bundle already"):
        import_model(words[-1], str(tmp_path / "bundle"))


def test_a_tensorflow_1_module_is_refused_with_the_way_out(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("value", initializer=1.0)
        session.run(tf.compat.v1.global_variables_initializer())
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "source"))
        builder.add_meta_graph_and_variables(session, ["train"])
        builder.save()
    refused(tmp_path, "SavedModel of TensorFlow 1, take version 3 or later")
    (tmp_path / "source" / "tfhub_module.pb").write_bytes(b"\x08\x03")
    refused(tmp_path, r"TensorFlow 1 hub\.Module, take version 3 or later")


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("text", "it returns no sequence_output$"),
        ("no call", "is not a BERT encoder of TF Hub, it cannot be called$"),
    ],
)
def test_what_is_no_bert_encoder_is_refused_by_name(tmp_path, case, message):
    module = tf.Module()
    module.words = tf.Variable(tf.zeros([4, 8]), name="word_embeddings/embeddings")
    if case == "text":
        module.__call__ = tf.function(tf.strings.length, [tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "source"))
    refused(tmp_path, message)


def pack(folder, archive, inside="."):
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, arcname=inside)
    return archive


def add(archive, name, kind=tarfile.REGTYPE, content=b"", linked=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, linked, len(content)
    archive.addfile(entry, io.BytesIO(content))


def test_an_archive_is_imported_on_the_way_and_again_when_it_changed(tmp_path, cache):
    write_tiny_hub(tmp_path / "a" / "source")
    archive = pack(tmp_path / "a" / "source", tmp_path / "tiny.tar.gz")
    bundle = resolve_model(str(archive))
    assert bundle.source == str(archive)
    assert resolve_model(str(archive)) == bundle
    assert bundle.fingerprint == imported(tmp_path / "a").fingerprint
    write_tiny_hub(tmp_path / "b" / "source", seed=7)
    pack(tmp_path / "b" / "source", archive, inside="tiny")  # it may hold the model's folder
    assert resolve_model(str(archive)).fingerprint != bundle.fingerprint


@pytest.mark.parametrize(
    ("name", "linked"),
    [
        ("../escaped", ""),
        ("/tmp/escaped", ""),
        ("inside", "../../outside"),
        ("inside", "/etc/hostname"),
        ("inside", "absent"),
        ("inside", "link"),  # to itself
        ("inside", "assets"),
    ],
)
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_an_archive_whose_paths_lead_out_is_refused(tmp_path, name, linked, kind):
    archive = tmp_path / "evil.tgz"
    with tarfile.open(archive, "w:gz") as file:
        add(file, "assets", tarfile.DIRTYPE)
        add(file, name, content=b"abc")
        if linked:
            add(file, "link", kind, linked=linked)
    with pytest.raises(InputError, match=r"evil\.tgz: refused, "):
        import_model(str(archive), str(tmp_path / "bundle"))
    assert not (tmp_path / "escaped").exists()


def test_a_link_of_an_archive_is_a_copy_of_the_file_that_it_names(tmp_path):
    with tarfile.open(tmp_path / "model.tgz", "w:gz") as file:
        add(file, "./blobs/weights", content=b"abc")
        add(file, GRAPH, tarfile.SYMTYPE, linked="blobs/weights")
        add(file, "again", tarfile.LNKTYPE, linked="./blobs/weights")
    (tmp_path / "to").mkdir()
    folder = unpack(tmp_path / "model.tgz", tmp_path / "to")
    for name in (GRAPH, "again"):
        assert (folder / name).read_bytes() == b"abc"
        assert not (folder / name).is_symlink()


def test_an_archive_that_is_none_or_holds_no_model_is_named(tmp_path):
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08\x00")
    change(tmp_path / "folder", {"weights": bytes(5000)})
    damaged = pack(tmp_path / "folder", tmp_path / "damaged.tar.gz")
    flip(damaged, -8)  # of gzip's checksum
    (tmp_path / "folder" / "weights").unlink()
    pack(tmp_path / "folder", tmp_path / "empty.tar.gz")
    tarfile.open(tmp_path / "nothing.tar.gz", "w:gz").close()
    none = r"must hold one of bundle\.json, .* none of them"
    for name, message in (
        ("cut", "cannot be unpacked, perhaps cut"),
        ("damaged", "cannot be unpacked, perhaps cut: CRC check failed"),
        ("empty", none),
        ("nothing", none),
    ):
        with pytest.raises(InputError, match=message):
            import_model(f"{tmp_path}/{name}.tar.gz", str(tmp_path / "bundle"))


def test_a_handle_is_found_in_the_hubs_own_cache(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "tfhub"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(OSError, match=r"tiny_bert/4: could not be fetched \(.* TFHUB_CACHE_DIR"):
        resolve_model(HANDLE)
    name = hashlib.sha1(HANDLE.encode()).hexdigest()  # as tensorflow_hub keeps it
    write_tiny_hub(tmp_path / "tfhub" / name)
    there = import_model(str(tmp_path / "tfhub" / name), str(tmp_path / "bundle"))
    bundle = resolve_model(HANDLE)
    assert (bundle.source, bundle.fingerprint) == (HANDLE, there.fingerprint)
