"""Parses the command line of `export`."""

from collections.abc import Sequence

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.options import (
    GRANULARITIES,
    INDEXES,
    SAMPLES,
    TAKEN_BY,
    TARGETS,
    ExportOptions,
)
from bert_embed.pipeline.parser import Parser, program


def parse_export(arguments: Sequence[str]) -> ExportOptions:
    """Reads the command line of `export`.

    Raises:
        UsageError: The arguments are wrong, or one that the target does not take.
    """
    given = vars(_parser().parse_args(arguments))
    target = given["target"]
    for flag, targets in TAKEN_BY.items():
        if given[flag] is not None and target not in targets:
            raise UsageError(f"--{flag} is for --to {' or '.join(targets)}, not for {target}")
    choices = INDEXES.get(target, ("none",))
    if given["index"] is None:
        given["index"] = choices[0]
    elif given["index"] not in choices:
        raise UsageError(
            f"--index must be one of {', '.join(choices)} for --to {target}, got {given['index']}"
        )
    for flag in ("sample", "memory"):
        if given[flag] is not None and given[flag] < 1:
            raise UsageError(f"--{flag} must be at least 1, got {given[flag]}")
    given["sample"] = given["sample"] or SAMPLES.get(target)
    for flag in ("restricts", "numeric_restricts", "embedding_metadata"):
        given[flag] = tuple(filter(None, (given[flag] or "").split(",")))
    return ExportOptions(**{name: value for name, value in given.items() if value is not None})


def _parser() -> Parser:
    parser = Parser(
        "export",
        "Copies the vectors of a run to where other programs search and show them.",
        usage=f"{program()} export DIR DEST --to TARGET [flags]",
    )
    parser.add_argument("source", metavar="DIR", help="a run's output, local or gs://")
    parser.add_argument(
        "dest", metavar="DEST", help="a folder, local or gs://; for pgvector a postgresql:// URL"
    )
    add = parser.add_argument
    add("--to", dest="target", choices=TARGETS, required=True, help="what the vectors are for")
    add("--granularity", choices=GRANULARITIES, help="which vectors (default: sentence)")
    add("--partial", action="store_true", help="take what an unfinished run has finished")
    listed = "; ".join(f"{target}: {', '.join(names)}" for target, names in INDEXES.items())
    add("--index", help=f"kind of index ({listed}; the first is the default)")
    add("--memory", type=int, metavar="MIB", help="of an index being filled (faiss; default: 1024)")
    add("--table", help="name of the table (lancedb, pgvector; default: embeddings)")
    add("--sample", type=int, metavar="N", help="most rows, spread evenly (projector, atlas)")
    columns = "columns, separated by commas,"
    add("--restricts", metavar="NAMES", help=f"{columns} to filter by their values (vertex)")
    add("--numeric_restricts", metavar="NAMES", help=f"{columns} to filter by numbers (vertex)")
    add("--embedding_metadata", metavar="NAMES", help=f"{columns} to return with hits (vertex)")
    return parser
