"""Names of the Hugging Face hub: what its local cache holds, and what messages say of the rest."""

import shutil

import pytest

import bert_embed
from bert_embed.bundle.bundle import read_bundle
from bert_embed.bundle.find import cached_snapshot, resolve_model
from bert_embed.importers import import_model
from tests.support.models.folder import snapshot_folder
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow

COMMIT, OTHER = "0a" * 20, "0b" * 20
COMMITS = {COMMIT: ["main"], OTHER: ["v2", "refs/pr/1"]}
NAME = "a-team/tiny_bert-1.0"
HOME = "models--a-team--tiny_bert-1.0"


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory):
    """A cache as `hf download` leaves it: two commits, a branch and a tag; files are links."""
    hub = tmp_path_factory.mktemp("hub")
    for repo in (NAME, "sentence-transformers/own", "old-name"):
        for seed, (commit, references) in enumerate(COMMITS.items()):
            snapshot = snapshot_folder(hub, repo, commit, references)
            files = snapshot.parents[1] / "files" / commit
            write_tiny_huggingface(files, seed=seed)
            for file in files.iterdir():
                (snapshot / file.name).symlink_to(file)
    return hub


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Where all tests keep what they import, because an import takes seconds."""
    return tmp_path_factory.mktemp("imported")


@pytest.fixture
def hub(downloaded, imported, tmp_path, monkeypatch):
    for name in ("HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(downloaded))
    monkeypatch.setenv("BERT_EMBED_CACHE", str(imported))
    monkeypatch.chdir(tmp_path)
    return downloaded


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_names_of_the_default_mean_the_packaged_model(minilm, tmp_path, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert resolve_model(name) == minilm


def test_a_name_is_the_model_that_the_cache_holds(hub, imported):
    bundle = resolve_model(NAME)
    assert bundle.source == f"hf://{NAME}@{COMMIT}"
    written = imported.stat().st_mtime_ns
    assert resolve_model(f"{NAME}@{COMMIT}") == resolve_model(f"hf://{NAME}@main") == bundle
    assert imported.stat().st_mtime_ns == written
    other = resolve_model(f"{NAME}@v2")
    assert other.source == f"hf://{NAME}@{OTHER}"
    assert other.fingerprint != bundle.fingerprint
    assert resolve_model(f"{NAME}@refs/pr/1") == resolve_model(f"{NAME}@{OTHER}") == other
    assert bert_embed.load(NAME).bundle == bundle


def test_names_without_an_organization_are_found_as_elsewhere(hub):
    assert cached_snapshot("own").source == f"hf://sentence-transformers/own@{COMMIT}"
    assert cached_snapshot("old-name@v2").source == f"hf://old-name@{OTHER}"
    with pytest.raises(ValueError, match=r"model must be minilm, .* holds no-name; "):
        resolve_model("no-name")


@pytest.mark.parametrize(
    ("variable", "below"),
    [("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_the_cache_is_where_hugging_face_looks_for_it(hub, tmp_path, monkeypatch, variable, below):
    monkeypatch.delenv("HF_HUB_CACHE")
    (tmp_path / "there" / below).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "there" / below).symlink_to(hub)
    monkeypatch.setenv(variable, str(tmp_path / "there"))
    found = cached_snapshot(NAME)
    assert found.source == f"hf://{NAME}@{COMMIT}"
    assert found.folder == tmp_path / "there" / below / HOME / "snapshots" / COMMIT


def test_a_folder_comes_before_a_name(hub, tmp_path, tiny_bundle):
    shutil.copytree(tiny_bundle, tmp_path / NAME)
    assert resolve_model(NAME).path == str(tmp_path / NAME)
    assert resolve_model(f"hf://{NAME}").source == f"hf://{NAME}@{COMMIT}"
    bundle = import_model(f"{NAME}@v2", str(tmp_path / "bundle"))
    assert read_bundle(tmp_path / "bundle").source == bundle.source == f"hf://{NAME}@{OTHER}"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("no/model", "`hf download no/model`"),
        (f"{NAME}@v3", f"`hf download {NAME} --revision v3`"),
        ("hf://no/model@v1", "model import hf://no/model@v1 FOLDER`"),
    ],
)
def test_what_is_not_there_is_told_with_the_way_to_get_it(hub, name, wanted):
    with pytest.raises(ValueError, match="is no folder here, and the Hugging Face") as refused:
        resolve_model(name)
    said = f"{name}: is no folder here, and the Hugging Face cache {hub} does not hold"
    assert str(refused.value).startswith(said)
    assert wanted in str(refused.value)


@pytest.mark.parametrize("asked", [False, True])
def test_what_transformers_alone_fetched_is_refused_unless_there_is_no_more(hub, tmp_path, asked):
    """Its files do not say how vectors are pooled; `.no_exist` has what the hub does not have."""
    there = hub / f"models--a--part-{asked}"
    shutil.copytree(hub / HOME, there, symlinks=True)
    (there / "snapshots" / COMMIT / ".gitattributes").unlink()
    if asked:
        (there / ".no_exist" / COMMIT).mkdir(parents=True)
        (there / ".no_exist" / COMMIT / "modules.json").touch()
        assert cached_snapshot(f"a/part-{asked}").source == f"hf://a/part-{asked}@{COMMIT}"
    else:
        said = rf"^a/part-{asked}: .* only what transformers .* {there / 'snapshots' / COMMIT}$"
        with pytest.raises(ValueError, match=said):
            resolve_model(f"a/part-{asked}")
        assert resolve_model(str(there / "snapshots" / COMMIT)).fingerprint


@pytest.mark.parametrize("name", ["hf://", "hf://a/b/c", "hf://../b", "hf://a/b@../../c"])
def test_an_address_that_names_no_model_is_refused(hub, name):
    with pytest.raises(ValueError, match=r"must be hf://ORG/NAME or hf://ORG/NAME@REV"):
        resolve_model(name)
