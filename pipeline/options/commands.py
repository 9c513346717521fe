"""Declares the options of every other command."""

from dataclasses import MISSING, dataclass
from typing import Any

from bert_embed.base.errors import SettingError
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.flags import (
    DIRS,
    CommandOptions,
    Whole,
    count,
    flag,
    flags_of,
    names,
    place,
    places,
    positional,
    switch,
)
from bert_embed.pipeline.runners.options import DEFAULT_RUNNER
from bert_embed.results.names import OUTPUT_DTYPES

_MOST_SEED = 2**32 - 1
PCA, TSNE = PROJECTIONS = ("pca", "tsne")  # how vectors become places on a map
# The kinds of vectors that can be compared.
COMPARED = tuple(name for name, kind in ROW_KINDS.items() if kind.similarity is not None)


@dataclass(frozen=True)
class SearchOptions(CommandOptions):
    """Prints the documents that are nearest to a query."""

    words: tuple[str, ...] = positional(
        "DIR... QUERY",
        "runs' outputs, folders of outputs or globs; then the query, in quotes",
        kind=places,
    )
    queries: str | None = flag("with one query a line, instead of QUERY", "FILE")
    k: int = count("number of hits", default=10)
    by: str | None = flag(
        "vectors to compare (default: what the output holds, dense first)",
        choices=COMPARED,
    )
    model: str | None = flag("where the model is, if it was moved")
    prompt: str | None = flag("before the query (default: as the output records)")
    json: bool = switch("print JSON, a line for each query")

    def __post_init__(self) -> None:
        query = self.words[-1:]
        super().__post_init__()
        if self.queries is None:  # a query is no place: its `~` stays
            object.__setattr__(self, "words", (*self.words[:-1], *query))
        if not self.folders:
            raise UsageError("QUERY is missing: give it behind the output, in quotes")
        if self.queries is None and not self.query.strip():
            raise UsageError("QUERY must not be blank")

    @property
    def folders(self) -> tuple[str, ...]:
        """The outputs to search."""
        return self.words[:-1] if self.queries is None else self.words

    @property
    def query(self) -> str:
        """The one query, unless a file holds queries."""
        return self.words[-1]


SAMPLE = 200  # documents


@dataclass(frozen=True)
class CompareOptions(CommandOptions):
    """Says how two outputs of the same documents rank them: overlap, correlation, relevance."""

    old: str = positional("OLD", "a run's output", kind=place)
    new: str = positional("NEW", "likewise, of another model, number type, dim or day", kind=place)
    queries: str | None = flag(
        "queries, a JSON object with text and optionally relevant, a list of ids, a line "
        "(default: documents that both have)",
        "FILE",
    )
    sample: int | None = count(f"documents to draw as queries (default: {SAMPLE})")
    by: str | None = flag(
        "vectors to compare on both sides (default: of each what it holds, dense first)",
        choices=COMPARED,
    )
    seed: int = flag(
        "of the documents drawn and the confidence intervals", "N", 0, kind=Whole(0, _MOST_SEED)
    )
    old_model: str | None = flag("where the model of OLD is, if it was moved, for --queries")
    new_model: str | None = flag("where the model of NEW is, likewise")
    json: bool = switch("print one JSON object")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queries is not None and self.sample is not None:
            raise SettingError("sample", "draws documents and conflicts with queries", "queries")
        for name in ("old_model", "new_model"):
            if self.queries is None and getattr(self, name) is not None:
                raise SettingError(name, "requires queries", "queries")


@dataclass(frozen=True)
class VerifyOptions(CommandOptions):
    """Compares every file of an output with the block record of its part."""

    output: str = positional("DIR", "a run's output")
    repair: bool = switch(
        "compute missing and damaged parts again, here: the input and the model that run.json "
        "names are read, the runner that it names is not used"
    )
    runner: str = flag("Beam's runner, of --repair", "NAME", DEFAULT_RUNNER)
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.repair and (self.beam_args or self.runner != DEFAULT_RUNNER):
            named = "--runner" if not self.beam_args else self.beam_args[0].partition("=")[0]
            raise UsageError(f"{named} requires --repair")


