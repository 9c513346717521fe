"""Writes docs/options.md, the reference of all flags, and what `bert_embed.embed` takes of them."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from bert_embed.pipeline.options import flags, python_call
from bert_embed.pipeline.options.embed import FLAGS, grouped

PAGE = Path(__file__).with_name("options.md")
KEYWORDS = Path(python_call.__file__)
_BEGINS = "    # `python -m docs.options_page` writes these.\n"
_ENDS = "    # Not flags of `embed`.\n"
_TYPES: dict[Any, str] = {
    flags.true_or_false: "bool",
    flags.Whole: "int",
    flags.Wholes: "int | Sequence[int]",
    flags.not_negative: "float",
    flags.Share: "str | int",
    flags.Day: "str",
    flags.names: "str | Sequence[str]",
    flags.joined_names: "str | Sequence[str]",
    flags.place: "Path",
    flags.places: "Path | Sequence[Path]",
    flags.Choice: "str",
    flags.Sized: "str",
    flags.one_text: "str",
    flags.separator: "str",
}
_HEAD = """\
# Options of embed and tokenize

Every flag of `embed`; `tokenize` takes those with a `*`. Other commands list theirs with `--help`.

```bash
.venv/bin/bert-embed embed --input 'texts/*.txt' --output build/vectors --normalize
```

- A switch is `--normalize` or `--no_normalize`, or takes a value: `--normalize=false`.
- `--config FILE`, of every command, reads flags from a YAML file, one `name: value` a line, without
  dashes. A switch is true or false, several values are a list. The command line wins.
- Every option of Apache Beam and its runners is a flag, too."""


def options_page() -> str:
    """The text of the page."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, names in grouped().items():
        yield f"\n## {title[0].upper()}{title[1:]}\n"
        yield from ("| flag | value | meaning |", "|---|---|---|")
        for name in names:
            flag = FLAGS[name]
            value = "switch" if flag.is_switch else flag.metavar or ", ".join(flag.choices or ())
            star = "" if flag.without else "\\*"
            cells = (f"`--{name}`{star}", value, flag.help)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _keyword(flag: flags.Flag) -> str:
    """The type of a keyword argument."""
    kind = _TYPES[type(flag.kind) if is_dataclass(flag.kind) else flag.kind]
    return f"bool | {kind}" if "true" in (flag.choices or ()) else kind


def keywords() -> str:
    """The text of the module with `EmbedKeywords`, whose fields are the flags."""
    before, _, rest = KEYWORDS.read_text("utf-8").partition(_BEGINS)
    lines = [
        f"    {name}: {_keyword(flag)} | None\n"
        for name, flag in FLAGS.items()
        if name not in ("input", "output")
    ]
    return "".join([before, _BEGINS, *lines, _ENDS, rest.partition(_ENDS)[2]])


if __name__ == "__main__":
    KEYWORDS.write_text(keywords(), "utf-8")
    PAGE.write_text(options_page(), "utf-8")
