"""Where a model comes from: a folder, an archive, gs:// or a hub's handle in, a folder out."""

import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bert.model_files import ARCHIVES, HUB_HANDLES, MARKERS
from bert.remote import SCHEME, fetch_model


@contextmanager
def local_folder(source: str) -> Iterator[Path]:
    """Gives the folder of this machine that holds the model; what had to be unpacked goes again.

    Args:
        source: A folder, a `.tar.gz` or `.tgz` of one, either of them in Cloud Storage (gs://), or
            a handle of TF Hub, for which `TFHUB_CACHE_DIR` is asked first.

    Raises:
        ValueError: It cannot be fetched or unpacked.
    """
    if source.startswith(HUB_HANDLES):
        place = resolve_handle(source)
    elif source.startswith(SCHEME):
        place = fetch_model(source)
    else:
        place = Path(source).absolute()
    if not (place.is_file() and place.name.endswith(ARCHIVES)):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="model-") as temporary:
        yield unpack(place, Path(temporary))


def resolve_handle(handle: str) -> Path:
    """Returns the folder that tensorflow_hub keeps for a handle, fetched if it is not there yet.

    Raises:
        ValueError: It could not be fetched; says what to do.
    """
    import tensorflow as tf
    import tensorflow_hub as hub

    try:
        return Path(hub.resolve(handle))
    except (OSError, ValueError, tf.errors.OpError, tarfile.TarError) as error:
        raise ValueError(
            f"{handle}: could not be fetched ({_reason(error)}): let the hub be reached, set "
            "TFHUB_CACHE_DIR to a cache that has it, or set --model to the downloaded .tar.gz"
        ) from error


def _reason(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive below `folder`; returns the folder in it that holds the model.

    Raises:
        ValueError: It cannot be read, a path in it leads out of it, or it holds no model.
    """
    stem = next(archive.name.removesuffix(end) for end in ARCHIVES if archive.name.endswith(end))
    root = folder / (stem or "model")  # google-research's names tell the casing
    try:
        with tarfile.open(archive, "r:gz") as file:
            file.extractall(root, filter="data")
    except tarfile.FilterError as error:
        raise ValueError(f"{archive}: refused, {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{archive}: cannot be unpacked, perhaps cut: {error}") from error
    inside = [each for each in root.iterdir() if not each.name.startswith(".")]
    for place in (root, *inside):
        if any((place / name).is_file() for name in MARKERS):
            return place
    raise ValueError(f"{archive}: must hold one of {', '.join(MARKERS)}, holds none of them")