@dataclass(frozen=True)
class ReportOptions(CommandOptions):
    """Writes report.html, which shows a finished run and its vectors."""

    folder: str = positional("DIR", "a run's output", kind=place)
    output: str | None = flag("where to write (default: report.html in DIR)", "FILE")
    no_texts: bool = switch(
        "show no texts of documents and rejected records (default: they are read from the input "
        "of the run again where its output holds none, never from BigQuery)"
    )
    projection: str | None = flag(
        "the map: pca, or also tsne, which needs openTSNE (default: tsne where that is installed)",
        choices=PROJECTIONS,
    )


@dataclass(frozen=True)
class ModelImportOptions(CommandOptions):
    """Converts a model to a bundle."""

    source: str = positional(
        "SOURCE",
        "folder or .tar.gz of a Hugging Face, sentence-transformers, google-research or TF Hub "
        "BERT, local or gs://; hf://ORG/NAME@REVISION of the Hugging Face hub; ORG/NAME in its "
        "local cache; or a handle of TF Hub",
        kind=place,
    )
    dest: str = positional("DEST", "folder for the bundle, which must not exist", kind=place)
    checkpoint: str | None = flag("of a google-research folder, such as model.ckpt-2345", "NAME")
    lower_case: bool = switch("uncased model, where the source does not say")
    cased: bool = switch("cased model, likewise")
    activation: str | None = flag(
        "of a google-research model", choices=("gelu", "gelu_new", "relu")
    )

    @property
    def casing(self) -> bool | None:
        """Whether the model is uncased; None where the source says."""
        if self.lower_case and self.cased:
            raise UsageError("--lower_case conflicts with --cased, give only one")
        return True if self.lower_case else False if self.cased else None


@dataclass(frozen=True)
class ModelExportOptions(CommandOptions):
    """Writes a model as a SavedModel for hub.KerasLayer and tf.saved_model.load, as on TF Hub."""

    model: str = positional("MODEL", "as --model of embed")
    dest: str = positional("DEST", "folder for the SavedModel, which must not exist", kind=place)


@dataclass(frozen=True)
class ModelVerifyOptions(CommandOptions):
    """Compares a model's files and vectors with those of its import."""

    model: str = positional("MODEL", "as --model of embed")
    json: bool = switch("print one JSON object")


@dataclass(frozen=True)
class ModelInspectOptions(ModelVerifyOptions):
    """Prints facts about a model, or the tokens of a text."""

    text: str | None = flag("whose tokens, ids and places to print instead")


# The kinds of vectors that each target takes, as far as the output holds them; npy takes the first
# that is one array.
TARGETS: dict[str, tuple[str, ...]] = {
    "npy": (),
    "parquet": tuple(ROW_KINDS),
    "faiss": ("dense",),
    "vertex": ("dense", "sparse"),
}
_ONLY_FOR = {
    **dict.fromkeys(("output_dtype", "dim"), "parquet"),
    "index": "faiss",
    **dict.fromkeys(("restricts", "numeric_restricts", "embedding_metadata"), "vertex"),
}


def _vertex_columns(use: str) -> Any:
    return flag(f"columns, separated by commas, {use} (vertex)", "NAMES", (), kind=names)


@dataclass(frozen=True)
class ExportOptions(CommandOptions):
    """Copies the vectors of runs to where other programs search them."""

    source: tuple[str, ...] = positional("DIR...", DIRS, kind=places)
    dest: str = positional("DEST", "a folder, local or gs://")
    to: str = flag("what the vectors are for", default=MISSING, choices=tuple(TARGETS))
    output_dtype: str | None = flag(
        "number type (parquet; default: as stored; from float32, or to it)",
        choices=OUTPUT_DTYPES,
    )
    dim: int | None = count(
        "how many of the first numbers of dense vectors to keep, as of embed (parquet)"
    )
    index: str = flag(
        "kind of faiss index; auto is flat up to 100,000 rows",
        default="auto",
        choices=("auto", "flat", "ivf"),
    )
    restricts: tuple[str, ...] = _vertex_columns("to filter by their values")
    numeric_restricts: tuple[str, ...] = _vertex_columns("to filter by numbers")
    embedding_metadata: tuple[str, ...] = _vertex_columns("to return with hits")

    def __post_init__(self) -> None:
        super().__post_init__()
        flags = flags_of(type(self))
        for name, target in _ONLY_FOR.items():
            if getattr(self, name) != flags[name].default and self.to != target:
                raise UsageError(f"--{name} is for --to {target}, not for {self.to}")
