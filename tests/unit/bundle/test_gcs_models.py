"""Models in Cloud Storage, on a real server: fetched whole, checked, once; faults are named."""

from pathlib import Path

import pytest

import bert_embed
from bert_embed.backends.litert import FILES
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import is_weights, read_bundle
from bert_embed.bundle.cache import RemoteModel, fetch, list_model
from bert_embed.bundle.find import resolve_model
from bert_embed.importers import import_model
from bert_embed.pipeline.cli import main
from bert_embed.storage.local import FileInfo
from tests.support.models.folder import write
from tests.support.models.google import write_tiny_google, write_tiny_hub
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow

GOOGLE = "uncased_L-2_H-32_A-4"


@pytest.fixture
def small(tmp_path):
    write(tmp_path / "small", {"config.json": {}, "sub/data": bytes(range(256)) * 9})
    return tmp_path / "small"


def files_below(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def test_a_folder_is_fetched_whole_and_once_and_anew_when_it_changed(gcs, cache, small):
    url = gcs.put_folder(small, "once", "models/mine")
    first = fetch(list_model(f"{url}/"))
    assert first.name == "mine"
    assert (first / "sub" / "data").read_bytes() == (small / "sub" / "data").read_bytes()
    written = (first / "config.json").stat().st_mtime_ns
    assert fetch(list_model(url)) == first
    assert (first / "config.json").stat().st_mtime_ns == written
    (first / "sub" / "data").unlink()  # lost
    assert fetch(list_model(url)) == first
    files = {f"{first.parent.name}/mine/{name}" for name in ("config.json", "sub/data")}
    assert files_below(cache / "gs") == files | {f".{first.parent.name}.lock"}
    gcs.client.bucket("once").blob("models/mine/config.json").upload_from_string("[]")
    second = fetch(list_model(url))
    assert second != first
    assert (second / "config.json").read_text() == "[]"


def test_a_file_that_changes_while_it_is_fetched_is_refused(gcs, cache, small):
    url = gcs.put_folder(small, "races", "mine")
    listed = list_model(url)
    gcs.client.bucket("races").blob("mine/config.json").upload_from_string("[]")
    with pytest.raises(ValueError, match=r"config\.json was replaced or removed after"):
        fetch(listed)
    assert {Path(name).suffix for name in files_below(cache)} == {".lock"}


def test_weights_for_other_programs_are_left_where_they_are(gcs, cache, small):
    names = ("model.safetensors", "pytorch_model.bin", "onnx/model.onnx", "tf_model.h5")
    write(small, dict.fromkeys(names, "weights"))
    url = gcs.put_folder(small, "others", "mine")
    assert files_below(fetch(list_model(url))) == {"config.json", "model.safetensors", "sub/data"}
    gcs.client.bucket("others").blob("mine/model.safetensors").delete()
    assert "pytorch_model.bin" in files_below(fetch(list_model(url)))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gs://no-such-bucket/model", "there is no bucket no-such-bucket"),
        ("gs://faults/nothing", "no files are there, check the bucket's and the folder's name"),
        ("gs://faults/texts", r"must hold one of bundle\.json, config\.json, .* none of them"),
        ("gs://", "model must be gs://BUCKET/FOLDER for Cloud Storage, got 'gs://'"),
        ("gs://faults/none.tar.gz", "no files are there"),
    ],
)
def test_what_is_not_there_is_named(gcs, cache, tmp_path, url, message):
    write(tmp_path / "texts", {"big.txt": "no model"})
    gcs.put_folder(tmp_path / "texts", "faults", "texts")
    with pytest.raises(ValueError, match=message):
        resolve_model(url)
    assert not cache.exists()


@pytest.mark.parametrize("name", ["../b", "a/../../b", "a//b", "/b", ".", "a\\b"])
def test_a_name_that_leads_out_is_refused(name):
    # The server's own file system would not hold such an object; Cloud Storage does.
    with pytest.raises(ValueError, match="has a name that no file can have"):
        RemoteModel("gs://bucket/model", {name: FileInfo(f"gs://bucket/model/{name}", 1, 0.0)})


@pytest.mark.parametrize(("precision", "other"), [("float32", "int8"), ("int8", "float32")])
def test_a_load_fetches_the_weights_of_its_engine_alone(gcs, cache, tiny_bundle, precision, other):
    url = gcs.put_folder(Path(tiny_bundle), "bundles", precision)
    encoder = bert_embed.load(url, precision=precision, device="cpu")
    weights = set(filter(is_weights, read_bundle(tiny_bundle).files))
    assert files_below(encoder.bundle.path) & weights == {FILES[precision]}
    local = bert_embed.load(tiny_bundle, precision=precision, device="cpu")
    assert encoder.encode("a text").tobytes() == local.encode("a text").tobytes()
    with pytest.raises(InputError, match=f"{FILES[other]} is missing; .* the model's address"):
        bert_embed.Encoder(encoder.bundle, precision=other, device="cpu")
    assert FILES[other] in files_below(bert_embed.load(url, precision=other).bundle.path)


def test_a_tokenizer_fetches_no_weights(gcs, cache, tiny_bundle, capsys):
    url = gcs.put_folder(Path(tiny_bundle), "bundles", "tokenizer")
    wanted = bert_embed.Tokenizer.from_pretrained(tiny_bundle).encode("the bank")
    assert bert_embed.Tokenizer.from_pretrained(url).encode("the bank") == wanted
    assert main(["model", "inspect", url, "--text", "the bank"]) == 0
    assert "bank" in capsys.readouterr().out
    fetched = files_below(cache)
    assert any(name.endswith("vocab.txt") for name in fetched)
    weights = filter(is_weights, read_bundle(tiny_bundle).files)
    assert not {*weights} & {Path(name).name for name in fetched}


WRITE = {"huggingface": write_tiny_huggingface, GOOGLE: write_tiny_google, "hub": write_tiny_hub}


@pytest.mark.parametrize("name", WRITE)
def test_a_model_is_imported_from_there(gcs, cache, tmp_path, name, capsys):
    """Also one whose importer reads the folder's name."""
    WRITE[name](tmp_path / name)
    local = import_model(str(tmp_path / name), str(tmp_path / "local"))
    url = gcs.put_folder(tmp_path / name, "models-to-import", f"some/{name}")
    bundle = resolve_model(url)
    assert (bundle.source, bundle.fingerprint) == (url, local.fingerprint)
    assert resolve_model(url) == bundle
    if name == GOOGLE:
        assert main(["model", "import", url, str(tmp_path / "bundle")]) == 0
        assert local.fingerprint in capsys.readouterr().out
