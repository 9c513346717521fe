"""Makes the one HTML file of a report and writes it into the output of a finished run."""

import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import orjson

from bert_embed.base.environment import package_variables
from bert_embed.base.errors import InputError
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.report.content import Texts, report_content
from bert_embed.pipeline.report.sample import Run
from bert_embed.storage.files import is_remote, sweep_temporary, write_whole
from bert_embed.transforms.output_folder import REPORT_PAGE, OutputFolder, is_foreign_page

MOST_BYTES = 4_800_000
_PROGRAMS = (  # one program, in this order
    *("dom.js", "charts.js", "map.js"),
    *("overview.js", "documents.js", "facts.js", "page.js"),
)
_WIDTHS = (240, 160, 110, 70, 40, 20, 5, 1)  # letters of a text, as many as the page allows
_LONGEST_ID = 100
# What could end the element that holds JSON, or a line of a program.
_ESCAPED = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


def page(content: dict[str, Any]) -> bytes:
    """The page that shows what `report_content` gathered, at most `MOST_BYTES`.

    Nothing of the content becomes markup: it is JSON without `<`, put into text nodes only. A
    Content-Security-Policy allows our program and style by their hashes, and no request.
    """
    style = _asset("page.css")
    program = "".join(map(_asset, _PROGRAMS))
    policy = (
        f"default-src 'none'; script-src '{_hash(program)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    frame = _asset("page.html")
    for name, text in (("policy", policy), ("style", style), ("program", program)):
        frame = frame.replace(f"[[{name}]]", text)
    before, _, after = frame.partition("[[content]]")
    rest = len(before.encode()) + len(after.encode())
    return before.encode() + _fitted(content, MOST_BYTES - rest) + after.encode()


def _asset(name: str) -> str:
    return files("bert_embed.pipeline.report").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content).decode().translate(_ESCAPED).encode()


def _fitted(content: dict[str, Any], most: int) -> bytes:
    """The content with texts, ids and columns as long as fit."""
    documents = content["documents"]
    if documents is None:
        return _json(content)
    for width in _WIDTHS:
        data = _json(content | {"documents": _cut(documents, width)})
        if len(data) <= most:
            break
    return data


def _cut(documents: dict[str, Any], width: int) -> dict[str, Any]:
    """Texts lose their end, ids their beginning, which is more often the same."""

    def head(text: str) -> str:
        return text if len(text) <= width else text[:width] + "…"

    texts, longest = documents["texts"], min(width, _LONGEST_ID)
    return documents | {
        "ids": [
            text if len(text) <= longest else "…" + text[-longest:] for text in documents["ids"]
        ],
        "texts": texts and list(map(head, texts)),
        "columns": [
            column | {"values": list(map(head, column["values"]))}
            if column["kind"] == "text"
            else column
            for column in documents["columns"]
        ],
    }


_PRIVATE_MODE = 0o600  # of a page with texts that the output does not hold
_MODE = 0o666
_MANY = 5000  # rows, of which the page needs much memory beside a model's: some 10 kB each


def write_page(
    run: Run,
    path: str | None = None,
    projection: str | None = None,
    texts_of: Texts | None = None,
) -> str:
    """Writes the page of a finished run, as `report_content`; returns its path.

    Without a path it is that of the page in the output.
    """
    folder, page_path = run.folder.path, run.folder.path_of(REPORT_PAGE)
    if path is None and is_foreign_page(folder):
        raise InputError(
            f"{page_path} is not a report of this program; give it another name, or `report` "
            "another --output"
        )
    path = path or page_path
    data = page(report_content(run, projection, texts_of))
    shows_more = texts_of is not None and not run.record.settings.get("keep_text")
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


def report_after_run(
    run: Run, anew: bool, tell: Callable[[str], object], texts_of: Texts | None
) -> None:
    """Writes the page of a run that is complete, and says so if that fails; the run is done.

    Unless it is to be `anew`, as of a run that this command completed, it is written if there is
    none: the job may have ended after its command.
    """
    folder = run.folder
    rows = max((kind.rows for kind in run.record.numbers.written.values()), default=0)
    try:
        if anew or not folder.has_page:
            sweep_temporary(folder.path)  # what a command left that was killed as it wrote the page
            if rows > _MANY and not is_remote(folder.path):
                _write_apart(folder, texts_of is not None)
            else:
                write_page(run, texts_of=texts_of)
    except Exception as error:  # noqa: BLE001 - no finished run may fail for its page
        why = hide_secrets(" ".join(str(error).split()))
        tell(
            f"warning: {folder.path_of(REPORT_PAGE)} was not written ({type(error).__name__}: "
            f"{why}); the run is complete, `bert-embed report {folder.path}` tries again"
        )
