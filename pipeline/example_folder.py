"""Example folder: where a run puts its examples; claimed and described before it starts."""

import re
from typing import TYPE_CHECKING

from pipeline.options import UsageError
from transforms.examples import SETTINGS_FILE, settings_from_json
from transforms.files import join, make_folder, names_in, read_bytes, remove, write_bytes

if TYPE_CHECKING:
    from pipeline.embed_run import EmbedRun

_OURS = re.compile(r"examples-\d{7,}-\d{5,}\.tfrecord(\.gz)?")


def claim(run: "EmbedRun") -> None:
    """Sees that the folder of `--tfrecord_output` is free, or holds this run's examples.

    Raises:
        UsageError: It holds others, and `--overwrite` was not given; else these are removed.
    """
    folder = run.example_folder
    if folder is None or folder == run.output:
        return
    data = read_bytes(join(folder, SETTINGS_FILE))
    stray = [name for name in names_in(folder) if _OURS.fullmatch(name)]
    if (data is None and not stray) or _run_of(data) == run.fingerprint:
        return
    if not run.options.overwrite:
        raise UsageError(
            f"--tfrecord_output {run.options.tfrecord_output} holds examples of another run; "
            "choose another folder, or --overwrite to replace them"
        )
    remove_examples(folder)


def _run_of(data: bytes | None) -> str | None:
    try:
        return None if data is None else settings_from_json(data).run
    except ValueError:
        return None


def describe(run: "EmbedRun") -> None:
    """Writes `examples.json`, if the run writes examples."""
    if run.example_folder is not None:
        make_folder(run.example_folder)
        write_bytes(join(run.example_folder, SETTINGS_FILE), run.written_examples.to_json())


def remove_examples(folder: str) -> None:
    """Removes files of examples and what describes them, nothing else."""
    names = [name for name in names_in(folder) if _OURS.fullmatch(name) or name == SETTINGS_FILE]
    remove([join(folder, name) for name in names])
