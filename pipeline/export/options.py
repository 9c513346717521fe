"""Names the targets of `export`, what each takes, and its options."""

from dataclasses import dataclass

TARGETS = ("npy", "faiss", "vertex", "lancedb", "pgvector", "projector", "atlas", "datasets")
GRANULARITIES = ("sentence", "token", "word", "span")
# The indexes of each target, its default first.
INDEXES = {
    "faiss": ("auto", "flat", "ivf"),
    "lancedb": ("none", "ivf_flat", "ivf_pq"),
    "pgvector": ("none", "hnsw", "ivfflat"),
}
# Most rows of targets that show them, unless --sample says another number. TensorBoard draws more,
# but its own projections take fewer; the browser holds all rows of an atlas.
SAMPLES = {"projector": 10_000, "atlas": 1_000_000}
# The flags that only some targets take.
TAKEN_BY = {
    "index": tuple(INDEXES),
    "memory": ("faiss",),
    "table": ("lancedb", "pgvector"),
    "sample": tuple(SAMPLES),
    "restricts": ("vertex",),
    "numeric_restricts": ("vertex",),
    "embedding_metadata": ("vertex",),
}


@dataclass(frozen=True)
class ExportOptions:
    """What `export` is asked for.

    Attributes:
        source: Output folder of a run, local or gs://.
        dest: Folder, local or gs://, or the URL of a database.
        target: One of `TARGETS`.
        granularity: One of `GRANULARITIES`.
        partial: Whether to export the finished parts of an unfinished run.
        index: One of the target's `INDEXES`.
        memory: MiB that the vectors of an index take while it is filled.
        table: Name of the table.
        sample: Most rows to export, spread evenly over all; None for all rows.
        restricts: Columns to filter by their values.
        numeric_restricts: Columns to filter by their numbers.
        embedding_metadata: Columns that Vector Search returns with a hit.
    """

    source: str
    dest: str
    target: str
    granularity: str = "sentence"
    partial: bool = False
    index: str = "none"
    memory: int = 1024
    table: str = "embeddings"
    sample: int | None = None
    restricts: tuple[str, ...] = ()
    numeric_restricts: tuple[str, ...] = ()
    embedding_metadata: tuple[str, ...] = ()
