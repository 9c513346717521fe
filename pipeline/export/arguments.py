"""Declares the targets of `export` and its options."""

from dataclasses import MISSING, dataclass

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import (
    DIRS,
    NAMES,
    PLACES,
    flag,
    flags_of,
    positional,
    switch,
)
from bert_embed.pipeline.parser import CommandOptions
from bert_embed.specs import GRANULARITIES

TARGETS = ("npy", "faiss", "vertex", "pgvector")
# The indexes of each target, its default first.
INDEXES = {"faiss": ("auto", "flat", "ivf"), "pgvector": ("none", "hnsw", "ivfflat")}
_ONLY_FOR = {
    "index": tuple(INDEXES),
    "table": ("pgvector",),
    **dict.fromkeys(("restricts", "numeric_restricts", "embedding_metadata"), ("vertex",)),
}


@dataclass(frozen=True)
class ExportOptions(CommandOptions):
    """Copies the vectors of runs to where other programs search them."""

    source: tuple[str, ...] = positional("DIR...", DIRS, kind=PLACES)
    dest: str = positional("DEST", "a folder, local or gs://; for pgvector a postgresql:// URL")
    to: str = flag("what the vectors are for", default=MISSING, choices=TARGETS)
    granularity: str = flag("which vectors", default="sentence", choices=GRANULARITIES)
    partial: bool = switch("take what an unfinished run has finished")
    index: str | None = flag(
        "kind of index (faiss: auto, flat, ivf; pgvector: none, hnsw, ivfflat; the first is the "
        "default)"
    )
    table: str = flag("name of the table (pgvector)", default="embeddings")
    restricts: tuple[str, ...] = flag(
        "columns, separated by commas, to filter by their values (vertex)", "NAMES", (), kind=NAMES
    )
    numeric_restricts: tuple[str, ...] = flag(
        "columns, separated by commas, to filter by numbers (vertex)", "NAMES", (), kind=NAMES
    )
    embedding_metadata: tuple[str, ...] = flag(
        "columns, separated by commas, to return with hits (vertex)", "NAMES", (), kind=NAMES
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        flags = flags_of(type(self))
        for name, targets in _ONLY_FOR.items():
            if getattr(self, name) != flags[name].default and self.to not in targets:
                raise UsageError(f"--{name} is for --to {' or '.join(targets)}, not for {self.to}")
        indexes = INDEXES.get(self.to, ())
        if self.index not in (None, *indexes):
            raise UsageError(
                f"--index must be one of {', '.join(indexes)} for --to {self.to}, got {self.index}"
            )

    @property
    def kind_of_index(self) -> str:
        """The index to build: the one that was given, or the target's default."""
        return self.index or INDEXES.get(self.to, ("none",))[0]
