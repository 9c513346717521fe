"""Finds or fetches a model's local folder, from Cloud Storage or TF Hub."""

import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from packaging.version import parse

from bert_embed.bundle.files import ARCHIVES, HUB_HANDLES
from bert_embed.bundle.gcs_models import fetch, list_model
from bert_embed.importers.archives import unpack
from bert_embed.storage.errors import InputError
from bert_embed.storage.gcs import SCHEME
from bert_embed.storage.packages import requires


@contextmanager
def local_folder(source: str) -> Iterator[Path]:
    """Yields the local folder of a model; an unpacked archive is removed at the end."""
    if source.startswith(HUB_HANDLES):
        place = resolve_handle(source)
    elif source.startswith(SCHEME):
        place = fetch(list_model(source))
    else:
        place = Path(source).absolute()
    if not (place.is_file() and place.name.endswith(ARCHIVES)):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="model-") as temporary:
        yield unpack(place, Path(temporary))


def resolve_handle(handle: str) -> Path:
    """Returns tensorflow_hub's folder for a handle, which is fetched if it is not there."""
    with requires(handle, "tensorflow", "tensorflow-hub"):
        import tensorflow as tf

        with _version_parser():
            import tensorflow_hub as hub
    try:
        return Path(hub.resolve(handle))
    except (OSError, ValueError, tf.errors.OpError, tarfile.TarError) as error:
        raise InputError(
            f"{handle}: could not be fetched ({reason(error)}): check the connection to the hub, "
            "set TFHUB_CACHE_DIR to a cache that has it, or set model to the downloaded .tar.gz",
            "model",
        ) from error


@contextmanager
def _version_parser() -> Iterator[None]:
    """Gives tensorflow_hub what it imports of pkg_resources, which setuptools 82 dropped."""
    if find_spec("pkg_resources"):
        yield
        return
    stand_in = ModuleType("pkg_resources")
    vars(stand_in)["parse_version"] = parse
    sys.modules["pkg_resources"] = stand_in
    try:
        yield
    finally:
        del sys.modules["pkg_resources"]


def reason(error: Exception) -> str:
    """Returns the first line of what an error says."""
    text = str(getattr(error, "reason", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
