"""model import hf://: from a server that answers as the hub does."""

import hashlib
import os
import re
import shutil
from types import SimpleNamespace
from urllib.parse import unquote, urlparse

import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.importers import import_model
from tests.support.command import ran
from tests.support.forks import python
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import write
from tests.support.models.heads import write_m3
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.servers.gcs import Answering, serving

_PATH = re.compile(r"(?:/api/models)?/([^/]+/[^/]+)/(revision|tree|resolve)/([^/]+)(?:/(.+))?")


class _Handler(Answering):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        hub = self.server.hub
        if hub.faults:
            return self.answer(hub.faults.pop(), {}, b"")
        found = _PATH.fullmatch(unquote(urlparse(self.path).path))
        repo, what, revision, name = found.groups()
        commit = hub.names.get(revision, revision)
        folder = hub.models.get(repo, {}).get(commit)
        if folder is None:
            missing = "RevisionNotFound" if repo in hub.models else "RepoNotFound"
            return self.answer(404, {"X-Error-Code": missing}, b"")
        if what == "resolve":
            return self._send(folder / name, {"X-Repo-Commit": commit})
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        names = [path.relative_to(folder).as_posix() for path in files]
        told = {"id": repo, "sha": commit, "siblings": [{"rfilename": each} for each in names]}
        if what == "tree":
            told = [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": _etag(path)}
                for name, path in zip(names, files, strict=True)
            ]
        return self.answer_json(told)

    do_HEAD = do_GET

    def _send(self, file, headers):
        if not file.is_file():
            return self.answer(404, headers | {"X-Error-Code": "EntryNotFound"}, b"")
        sent = b""
        if self.command == "GET":
            self.server.hub.sent.append(file.name)
            sent = None  # all of it
        return self.answer(200, headers | {"ETag": f'"{_etag(file)}"'}, file.read_bytes(), sent)


def _etag(file):
    return hashlib.sha1(file.read_bytes()).hexdigest()


pytestmark = pytest.mark.slow

COMMIT, PICKLED = "1c" * 20, "1d" * 20
NAME = "a-team/tiny-mpnet"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for each in ("good", "pickled"):
        write_architecture(folder / each, "mpnet")
        write(folder / each, {"pytorch_model.bin": "code", "README.md": ""})
    write(folder / "good", {"onnx/config.json": {}})
    (folder / "pickled" / "model.safetensors").unlink()
    with serving(_Handler) as http:
        environment = {"HF_ENDPOINT": f"http://127.0.0.1:{http.server_port}"}
        # Folders of models by name and commit, commits by branch or tag, the files that were
        # downloaded, and statuses with which the next requests are answered.
        empty = {"models": {}, "names": {}, "sent": [], "faults": []}
        http.hub = server = SimpleNamespace(environment=environment, **empty)
        server.models[NAME] = {COMMIT: folder / "good", PICKLED: folder / "pickled"}
        write_multi_vectors(folder / "colbert", "stanford")
        write(folder / "colbert", {"chat_template.jinja": "{{ messages }}"})
        write_m3(folder / "m3")
        server.models |= {f"a-team/{name}": {COMMIT: folder / name} for name in ("colbert", "m3")}
        server.names |= {"main": PICKLED, "v1": COMMIT}
        yield server


@pytest.fixture
def imported(hub, tmp_path):
    """Calls `model import` in a process of its own, whose hub is ours."""

    def run(source, **environment):
        settings = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        words = ["-m", "bert_embed", "model", "import", source, str(tmp_path / "bundle")]
        return ran([*python(), *words], **(hub.environment | settings | environment))

    return run


def test_a_model_is_fetched_without_pickled_weights_and_found_by_name_afterwards(
    hub, imported, tmp_path, monkeypatch
):
    hub.sent.clear()
    done = imported(f"hf://{NAME}@v1")
    assert done.returncode == 0, done.stderr
    bundle = read_bundle(tmp_path / "bundle")
    assert bundle.source == f"hf://{NAME}@{COMMIT}"
    assert "model.safetensors" in hub.sent
    assert "pytorch_model.bin" not in hub.sent
    assert hub.sent.count("config.json") == 2  # the model's and its pooling's, not that of ONNX
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert resolve_model(f"{NAME}@v1").fingerprint == bundle.fingerprint


