"""Makes the one HTML file of a report: its content as JSON, with style and program beside it."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

import orjson

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
