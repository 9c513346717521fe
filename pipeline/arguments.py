"""Declares the options of `search`, `verify`, `card`, `report`, `watch` and `model`."""

import math
from dataclasses import dataclass

from bert_embed.formats.kinds import ROW_KINDS
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import DIRS, PLACES, POSITIVE, Decimal, flag, positional, switch
from bert_embed.pipeline.parser import CommandOptions
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER

PCA, TSNE = PROJECTIONS = ("pca", "tsne")  # how vectors become places on a map
# What `search --by` takes, and the kinds of vectors that each compares.
SEARCHED = {
    **{name: (name,) for name, kind in ROW_KINDS.items() if kind.similarity is not None},
    "hybrid": ("dense", "sparse"),
}


@dataclass(frozen=True)
class SearchOptions(CommandOptions):
    """Prints the documents that are nearest to a query."""

    words: tuple[str, ...] = positional(
        "DIR... QUERY",
        "runs' outputs, folders of outputs or globs; then the query, in quotes",
        kind=PLACES,
    )
    queries: str | None = flag("with one query a line, instead of QUERY", "FILE")
    k: int = flag("number of hits", "N", 10, kind=POSITIVE)
    by: str | None = flag(
        "vectors to compare; hybrid ranks by dense and sparse ones (default: what the output "
        "holds, dense first)",
        choices=tuple(SEARCHED),
    )
    rerank: str | None = flag(
        "a cross-encoder that puts the first hundred hits in its own order", "MODEL"
    )
    model: str | None = flag("where the model is, if it was moved")
    prompt: str | None = flag("before the query (default: as the output records)")
    json: bool = switch("print JSON, a line for each query")

    def __post_init__(self) -> None:
        super().__post_init__()
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
            given = "--runner" if not self.beam_args else self.beam_args[0].partition("=")[0]
            raise UsageError(f"{given} requires --repair")


@dataclass(frozen=True)
class CardOptions(CommandOptions):
    """Writes README.md, which describes the vectors of a run, or of those below a folder."""

    output: str = positional("DIR", "a run's output, or a folder of outputs")


@dataclass(frozen=True)
class ReportOptions(CommandOptions):
    """Writes report.html, which shows finished runs and their vectors."""

    folders: tuple[str, ...] = positional("DIR...", DIRS, kind=PLACES)
    output: str | None = flag(
        "where to write (default: report.html in DIR, of several it must be given)", "FILE"
    )
    no_texts: bool = switch(
        "show no texts of documents and rejected records (default: they are read from the input "
        "of the run again where its output holds none, never from BigQuery)"
    )
    projection: str | None = flag(
        "the map: pca, or also tsne, which needs openTSNE (default: tsne where that is installed)",
        choices=PROJECTIONS,
    )


@dataclass(frozen=True)
class WatchOptions(CommandOptions):
    """Shows how far a job is, on any runner, from what it has written."""

    output: str = positional("DIR", "output of embed, tokenize, cluster or dedup")
    once: bool = switch("show it once, do not wait for the end")
    json: bool = switch("print JSON, a line each time")
    interval: float = flag(
        "between looks",
        "SECONDS",
        5.0,
        kind=Decimal("more than 0 seconds", lambda number: 0 < number < math.inf),
    )


@dataclass(frozen=True)
class ModelImportOptions(CommandOptions):
    """Converts a model to a bundle."""

    source: str = positional(
        "SOURCE",
        "folder or .tar.gz of a Hugging Face, sentence-transformers, google-research or TF Hub "
        "BERT, local or gs://; hf://ORG/NAME@REVISION of the Hugging Face hub; ORG/NAME in its "
        "local cache; or a handle of TF Hub",
    )
    dest: str = positional("DEST", "folder for the bundle, which must not exist")
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
    dest: str = positional("DEST", "folder for the SavedModel, which must not exist")


@dataclass(frozen=True)
class ModelInspectOptions(CommandOptions):
    """Prints facts about a model."""

    model: str = positional("MODEL", "as --model of embed")
    json: bool = switch("print one JSON object")


@dataclass(frozen=True)
class ModelVerifyOptions(ModelInspectOptions):
    """Compares a model's files and vectors with those of its import."""
