"""model import hf://: from a server that answers as the hub does."""

import os
import subprocess
import sys

import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.bundle.find import resolve_model
from tests.support.command import ROOT
from tests.support.models.architectures import write_architecture
from tests.support.servers.huggingface import hub_server

pytestmark = pytest.mark.slow

COMMIT, PICKLED = "1c" * 20, "1d" * 20
NAME = "a-team/tiny-mpnet"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_architecture(folder / "good", "mpnet")
    write_architecture(folder / "pickled", "mpnet")
    for each in ("good", "pickled"):
        (folder / each / "pytorch_model.bin").write_bytes(b"code")
        (folder / each / "README.md").write_text("---\nlicense: mit\n---\n")
    (folder / "good" / "onnx").mkdir()
    (folder / "good" / "onnx" / "config.json").write_text("{}")
    (folder / "pickled" / "model.safetensors").unlink()
    with hub_server() as server:
        server.models[NAME] = {COMMIT: folder / "good", PICKLED: folder / "pickled"}
        server.names |= {"main": PICKLED, "v1": COMMIT}
        yield server


@pytest.fixture
def imported(hub, tmp_path):
    """Calls `model import` in a process of its own, whose hub is ours."""

    def run(source, **environment):
        settings = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "bert_embed",
                "model",
                "import",
                source,
                str(tmp_path / "bundle"),
            ],
            cwd=ROOT,
            env={**os.environ, **hub.environment, **settings, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_model_is_fetched_without_pickled_weights_and_found_by_name_afterwards(
    hub, imported, tmp_path, monkeypatch
):
    hub.sent.clear()
    done = imported(f"hf://{NAME}@v1")
    assert done.returncode == 0, done.stderr
    bundle = read_bundle(tmp_path / "bundle")
    assert (bundle.source, bundle.licence) == (f"hf://{NAME}@{COMMIT}", "mit")
    assert "model.safetensors" in hub.sent
    assert "pytorch_model.bin" not in hub.sent
    assert hub.sent.count("config.json") == 2  # the model's and its pooling's, not that of ONNX
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert resolve_model(f"{NAME}@v1").fingerprint == bundle.fingerprint


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"hf://{NAME}", f"hf://{NAME}: has no safetensors at this revision"),
        (f"hf://{NAME}@v9", f"hf://{NAME}@v9: could not be fetched (404"),
        ("hf://a-team/none", "hf://a-team/none: could not be fetched (404"),
    ],
)
def test_what_cannot_be_fetched_is_told(imported, tmp_path, source, message):
    done = imported(source)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "bundle").exists()


def test_a_hub_that_does_not_answer_is_told(imported):
    done = imported(f"hf://{NAME}@v1", HF_ENDPOINT="http://127.0.0.1:1")
    assert done.returncode == 2
    assert f"error: hf://{NAME}@v1: could not be fetched (" in done.stderr
