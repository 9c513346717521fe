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
_WIDTHS = (240, 160, 110, 70, 40, 20)  # letters of a text and of an id, as long as the page allows
_LONGEST_ID = 100
# What could end the element that holds JSON, or a line of a program.
_ESCAPED = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


def page(content: dict[str, Any]) -> bytes:
    """Returns the page that shows what `report_content` gathered, at most `MOST_BYTES`.

    Nothing of the content becomes markup: it is JSON without `<`, and the page's program puts it
    into text nodes only. A Content-Security-Policy allows this program and style by their hashes,
    and no request.
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
    """The content with texts and ids as long as fit; with fewer documents if none does."""
    documents = content["documents"]
    if documents is None:
        return _json(content)
    for width in _WIDTHS:
        data = _json(content | {"documents": _cut(documents, width)})
        if len(data) <= most:
            return data
    if len(documents["ids"]) <= 1:
        return data
    return _fitted(_every_second(content), most)


def _cut(documents: dict[str, Any], width: int) -> dict[str, Any]:
    """Texts lose their end, ids their beginning, which is more often the same."""
    texts, longest = documents["texts"], min(width, _LONGEST_ID)
    return documents | {
        "ids": [
            text if len(text) <= longest else "…" + text[-longest:] for text in documents["ids"]
        ],
        "texts": texts and [text if len(text) <= width else text[:width] + "…" for text in texts],
    }


def _every_second(content: dict[str, Any]) -> dict[str, Any]:
    """The content with every second document; what names a document by its row is left out."""
    documents, shown = content["documents"], content.get("map")
    halved = {
        name: values and values[::2] for name, values in documents.items() if name != "columns"
    }
    halved["columns"] = [
        values | {"values": values["values"][::2]} for values in documents["columns"]
    ]
    fewer = content | {"documents": halved, "neighbours": []}
    if shown is None:
        return fewer
    places = [
        values | {"x": values["x"][::2], "y": values["y"][::2]} for values in shown["projections"]
    ]
    return fewer | {
        "clusters": [values | {"central": []} for values in content["clusters"]],
        "map": {"cluster": shown["cluster"][::2], "projections": places},
    }
