"""Declares and checks every option of `embed` and `tokenize` once, as fields of Options.

The command line, YAML files, calls in Python and the Flex Template are readers of it; `--help` and
docs/options.md derive from its fields.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, ClassVar

from bert_embed.backends.choose import DEVICES, PRECISIONS
from bert_embed.base.errors import SettingError
from bert_embed.bundle.find import local_place
from bert_embed.models.heads.head import Kind
from bert_embed.models.heads.kinds import KINDS, ROW_KINDS
from bert_embed.pipeline.options.flags import (
    AT_LEAST_ZERO,
    BLOCKS,
    DAY,
    LAYERS,
    SHARE,
    Choice,
    CommandOptions,
    Flag,
    Sized,
    count,
    flag,
    flags_of,
    joined_names,
    looks_like_table,
    names,
    not_negative,
    one_text,
    place,
    places,
    separator,
    several,
    switch,
)
from bert_embed.pipeline.runners.options import (
    ACCELERATORS,
    DEFAULT_RUNNER,
    RunnerOptions,
    accelerator_name,
)
from bert_embed.results.files import EXAMPLES, FORMATS, VECTOR_FORMATS, VECTORS
from bert_embed.results.names import OUTPUT_DTYPES
from bert_embed.settings import (
    CHUNKS,
    DEFAULT_OVERLAP,
    GRANULARITIES,
    KIND_OF,
    LAYER_COMBINES,
    LONG_TEXTS,
    POOLINGS,
    RECIPES,
    TextSpec,
    VectorSpec,
    check_pairs,
    named_recipe,
    spec_with,
)
from bert_embed.storage.files import absolute
from bert_embed.transforms.bigquery.client import SCHEME
from bert_embed.transforms.parts import EACH_FILE
from bert_embed.transforms.read.columns import CSV_QUOTINGS, Columns

# The groups of --help, each with its first option; they follow each other as the fields do.
_GROUPS = {
    "input": "input",
    "output": "output",
    "model": "model and vectors (defaults: the model's own settings)",
    "precision": "computing",
    "accelerator": "on Dataflow",
    "dry_run": "every job",
}
_MISSING = {
    "input": "give the files to embed, such as 'texts/*.txt'",
    "output": "give a folder for the vectors, such as build/out",
}
NO_ID_COLUMN = ""  # as id_column: each document is named by its place
RELATIVE_PLACES = "./"  # likewise, by its place below the folder of the input
OF_CSV = "csv_quoting", "csv_separator", "csv_header"
# What a run computes, and nothing about where it reads, runs, loads or removes: all that is taken
# from a run.json, which somebody else may have written.
OF_RESULT = (
    *("input_format", "text_column", "text_b_column", "extra_columns", "id_column"),
    *(*OF_CSV, "limit", "max_rejected", "max_deleted", "skip_blocks"),
    *("block_bytes", "output_format", "output_dtype"),
    *("keep_text", "report", "granularity", "vectors", "top_k"),
    *("layers", "layer_combine", "pooling", "max_seq_length"),
    *("long_text", "overlap", "chunk", "chunk_context"),
    *("prompt", "dim", "normalize", "precision"),
)
_OF_TEXTS = "granularity", "vectors", "top_k", "long_text", "overlap", "chunk_context", "keep_text"
_OF_VECTORS = ("layers", "layer_combine", "pooling", "normalize", "dim")
_TO_BIGQUERY = ("output_format", ("bigquery",))
embed_flag, embed_switch, embed_count = (
    partial(kind, without="tokenize") for kind in (flag, switch, count)
)


@dataclass(frozen=True)
class Options(CommandOptions):
    """The options of `embed` and `tokenize`; None where the model or the input decides.

    `beam_args` are Beam's own flags. A value may be of another type that stands for it, such as a
    path, a list, or its text on a command line. SettingError if a value is wrong, or two contradict
    each other.
    """

    input: tuple[str, ...] = several(
        "file, folder or glob, or BigQuery table project:dataset.table; can be repeated", "GLOB"
    )
    query: str | None = flag("embed the rows that this BigQuery query selects", "SQL")
    today: str | None = flag(
        "the day that {today} is in places, and {yesterday} the one before; or the time in UTC at "
        "which a day begins, so that a retry after midnight keeps its day (default: 00:00)",
        "DAY|HH:MM",
        kind=DAY,
    )
    input_format: str | None = flag(
        "default: by suffix, else text, where a line is a document; files: by suffix, and each "
        "text file is a document, whose id is its path",
        choices=("text", EACH_FILE, "jsonl", "csv", "parquet", "tfrecord", "bigquery"),
    )
    text_column: str | None = flag(
        "field or column with a text or a list of words; the texts of several, such as "
        "title,abstract, are joined by a space (default: text)",
        "NAMES",
        kind=joined_names,
    )
    text_b_column: str | None = flag("field or column of the second text of a pair", "NAME")
    extra_columns: tuple[str, ...] | None = embed_flag(
        "columns to copy to the output; add the type where it is neither string nor declared by "
        "Parquet or BigQuery",
        "A,B:TYPE",
        kind=names,
    )
    id_column: str | None = flag(
        "field or column of the id (default: id if there is one); '' names documents by place, ./ "
        "by place below the input's folder",
        "NAME",
    )
    csv_quoting: str = flag(
        "none: quotes in CSV are characters like others; escaped: quotes, and a backslash before "
        "what is part of a field (Spark, MySQL); dump: no quotes, such backslashes (PostgreSQL)",
        default=Columns.csv_quoting,
        choices=CSV_QUOTINGS,
    )
    csv_separator: str | None = flag(
        "character between the fields of CSV, such as ; or tab (default: by suffix and header)",
        "CHAR",
        kind=separator,
    )
    csv_header: tuple[str, ...] | None = flag(
        "names of the columns of CSV files that have no header", "NAME,NAME", kind=names
    )
    limit: int | None = count("read only the first N records")
    output: str = flag(
        "folder of the run; with --output_format bigquery it need not be given",
        "DIR",
        "",
        kind=place,
    )
    overwrite: bool = switch("first remove the files of another run")
    max_rejected: str = flag(
        "if more of the records read were rejected (blank lines apart), load nothing and return "
        "exit code 3",
        "N|P%",
        "1%",
        kind=SHARE,
    )
    skip_blocks: tuple[int, ...] = flag(
        "reject the documents of these blocks, because they crash or hang a worker",
        "N,N",
        (),
        kind=BLOCKS,
    )
    block_bytes: int | None = count("bytes of text in a block")
    output_format: str = embed_flag(
        "format of the files", default="parquet", choices=VECTOR_FORMATS
    )
    output_table: str | None = embed_flag(
        "project:dataset.table, optionally with a partition $YYYYMMDD",
        "TABLE",
        requires=_TO_BIGQUERY,
    )
    write_disposition: str | None = embed_flag(
        "what to do if the table has rows (default: append)",
        choices=("append", "truncate", "fail"),
        requires=_TO_BIGQUERY,
    )
    output_dtype: str = embed_flag(
        "number type of the stored vectors", default="float32", choices=OUTPUT_DTYPES
    )
    skip_existing: tuple[str, ...] = several(
        "earlier output, whose documents are not embedded again unless their text changed: a "
        "folder, a glob of folders, or a BigQuery table; can be repeated",
        "DIR_OR_TABLE",
        without="tokenize",
    )
    max_deleted: str = embed_flag(
        "if the input lacks more of the earlier outputs' documents, mark none as deleted",
        "N|P%",
        "20%",
        kind=SHARE,
    )
    keep_text: bool = switch("write the texts beside their vectors")
    report: str = embed_flag(
        "write report.html once the run is complete; texts: with texts, which are read from the "
        "input again where the output holds none",
        default="texts",
        choices=("true", "false", "texts"),
    )

    model: str = flag(
        "minilm (all-MiniLM-L6-v2), a bundle, the folder or .tar.gz of a model, local or gs://, "
        "ORG/NAME in the Hugging Face cache, or a TF Hub handle",
        "MODEL",
        "minilm",
        kind=place,
    )
    granularity: tuple[str, ...] = flag(
        f"what gets vectors, in one pass: some of {', '.join(GRANULARITIES)}",
        "NAME,NAME",
        TextSpec.granularity,
        kind=names,
    )
    vectors: tuple[str, ...] | None = embed_flag(
        f"kinds of vectors, in one pass: some of {', '.join(ROW_KINDS)} (default: what the "
        "model is for)",
        "NAME,NAME",
        kind=names,
    )
    top_k: int | None = embed_count("most weights of a sparse vector, the largest (default: all)")
    layers: tuple[int, ...] | None = embed_flag(
        "0 is the embedding layer, -1 the last layer", "N,N", kind=LAYERS
    )
    layer_combine: str | None = embed_flag("how several layers become one", choices=LAYER_COMBINES)
    pooling: str | None = embed_flag(
        f"how tokens become one vector: {', '.join(POOLINGS)}, or several joined by commas; or "
        f"layers and pooling as in the literature: {', '.join(RECIPES)}",
        "NAME",
        kind=joined_names,
    )
    max_seq_length: int | None = count("longest text in tokens, [CLS] and [SEP] included")
    long_text: str = flag(
        "what to do with longer texts; window: one vector, the mean over windows; windows: a "
        "vector for each window",
        default=TextSpec.long_text,
        choices=LONG_TEXTS,
    )
    overlap: int | None = flag(
        "tokens that neighbouring windows share, or chunks at most (default: of windows "
        f"{DEFAULT_OVERLAP} or half of a short one, of chunks 0)",
        "N",
        kind=AT_LEAST_ZERO,
    )
    chunk: str | None = embed_flag(
        f"give each of these parts of a document a vector of its own: {', '.join(CHUNKS)} (which "
        "fill a row); sentence:200 and the like fill chunks up to 200 tokens",
        "NAME[:N]",
        kind=Sized(CHUNKS),
    )
    chunk_context: tuple[str, ...] | None = embed_flag(
        "what the model sees before each chunk: columns such as title, headings for those of "
        "Markdown above it; document: it reads the document, and a chunk is the mean of its tokens "
        "(columns of these names are column:headings and column:document)",
        "NAME,NAME",
        kind=names,
    )
    prompt: str | None = flag(
        "text put before each text, or name:NAME for one of the model's prompts (default: that "
        "for documents)",
        "TEXT",
    )
    dim: int | None = embed_count("keep the first N numbers")
    normalize: bool | None = embed_switch(
        "whether to scale vectors to unit length, after all else", None
    )

    precision: str = embed_flag(
        "number type of the matrix products", default="float32", choices=PRECISIONS
    )
    device: str = embed_flag("auto: a GPU if there is one", default="auto", kind=Choice(DEVICES))
    engine: str | None = embed_flag(
        "what computes on the device, such as litert or tensorflow (default: the first that is "
        "installed)",
        "NAME",
    )
    batch_tokens: int | None = embed_count(
        "tokens in a batch (default: chosen for the device, 512 on CPU; of a chip 16384, of a GPU "
        "where texts have at most 512 tokens 32768)"
    )
    threads: int | None = embed_count("default: all processors")
    runner: str = flag("Beam's runner", "NAME", DEFAULT_RUNNER)
    accelerator: str | None = embed_flag(
        "accelerator of every worker, with the number of chips; also chooses --device, "
        "--machine_type and the disk",
        kind=Choice(ACCELERATORS, accelerator_name),
    )
    dry_run: bool = switch("print the plan and stop")
    beam_args: tuple[str, ...] = ()

    needed: ClassVar[tuple[str, ...]] = ("input", "output")

    def __post_init__(self) -> None:
        super().__post_init__()
        words = tuple(one_text("beam_args", word) for word in self.beam_args)
        object.__setattr__(self, "beam_args", words)
        for name in ("extra_columns", "csv_header", "chunk_context"):
            object.__setattr__(self, name, getattr(self, name) or None)
        for problem in _contradictions(self):
            raise SettingError(*problem)

    @property
    def command(self) -> str:
        """The command that takes these options."""
        return "tokenize" if FORMATS[self.output_format].holds == EXAMPLES else "embed"

    @property
    def job(self) -> RunnerOptions:
        """Where these options say that the job runs."""
        return RunnerOptions(**{one.name: getattr(self, one.name) for one in fields(RunnerOptions)})

    @property
    def loads_table(self) -> bool:
        """Whether the vectors go to a BigQuery table."""
        return FORMATS[self.output_format].loads

    @property
    def reads_table(self) -> bool:
        """Whether the input is a BigQuery table or query, not files."""
        if self.query is not None or self.input_format is not None:
            return self.query is not None or self.input_format == "bigquery"
        return any(map(looks_like_table, self.input))

    def text_spec(
        self, max_seq_length: int, prompt: str, vectors: tuple[str, ...] | None = None
    ) -> TextSpec:
        """How texts become rows, with what the model says of options that were not given.

        Those of `vectors` are what it is for; where nobody knows these yet, all that options ask.
        """
        if vectors is None:
            asked = {kind for name, kind in KIND_OF.items() if getattr(self, name) is not None}
            vectors = ("dense", *sorted(asked))
        values = self._given_of(*_OF_TEXTS)
        if self.chunk is not None:
            values["chunk"], _, most = self.chunk.partition(":")
            values["chunk_tokens"] = int(most) if most else None
        values |= {"prompt": prompt, "normalize_tokens": self.normalize is True}
        return TextSpec(max_seq_length, **{"vectors": vectors, **values})

    def _given_of(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def vector_changes(self) -> dict[str, Any]:
        """The fields of VectorSpec that were given, as a model's own settings are changed."""
        return self._given_of(*_OF_VECTORS)

    def require(self, *names: str) -> None:
        """Checks that a command has the input, or the output, that it needs."""
        for name in names:
            stands_in = self.query if name == "input" else self.loads_table
            if not getattr(self, name) and not stands_in:
                raise SettingError(name, f"is missing: {_MISSING[name]}")
        if "" in self.input:
            raise SettingError("input", f"is empty: {_MISSING['input']}")

    def recorded(self) -> dict[str, Any]:
        """What `run.json` keeps of them: those that were given, with absolute paths."""
        values = {name: value for name, value in asdict(self).items() if value != DEFAULTS[name]}
        return values | {
            name: recorded_place(name, value)
            for name, value in values.items()
            if name in FLAGS and FLAGS[name].kind in (place, places)
        }

    @classmethod
    def from_record(cls, values: Mapping[str, Any], **others: Any) -> "Options":
        """The options that `recorded` gave, of `OF_RESULT` only; `others` are the caller's own."""
        stored = {name: value for name, value in values.items() if name in OF_RESULT}
        kind = TokenizeOptions if stored.get("output_format") == EXAMPLES else cls
        return kind(**(stored | others))


