"""Writes report.html into the output of a finished run."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from bert_embed.bundle.apart import package_variables
from bert_embed.pipeline.report.content import Texts, report_content
from bert_embed.pipeline.report.page import page
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote, write_whole
from bert_embed.transforms.output_folder import REPORT_PAGE, OutputFolder, is_foreign

_PRIVATE_MODE = 0o600  # of a page with texts that the output does not hold
_MODE = 0o666
_MANY = 5000  # rows, of which the page needs much memory beside a model's: some 10 kB each


def write_page(
    runs: Sequence[Run],
    path: str | None = None,
    projection: str | None = None,
    texts_of: Texts | None = None,
) -> str:
    """Writes the page of finished runs, as `report_content`; returns its path.

    Without a path it is that of the page in the output of the one run.
    """
    folder, record = runs[0].folder, runs[0].record
    if path is None and is_foreign(folder.path, REPORT_PAGE):
        raise InputError(
            f"{folder.page} is not a report of this program; give it another name, or `report` "
            "another --output"
        )
    path = path or folder.page
    data = page(report_content(runs, projection, texts_of))
    shows_more = texts_of is not None and not record.settings.get("keep_text")
    write_whole(path, lambda file: file.write(data), mode=_PRIVATE_MODE if shows_more else _MODE)
    return path


def _write_apart(folder: OutputFolder, texts: bool) -> None:
    """Writes the page of a local run in a process of its own: this one still holds the model."""
    words = [*([] if texts else ["--no_texts"]), "--projection=pca"]  # t-SNE takes minutes
    done = subprocess.run(
        [sys.executable, "-m", "bert_embed", "report", folder.path, *words],
        env={**os.environ, **package_variables()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])


def page_of(folder: OutputFolder) -> str | None:
    """The path of the page in an output; None if there is none, or the store does not say."""
    with suppress(OSError):
        return folder.page if folder.has_page else None
    return None


def report_after_run(
    run: Run, started: bool, tell: Callable[[str], object], texts_of: Texts | None
) -> None:
    """Writes the page of a run that is complete, and says so if that fails; the run is done.

    A run that was complete before keeps its page; it gets one if its job ended after its command.
    """
    folder = run.folder
    rows = max((kind.rows for kind in run.record.numbers.written.values()), default=0)
    try:
        if started or not folder.has_page:
            if rows > _MANY and not is_remote(folder.path):
                _write_apart(folder, texts_of is not None)
            else:
                write_page([run], texts_of=texts_of)
    except Exception as error:  # noqa: BLE001 - no finished run may fail for its page
        why = hide_secrets(" ".join(str(error).split()))
        tell(
            f"warning: {folder.page} was not written ({type(error).__name__}: {why}); the run is "
            f"complete, `bert-embed report {folder.path}` tries again"
        )
