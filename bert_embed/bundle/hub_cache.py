"""Finds models by their names in the local cache of the Hugging Face hub; asks no network."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bert_embed.bundle.files import MARKERS
from bert_embed.storage.errors import InputError

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
        if found := _snapshot(repo, name.revision):
            return found
    if len(repos) > 1 and not model.startswith(HUB_SCHEME):
        return _of_any_organization(name)
    revision = "" if name.revision == HubName.revision else f" --revision {name.revision}"
    raise InputError(
        f"{model}: is no folder here, and the Hugging Face cache {hub_cache()} does not hold it; "
        f"get it with `hf download {name.repo}{revision}`, or import it with `bert-embed "
        f"model import {name.address} FOLDER`"
    )


def _of_any_organization(name: HubName) -> Snapshot | None:
    homes = sorted(hub_cache().glob(f"models--*--{name.repo}"))
    repos = [home.name.removeprefix("models--").replace("--", "/", 1) for home in homes]
    snapshots = {repo: found for repo in repos if (found := _snapshot(repo, name.revision))}
    if len(snapshots) > 1:
        raise InputError(
            f"{name.repo}: the Hugging Face cache {hub_cache()} holds {' and '.join(snapshots)}; "
            "give the name with its organization"
        )
    return next(iter(snapshots.values()), None)


def _snapshot(repo: str, revision: str) -> Snapshot | None:
    home = hub_cache() / f"models--{repo.replace('/', '--')}"
    reference = home / "refs" / revision
    commit = reference.read_text("utf-8").strip() if os.path.isfile(reference) else revision
    folder = home / "snapshots" / commit
    # Path.is_file raises for a name too long
    if any(os.path.isfile(folder / marker) for marker in MARKERS):
        return Snapshot(folder, HubName(repo, commit).address)
    return None


def hub_cache() -> Path:
    """Returns the folder that Hugging Face's libraries keep downloaded models in."""
    home = os.environ.get("HF_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(chosen or Path(home, "hub"))).expanduser().absolute()