@dataclass(frozen=True)
class TokenizeOptions(Options):
    """The options of `tokenize`, some of those of `embed`."""

    output_format: str = EXAMPLES


@dataclass(frozen=True)
class EstimateOptions(Options):
    """The options of `estimate`: those of `embed`, and its own."""

    needed: ClassVar[tuple[str, ...]] = ("input",)
    json: bool = switch("print JSON")
    price_per_hour: float | None = flag(
        "of a machine like this one, or with --accelerator, in any currency: multiplied by the "
        "hours",
        "N",
        kind=not_negative,
    )
    seconds: float = flag(
        "how long to measure the model's speed here; 0: not at all", "N", 3.0, kind=not_negative
    )


FLAGS: dict[str, Flag] = flags_of(Options)
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(Options)}


def grouped() -> dict[str, list[str]]:
    """The names of the options in each group of `--help`."""
    groups: dict[str, list[str]] = {}
    title = ""
    for name in FLAGS:
        title = _GROUPS.get(name, title)
        groups.setdefault(title, []).append(name)
    return groups


def recorded_place(name: str, value: Any) -> Any:
    """A place, or several, as `run.json` keeps it."""
    if not isinstance(value, str):
        return tuple(recorded_place(name, one) for one in value)
    if name == "model":
        folder = local_place(value)
        return value if folder is None else str(folder)
    return value if looks_like_table(value) else absolute(value)


