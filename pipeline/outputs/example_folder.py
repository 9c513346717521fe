"""Claims and describes the folder for a run's examples before the run starts."""

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.run import EmbedRun
from bert_embed.storage.files import join, make_folder, read_bytes, remove, write_bytes
from bert_embed.transforms.examples.settings import settings_from_json
from bert_embed.transforms.output_folder import EXAMPLES, SETTINGS_FILE, OutputFolder


def claim(run: EmbedRun) -> None:
    """Checks that the folder of `--tfrecord_output` is free, or holds this run's examples."""
    folder = run.example_folder
    if folder is None or folder == run.output:
        return
    there = read_bytes(join(folder, SETTINGS_FILE)) is not None
    stray = [name for name in OutputFolder(folder).data_files() if name.startswith(EXAMPLES)]
    if not (there or stray) or example_run(folder) == run.fingerprint:
        return
    if not run.options.overwrite:
        raise UsageError(
            f"--tfrecord_output {run.options.tfrecord_output} holds examples of another run; "
            "choose another folder, or --overwrite to replace them"
        )
    remove_examples(folder)


def example_run(folder: str) -> str | None:
    """The fingerprint of the run whose examples a folder holds, None if it does not say."""
    data = read_bytes(join(folder, SETTINGS_FILE))
    try:
        return None if data is None else settings_from_json(data).run
    except ValueError:
        return None


def describe(run: EmbedRun) -> None:
    """Writes `examples.json`, if the run writes examples."""
    if run.example_folder is not None:
        make_folder(run.example_folder)
        write_bytes(join(run.example_folder, SETTINGS_FILE), run.written_examples.to_json())


def remove_examples(folder: str) -> None:
    """Removes files of examples and what describes them, nothing else."""
    there = OutputFolder(folder)
    there.remove_files(name for name in there.data_files() if name.startswith(EXAMPLES))
    remove([join(folder, SETTINGS_FILE)])