@pytest.mark.parametrize("name", ["colbert", "m3"])
def test_what_decides_vectors_beside_settings_and_weights_is_fetched(hub, imported, tmp_path, name):
    done = imported(f"hf://a-team/{name}@v1")
    assert done.returncode == 0, done.stderr
    source = hub.models[f"a-team/{name}"][COMMIT]
    assert {file.name for file in source.iterdir() if file.is_file()} <= {*hub.sent}
    wanted = import_model(str(source), str(tmp_path / "wanted"))
    assert read_bundle(tmp_path / "bundle").fingerprint == wanted.fingerprint


LOAD = """
import sys
import time
import bert_embed

time.sleep = lambda seconds: None  # the client's half a minute between attempts
try:
    print(bert_embed.load(sys.argv[1], local_files_only=sys.argv[2:] == ["local"]).bundle.source)
except (bert_embed.InputError, OSError) as error:
    chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    sys.exit(f"{error}{'' if chained is None else ', and hundreds of lines of the client'}")
"""


def test_a_model_is_downloaded_once_where_it_is_loaded(hub, tmp_path, monkeypatch):
    for name in [name for name in os.environ if "OFFLINE" in name]:
        monkeypatch.delenv(name)

    def load(*words, name=f"{NAME}@v1", **environment):
        settings = {"HF_HOME": str(tmp_path / "home"), "BERT_EMBED_CACHE": str(tmp_path / "kept")}
        variables = hub.environment | settings | environment
        return ran([*python(), "-c", LOAD, name, *words], **variables)

    hub.sent.clear()
    for refused in (load("local"), load(HF_HUB_OFFLINE="1")):
        assert "is no folder here, and the Hugging Face cache" in refused.stderr
    assert hub.sent == []
    first = load()
    assert (first.returncode, first.stdout) == (0, f"hf://{NAME}@{COMMIT}\n"), first.stderr
    assert "fetching a-team/tiny-mpnet@v1 from the Hugging Face hub, only this once" in first.stderr
    assert "model.safetensors" in hub.sent
    assert "pytorch_model.bin" not in hub.sent
    unknown = load(name="a-team/none")
    assert "a-team/none (no folder here): could not be fetched (404" in unknown.stderr
    hub.sent.clear()
    assert load("local").stdout == load().stdout == first.stdout
    assert hub.sent == []
    home = tmp_path / "home" / "hub" / f"models--{NAME.replace('/', '--')}"
    part = ("README.md", "modules.json")  # what transformers does not fetch
    for name in part:
        (home / "snapshots" / COMMIT / name).unlink()
    for place in home.iterdir():  # but for what older releases of the client leave
        if place.name not in ("blobs", "refs", "snapshots"):
            shutil.rmtree(place)
    assert "holds only what transformers reads of it" in load("local").stderr
    unreachable = load(HF_ENDPOINT="http://127.0.0.1:1")
    assert f"{NAME}@v1 (no folder here): could not be fetched (" in unreachable.stderr
    assert load().stdout == first.stdout
    assert all((home / "snapshots" / COMMIT / name).is_file() for name in part)


def test_what_cannot_be_fetched_is_told(hub, imported, tmp_path):
    """With an exit code after which schedules try again, unlike one that is not to be asked."""
    nowhere, offline = {"HF_ENDPOINT": "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE": "1"}
    fetched = "could not be fetched ("
    for source, code, faults, settings, message in (
        (f"{NAME}@v1", 1, 0, nowhere, fetched),
        (f"{NAME}@v1", 1, 503, {}, fetched),
        (f"{NAME}@v1", 2, 403, {}, fetched),
        (f"{NAME}@v1", 2, 0, offline, ""),
        (f"{NAME}@v9", 2, 0, {}, f"{fetched}404"),
        (NAME, 2, 0, {}, "has no safetensors at this revision"),
    ):
        hub.faults[:] = [faults] * 9 if faults else []
        done = imported(f"hf://{source}", **settings)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert f"error: hf://{source}: {message}" in done.stderr
    hub.faults.clear()
    assert not (tmp_path / "bundle").exists()
