"""Rejects an input that is the output of another run."""

from collections.abc import Iterable

import orjson

from bert_embed.formats.output_files import RUN_FILE
from bert_embed.storage.errors import InputError
from bert_embed.storage.file_info import FileInfo
from bert_embed.storage.files import absolute, join, read_bytes
from bert_embed.storage.globs import fixed_folder, is_glob
from bert_embed.storage.parallel import in_parallel

_RECORD_KEYS = {"format", "run", "status"}


def check_no_output(pattern: str, files: Iterable[FileInfo]) -> None:
    """Rejects an input pattern whose files include the output of another run.

    A glob or path that points into such a folder is accepted, and so is the folder of a
    `tokenize`, whose examples are input.

    Raises:
        ValueError: Some of the files belong to the output of a run; the message names the folder.
    """
    path = absolute(pattern)
    paths = [each.path for each in files]
    if not is_glob(path) and paths != [path]:
        root = path.rstrip("/")
        ends = "/" + RUN_FILE
        folders = {each.removesuffix(ends) for each in paths if each.endswith(ends)}
    else:
        root = fixed_folder(path)
        folders = {folder for each in paths for folder in _folders_between(root, each)}
    listed = sorted(folders)
    for folder, is_ours in zip(listed, in_parallel(_is_output, listed), strict=True):
        if is_ours and folder == root:
            raise InputError(
                f"--input {pattern} is the output of an earlier run; to read a file of it, name "
                "the file itself"
            )
        if is_ours:
            raise InputError(
                f"--input {pattern} takes in {folder}, the output of an earlier run; name the "
                "input without it, or move that folder elsewhere"
            )


def _folders_between(root: str, path: str) -> Iterable[str]:
    """Every folder below `root` on the way to a file."""
    names = path.removeprefix(root).strip("/").split("/")[:-1]
    return (join(root, "/".join(names[:count])) for count in range(1, len(names) + 1))


def _is_output(folder: str) -> bool:
    """Whether a folder holds the record of a run that wrote no examples."""
    data = read_bytes(join(folder, RUN_FILE))
    try:
        record = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return False
    return isinstance(record, dict) and record.keys() >= _RECORD_KEYS and "examples" not in record
