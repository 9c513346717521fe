"""Declares the targets of `export` and its arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.parser import Parser, program

TARGETS = ("npy", "faiss", "vertex", "pgvector")
# The indexes of each target, its default first.
INDEXES = {"faiss": ("auto", "flat", "ivf"), "pgvector": ("none", "hnsw", "ivfflat")}
_GRANULARITIES = ("sentence", "token", "word", "span")
_COLUMNS = "columns, separated by commas,"
# The flags that only some targets take, the targets, and their help.
_FLAGS = {
    "index": (
        tuple(INDEXES),
        "kind of index (faiss: auto, flat, ivf; pgvector: none, hnsw, ivfflat; the first is the "
        "default)",
    ),
    "table": (("pgvector",), "name of the table (pgvector; default: embeddings)"),
    "restricts": (("vertex",), f"{_COLUMNS} to filter by their values (vertex)"),
    "numeric_restricts": (("vertex",), f"{_COLUMNS} to filter by numbers (vertex)"),
    "embedding_metadata": (("vertex",), f"{_COLUMNS} to return with hits (vertex)"),
}
_LISTS = ("restricts", "numeric_restricts", "embedding_metadata")


@dataclass(frozen=True)
class ExportOptions:
    """What `export` is asked for: its arguments, with the defaults of what was left out."""

    source: str
    dest: str
    target: str
    granularity: str = "sentence"
    partial: bool = False
    index: str = "none"
    table: str = "embeddings"
    restricts: tuple[str, ...] = ()
    numeric_restricts: tuple[str, ...] = ()
    embedding_metadata: tuple[str, ...] = ()


def parse_export(arguments: Sequence[str]) -> ExportOptions:
    """Reads the command line of `export`; UsageError if it is wrong."""
    values = vars(_parser().parse_args(arguments))
    values = {name: value for name, value in values.items() if value is not None}
    target = values["target"]
    for flag, (targets, _) in _FLAGS.items():
        if flag in values and target not in targets:
            raise UsageError(f"--{flag} is for --to {' or '.join(targets)}, not for {target}")
    choices = INDEXES.get(target, ("none",))
    if values.setdefault("index", choices[0]) not in choices:
        raise UsageError(
            f"--index must be one of {', '.join(choices)} for --to {target}, got {values['index']}"
        )
    lists = {
        flag: tuple(filter(None, values[flag].split(","))) for flag in _LISTS if flag in values
    }
    return ExportOptions(**values | lists)


def _parser() -> Parser:
    parser = Parser(
        "export",
        "Copies the vectors of a run to where other programs search them.",
        usage=f"{program()} export DIR DEST --to TARGET [flags]",
    )
    add = parser.add_argument
    add("source", metavar="DIR", help="a run's output, local or gs://")
    add("dest", metavar="DEST", help="a folder, local or gs://; for pgvector a postgresql:// URL")
    add("--to", dest="target", choices=TARGETS, required=True, help="what the vectors are for")
    add("--granularity", choices=_GRANULARITIES, help="which vectors (default: sentence)")
    add("--partial", action="store_true", help="take what an unfinished run has finished")
    for flag, (_, text) in _FLAGS.items():
        add(f"--{flag}", metavar="NAMES" if flag in _LISTS else None, help=text)
    return parser
