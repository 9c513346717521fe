"""Models by their names and folders: found, imported once, or refused."""

import os
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from bert_embed.base.errors import InputError
from bert_embed.bundle.cache import cache_folder
from bert_embed.bundle.find import resolve_model
from tests.support.command import files_of_at_most, flip
from tests.support.models.folder import change, imported, refused, snapshot_folder
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow

XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."  # as of each process once


@pytest.fixture
def source(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    return tmp_path / "source"


def test_a_model_folder_is_imported_once_and_again_when_it_changed_or_is_damaged(source, cache):
    bundle = resolve_model(str(source))
    assert [str(path) for path in cache.iterdir()] == [bundle.path]
    assert (bundle.source, os.stat(bundle.path).st_mode & 0o777) == (str(source), 0o755)
    written = os.stat(bundle.path).st_mtime_ns
    assert resolve_model(str(source)) == bundle
    assert os.stat(bundle.path).st_mtime_ns == written
    for _ in range(2):
        os.utime(source / "model.safetensors", (1, 1))  # touched alone
        assert resolve_model(str(source)) == bundle
    os.truncate(f"{bundle.path}/vocab.txt", 5)
    assert resolve_model(str(source)).fingerprint == bundle.fingerprint
    assert [str(path) for path in cache.iterdir()] == [bundle.path]
    flip(source / "model.safetensors", -1)  # the size is the same
    os.utime(source / "model.safetensors", (1, 1))  # and the time, as of archives without times
    assert resolve_model(source).fingerprint != bundle.fingerprint


def test_a_folder_of_modules_that_is_a_link_is_looked_into(tmp_path, cache):
    write_sentence_transformers(tmp_path / "source", pooling={"pooling_mode": "max"})
    shutil.move(tmp_path / "source" / "1_Pooling", tmp_path / "pooling")
    os.symlink(tmp_path / "pooling", tmp_path / "source" / "1_Pooling")
    assert resolve_model(tmp_path / "source").defaults.pooling == "max"
    change(tmp_path / "pooling", {"config.json": {"pooling_mode": "cls"}})
    assert resolve_model(tmp_path / "source").defaults.pooling == "cls"


def test_names_of_files_need_not_be_utf_8(tmp_path, cache):
    folder = tmp_path / os.fsdecode(b"mod\xe8le")
    write_tiny_huggingface(folder)
    (folder / os.fsdecode(b"not\xe9s.txt")).touch()
    assert resolve_model(folder).source == str(folder)


def test_the_default_model_by_its_name_of_the_hub_needs_no_package(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    whole, commit = "sentence-transformers/all-MiniLM-L6-v2", "1a" * 20
    folder = snapshot_folder(tmp_path / "hub", whole, commit)
    write_tiny_huggingface(folder)
    for name in ("all-MiniLM-L6-v2", whole, "minilm"):  # no index has the package
        assert resolve_model(name).source == f"hf://{whole}@{commit}"
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="the default, could not be fetched"):
        resolve_model(whole)


def test_processes_that_import_at_once_agree(source, cache):
    script = "import sys, bert_embed.bundle.find as r; print(r.resolve_model(sys.argv[1]).path)"
    command, pipes = [sys.executable, "-c", script, str(source)], {"text": True}
    pipes |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    started = [subprocess.Popen(command, **pipes) for _ in range(2)]
    said, errors = zip(*(process.communicate() for process in started), strict=True)
    assert [process.returncode for process in started] == [0, 0]
    assert {*"".join(errors).splitlines()} <= {XNNPACK}
    assert {f"{path}\n" for path in cache.iterdir()} == {*said}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_a_folder_of_half_precision_is_imported(source, cache, dtype):
    tensors = write_tiny_huggingface(source, dtype=dtype)
    found = resolve_model(source)
    rounded = {name: array.astype(dtype).astype(np.float32) for name, array in tensors.items()}
    write_tiny_huggingface(source, changes=rounded)
    assert found.fingerprint == imported(source.parent).fingerprint


@pytest.mark.parametrize("beside", [True, False])
def test_an_adapter_is_refused_with_the_way_to_merge_it(source, cache, beside):
    model = {} if beside else dict.fromkeys(("config.json", "model.safetensors", "vocab.txt"))
    change(source, {"adapter_config.json": {"peft_type": "LORA", "r": 4}} | model)
    with pytest.raises(InputError, match=r"adapter_config\.json is that of .*merge_and_unload\(\)"):
        resolve_model(source)
    refused(source.parent, r"merge_and_unload\(\)")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert-x", "model must be minilm, .* holds bert-x; .* `hf download ORGANIZATION/bert-x`"),
        ("a b", "model must be minilm, a bundle, .*, got 'a b'"),
        ("empty", r"model must hold one of bundle\.json, config\.json, .* none of them"),
        ("./m.zip", r"must be a folder or a \.tar\.gz or \.tgz, .*m\.zip is"),
        ("x" * 300, "model"),
    ],
)
def test_an_unknown_model_is_refused(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.zip").write_bytes(b"PK")
    with pytest.raises(InputError, match=message):
        resolve_model(name)


def test_a_tilde_is_the_home_folder(source, monkeypatch):
    monkeypatch.setenv("HOME", str(source.parent))
    monkeypatch.setenv("BERT_EMBED_CACHE", "~/kept")
    assert resolve_model(f"~/{source.name}").path.startswith(f"{source.parent}/kept/")


def test_a_disk_that_a_model_fills_is_named_with_its_folder(source, cache):
    refused = pytest.raises(InputError, match=r"cache: models cannot be kept there \(File too l")
    with files_of_at_most(20_000), refused:
        resolve_model(str(source))
    assert list(cache.iterdir()) == []
    assert resolve_model(str(source)).source == str(source)


def test_a_user_without_a_home_is_told_where_to_keep_models(monkeypatch):
    monkeypatch.delenv("BERT_EMBED_CACHE", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_000)  # in no list of users
    with pytest.raises(InputError, match="set BERT_EMBED_CACHE to a folder"):
        cache_folder()