def _contradictions(options: Options) -> Iterator[tuple[str, ...]]:
    """What single values do not show: the setting, what is wrong, other settings that it names."""
    for name in _given(options, *FLAGS):
        other, values = FLAGS[name.removeprefix("no_")].requires or (None, ())
        if other is not None and getattr(options, other) not in values:
            yield name, f"requires {other} {' or '.join(values)}", other
    yield from _of_vectors(options)
    yield from _of_places(options)
    yield from _of_files(options)
    yield from _of_texts(options)


def _of_texts(options: Options) -> Iterator[tuple[str, ...]]:
    options.text_spec(options.max_seq_length or 1, "")  # which checks most of them
    if options.long_text == "windows" and options.command == "tokenize":
        said = "windows is for embed, which also reads examples in windows so: take window here"
        yield "long_text", said
    if options.text_b_column is None:
        return
    if "window" in options.long_text:
        yield "long_text", f"{options.long_text} is for single texts and conflicts with pairs"
    if "word" in options.granularity:
        yield "granularity", "word is for single texts, not for pairs"
    if options.chunk is not None:
        yield "chunk", "is for single texts and conflicts with pairs"


def _of_vectors(options: Options) -> Iterator[tuple[str, ...]]:
    changes = options.vector_changes
    if named_recipe(changes) is not None:
        del changes["pooling"]
    spec_with(VectorSpec(), **changes)  # which checks most of them
    for name in _given(options, "layers", "layer_combine") if options.pooling == "pooler" else ():
        yield "pooling", f"pooler reads the last layer and conflicts with {name}", name
    if options.vectors is not None:
        yield from _of_kinds(options, options.vectors)
    if "sentence" not in options.granularity:
        said = "is for vectors of sentences, granularity requests none"
        if options.pooling not in (None, *RECIPES):
            yield "pooling", said, "granularity"
        if options.long_text == "windows" and options.vectors in (None, ("dense",)):
            yield "long_text", f"windows {said}", "granularity"
    token_lines = "token" in options.granularity and FORMATS[options.output_format].decimals
    if token_lines and options.output_dtype in ("int8", "ubinary"):
        said = (
            f"{options.output_dtype} conflicts with JSON lines of tokens, whose values are "
            "decimals; use output_format parquet"
        )
        yield "output_dtype", said, "output_format"


