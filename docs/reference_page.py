"""Writes docs/api/README.md, the arguments of what reference.md names, for readers of GitHub."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, is_typeddict

SOURCE = Path(__file__).with_name("reference.md")
PAGE = Path(__file__).parent / "api" / "README.md"
_HEAD = """\
# Arguments of the Python API

Made from the docstrings by `python -m docs.reference_page`. [In Python](../python.md) shows how the
parts are used together.
"""
_ELSEWHERE = "bert_embed.integrations."  # imports what need not be installed
_OBJECT = re.compile(r"^::: (\S+)$(?:\n(?:    .*\n)*?      members: \[(.*)\]$)?", re.MULTILINE)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Warns):$", re.MULTILINE)
_ITEM = re.compile(r"^    (\**[\w.]+): ((?:.*\n?)(?:      .*\n?|\n)*)", re.MULTILINE)


def reference_page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *_lines(SOURCE.read_text("utf-8"))])


def _lines(source: str) -> Iterator[str]:
    for match in _OBJECT.finditer(source):
        for name in match[2].split(", ") if match[2] else [""]:
            path = f"{match[1]}.{name}".rstrip(".")
            if path.startswith(_ELSEWHERE):
                continue
            yield from _of(path.rpartition(".")[2], _found(path))


def _found(path: str) -> Any:
    """What a dotted name stands for."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _of(name: str, one: Any) -> Iterator[str]:
    yield from (f"## {name}", "", *_described(name, one))
    if not inspect.isclass(one) or is_typeddict(one) or issubclass(one, tuple):
        return
    for method, value in vars(one).items():
        function = getattr(value, "__func__", value)
        if not method.startswith("_") and inspect.isfunction(function):
            yield from (f"### {name}.{method}", "", *_described(method, function))


def _described(name: str, one: Any) -> Iterator[str]:
    """Call, summary and tables of one docstring."""
    text = inspect.getdoc(one) or ""
    before, *sections = _SECTION.split(text)
    if inspect.isfunction(one):
        yield f"`{name}({', '.join(_parameters(one))})`\n"
    if before.strip():
        yield before.strip() + "\n"
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        items = _ITEM.findall(body)
        if title in ("Args", "Attributes") and items:
            yield from (f"| {title.lower()} | |", "|---|---|")
            yield from (f"| `{item}` | {_line(said)} |" for item, said in items)
            yield ""
        elif title in ("Returns", "Yields"):
            yield f"{title}: {_line(body)}\n"
        else:
            yield from (f"- {item}: {_line(said)}" for item, said in items)
            yield ""


def _parameters(function: Any) -> list[str]:
    """What a call takes, without types."""
    parameters = inspect.signature(function).parameters.values()
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return [str(one) for one in plain if one.name not in ("self", "cls")]


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(reference_page(), "utf-8")