def check_kinds(options: Options, vectors: tuple[str, ...]) -> None:
    """Checks the options that are for some kinds of vectors; SettingError."""
    for problem in _of_kinds(options, vectors):
        raise SettingError(*problem)


def _of_kinds(options: Options, vectors: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    typed = [name for name, kind in ROW_KINDS.items() if kind.has_dtype]
    asked = ",".join(vectors)
    for name in () if "dense" in vectors else _given(options, *_OF_VECTORS, "granularity"):
        yield name, f"is for vectors dense, not {asked}", "vectors"
    for name in () if {*typed} & {*vectors} else _given(options, "output_dtype"):
        yield name, f"is for vectors {' and '.join(typed)}, not {asked}", "vectors"
    if options.text_b_column is not None:
        check_pairs("text_b_column", vectors)
    written = FORMATS[options.output_format]
    for kind in vectors:  # of which some may be unknown, as TextSpec says then
        if kind in ROW_KINDS and not written.fits(ROW_KINDS[kind]):
            wanted = f"is for one vector a text; {kind} requires {_fitting(ROW_KINDS[kind])}"
            yield "output_format", f"{written.name} {wanted}", "vectors"


def _fitting(kind: Kind) -> str:
    formats = VECTOR_FORMATS.values()
    return " or ".join(one.name for one in formats if one.fits(kind) and not one.loads)


def _of_places(options: Options) -> Iterator[tuple[str, ...]]:
    if options.query is not None and options.input:
        yield "query", "conflicts with input, give only one", "input"
    if options.query is not None and options.input_format not in (None, "bigquery"):
        yield "query", f"conflicts with input_format {options.input_format}", "input_format"
    for name in _given(options, *OF_CSV) if options.reads_table else ():
        yield name, "is for CSV, not for rows of BigQuery"
    if "" in options.skip_existing:
        yield "skip_existing", "is empty: give an earlier output, or leave it out"
    if options.query is None and options.reads_table and len(options.input) > 1:
        said = "takes one BigQuery table and nothing beside it; a query can join several"
        yield "input", said
    if options.output.startswith(SCHEME):
        said = f"{options.output} is no folder: give output_format bigquery and the table with"
        yield "output", f"{said} output_table", "output_format", "output_table"
    if options.loads_table and options.output_table is None:
        said = (
            "bigquery requires output_table project:dataset.table; the files that are loaded stay "
            "in output, if it is given"
        )
        yield "output_format", said, "output_table", "output"
    if options.loads_table and options.output_dtype != "float32":
        said = "conflicts with output_format bigquery, whose numbers are FLOAT64; leave it out"
        yield "output_dtype", f"{options.output_dtype} {said}", "output_format"


def _of_files(options: Options) -> Iterator[tuple[str, ...]]:
    written = FORMATS[options.output_format]
    for kind in options.granularity if written.holds == VECTORS else ():
        if kind in KINDS and not written.fits(KINDS[kind]):  # others are refused where kinds are
            wanted = f"is for vectors of texts; {kind}s require {_fitting(KINDS[kind])}"
            yield "output_format", f"{written.name} {wanted}"
    if options.extra_columns is not None and not written.has_extra:
        yield "extra_columns", "are for Parquet and JSON lines, not for TFRecord files"


def _given(options: Options, *names: str) -> Iterator[str]:
    """Those of the options that were given: `no_name` for a switch that was turned off."""
    for name in names:
        if (value := getattr(options, name)) not in (None, DEFAULTS[name]):
            yield f"no_{name}" if value is False else name
