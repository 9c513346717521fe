"""Declares every flag of `embed` and `tokenize` once, as a field of EmbedOptions.

The parser, the YAML reader, `--help` and docs/options.md derive from these fields.
"""

from dataclasses import dataclass, fields
from typing import Any

from bert_embed.engines.choose import DEVICES, PRECISIONS, torch_device
from bert_embed.formats.number_types import OUTPUT_DTYPES
from bert_embed.formats.output_files import BEAM_RAG, TABLE_SCHEMAS
from bert_embed.pipeline.accelerators import ACCELERATORS
from bert_embed.pipeline.flags import (
    AT_LEAST_ZERO,
    BLOCKS,
    LAYERS,
    POSITIVE,
    SHARE,
    Flag,
    embed_flag,
    embed_switch,
    flag,
    names,
    switch,
)
from bert_embed.recipes import RECIPES
from bert_embed.specs import (
    CHUNK_POOLINGS,
    CHUNKS,
    GRANULARITIES,
    LAYER_COMBINES,
    LONG_TEXTS,
    POOLINGS,
    WORD_POOLINGS,
)

EXAMPLES = "examples"  # the output format of `tokenize`
DEFAULT_RUNNER = "FnApiRunner"  # DirectRunner picks another runner by what the network allows
# Runners whose own flags Beam's Python side does not know: unknown flags are passed on to them.
FOREIGN_RUNNERS = ("flinkrunner", "portablerunner", "sparkrunner")
INPUT, OUTPUT, COMPUTING, DATAFLOW = "input", "output", "computing", "on Dataflow"
MODEL = "model and vectors (defaults: the model's own settings)"
GROUPS = (INPUT, OUTPUT, MODEL, COMPUTING, DATAFLOW)


@dataclass(frozen=True)
class EmbedOptions:
    """The options of `embed` and `tokenize`; None where the model or the input decides.

    Those of `tokenize` have the `output_format` `examples`. `beam_args` are Beam's own flags.
    """

    input: tuple[str, ...] = flag(
        INPUT,
        "file, folder or glob, or BigQuery table project:dataset.table; can be repeated",
        "GLOB",
        (),
        repeated=True,
    )
    query: str | None = flag(INPUT, "embed the rows that this BigQuery query selects", "SQL")
    temp_dataset: str | None = flag(
        INPUT,
        "BigQuery dataset for the query's rows (default: one that this program creates)",
        "DATASET",
    )
    input_format: str | None = flag(
        INPUT,
        "default: by suffix, else text",
        choices=("text", "jsonl", "csv", "parquet", "tfrecord", "bigquery"),
    )
    document: str = flag(
        INPUT,
        "what a document is in plain text: each line, or each file, whose path is then its id",
        default="line",
        choices=("line", "file"),
    )
    text_column: str | None = flag(
        INPUT, "field or column with a text or a list of words (default: text)", "NAME"
    )
    text_b_column: str | None = flag(INPUT, "field or column of the second text of a pair", "NAME")
    extra_columns: tuple[str, ...] | None = flag(
        INPUT,
        "columns to copy to the output; add the type where it is neither string nor declared by "
        "Parquet or BigQuery",
        "A,B:TYPE",
        type=names,
    )
    pair_separator: str | None = flag(
        INPUT, "separates the two texts of a line, such as ' ||| '", "TEXT"
    )
    span_columns: tuple[str, ...] | None = flag(
        INPUT,
        "columns with the first and last+1 characters of spans (default: start,stop)",
        "A,B",
        type=names,
    )
    id_column: str | None = flag(
        INPUT, "field or column of the id (default: id if there is one)", "NAME"
    )
    limit: int | None = flag(INPUT, "read only the first N records", "N", type=POSITIVE)

    output: str = flag(
        OUTPUT, "folder of the run; with --output_format bigquery it need not be given", "DIR", ""
    )
    overwrite: bool = switch(OUTPUT, "first remove the files of another run", False)
    max_rejected: str | None = flag(
        OUTPUT, "return exit code 3 if more records were rejected", "N|P%", type=SHARE
    )
    skip_blocks: tuple[int, ...] = flag(
        OUTPUT,
        "reject the documents of these blocks, because they crash or hang a worker",
        "N,N",
        (),
        type=BLOCKS,
    )
    metrics_file: str | None = flag(
        OUTPUT, "keep progress and result as metrics in this file for node_exporter", "FILE.prom"
    )
    block_bytes: int | None = flag(OUTPUT, "bytes of text in a block", "N", type=POSITIVE)
    block_docs: int | None = flag(
        OUTPUT, "maximum number of documents in a file", "N", type=POSITIVE
    )
    output_format: str = embed_flag(
        OUTPUT,
        "format of the files",
        default="parquet",
        choices=("parquet", "jsonl", "tfrecord", "bigquery"),
    )
    output_table: str | None = embed_flag(
        OUTPUT, "project:dataset.table, optionally with a partition $YYYYMMDD", "TABLE"
    )
    table_schema: str = embed_flag(
        OUTPUT,
        "columns of the table; beam_rag: id, embedding, content, metadata, as Beam's RAG package",
        default="vectors",
        choices=TABLE_SCHEMAS,
    )
    write_disposition: str | None = embed_flag(
        OUTPUT,
        "what to do if the table has rows (default: append)",
        choices=("append", "truncate", "fail"),
    )
    tfrecord_output: str | None = embed_flag(
        OUTPUT, "folder in which to keep the tokenized examples as well", "DIR"
    )
    compression: str = flag(
        OUTPUT, "compression of TFRecord files", default="none", choices=("none", "gzip")
    )
    output_dtype: str = embed_flag(
        OUTPUT, "number type of the stored vectors", default="float32", choices=OUTPUT_DTYPES
    )
    skip_existing: tuple[str, ...] = embed_flag(
        OUTPUT,
        "earlier output: a folder, a glob of folders, or a BigQuery table; its documents with an "
        "unchanged text are not embedded again; can be repeated",
        "DIR_OR_TABLE",
        (),
        repeated=True,
    )
    keep_text: bool = switch(OUTPUT, "write the texts beside their vectors", False)
    report: bool = embed_switch(OUTPUT, "write report.html once the run is complete", True)
    list_removed: bool = embed_switch(OUTPUT, "list ids that only the earlier outputs have", False)
    check_ids: bool = embed_switch(OUTPUT, "count ids that occur more than once", False)

    model: str = flag(
        MODEL,
        "minilm (all-MiniLM-L6-v2), a bundle, the folder or .tar.gz of a model, local or gs://, "
        "ORG/NAME in the Hugging Face cache, or a TF Hub handle",
        "MODEL",
        "minilm",
    )
    allow_untrusted_model: bool = switch(
        MODEL,
        "load a SavedModel whatever its graph does: like running a program of its author",
        False,
    )
    granularity: tuple[str, ...] = flag(
        MODEL,
        f"what gets vectors, in one pass: some of {', '.join(GRANULARITIES)} (examples "
        "for word or span must be tokenized with these)",
        "NAME,NAME",
        ("sentence",),
        type=names,
    )
    recipe: str | None = embed_flag(
        MODEL, "layers and pooling as in the literature", choices=RECIPES
    )
    layers: tuple[int, ...] | None = embed_flag(
        MODEL, "0 is the embedding layer, -1 the last layer", "N,N", type=LAYERS
    )
    layer_combine: str | None = embed_flag(
        MODEL, "how several layers become one", choices=LAYER_COMBINES
    )
    pooling: str | None = embed_flag(
        MODEL,
        f"how tokens become one vector: {', '.join(POOLINGS)}, or several joined by commas",
        "NAME",
    )
    pool_special_tokens: bool | None = embed_switch(
        MODEL, "whether pooling includes [CLS] and [SEP]"
    )
    dense: bool | None = embed_switch(MODEL, "whether to apply the model's own Dense modules")
    word_pooling: str = embed_flag(
        MODEL,
        "how the tokens of a word or span become one vector",
        default="mean",
        choices=WORD_POOLINGS,
    )
    max_seq_length: int | None = flag(
        MODEL, "longest text in tokens, [CLS] and [SEP] included", "N", type=POSITIVE
    )
    long_text: str = flag(
        MODEL, "what to do with longer texts", default="truncate", choices=LONG_TEXTS
    )
    stride: int | None = flag(
        MODEL,
        "tokens that neighbouring windows share (default: 64, at most half a window)",
        "N",
        type=AT_LEAST_ZERO,
    )
    chunk: str | None = embed_flag(
        MODEL, "give each of these parts of a document a vector of its own", choices=CHUNKS
    )
    chunk_tokens: int | None = embed_flag(
        MODEL,
        "fill chunks up to N tokens (default: a sentence or paragraph a chunk; tokens fill a row)",
        "N",
        type=POSITIVE,
    )
    chunk_overlap: int | None = embed_flag(
        MODEL,
        "tokens, at most, that neighbouring chunks share (default: 0)",
        "N",
        type=AT_LEAST_ZERO,
    )
    chunk_pooling: str = embed_flag(
        MODEL,
        "own: the model reads each chunk alone; late: it reads the document, and a chunk is the "
        "mean of its tokens",
        default="own",
        choices=CHUNK_POOLINGS,
    )
    prompt: str | None = flag(
        MODEL, "text put before each text, or name:NAME for one of the model's prompts", "TEXT"
    )
    merge_windows: bool | None = embed_switch(
        MODEL, "one vector a document (default) or one a window"
    )
    dim: int | None = embed_flag(MODEL, "keep the first N numbers", "N", type=POSITIVE)
    normalize: bool | None = embed_switch(MODEL, "whether to scale vectors to unit length")

    precision: str = embed_flag(
        COMPUTING, "number type of the matrix products", default="float32", choices=PRECISIONS
    )
    device: str = embed_flag(
        COMPUTING,
        "auto: a GPU if TensorFlow finds one; xla_cpu: programs as for a GPU, on the "
        "processor, for tests",
        default="auto",
        choices=DEVICES,
        type=torch_device,
    )
    batch_tokens: int | None = embed_flag(
        COMPUTING,
        "tokens in a batch (default: chosen for the device, 512 on CPU, 16384 on GPU and TPU)",
        "N",
        type=POSITIVE,
    )
    threads: int | None = embed_flag(COMPUTING, "default: all processors", "N", type=POSITIVE)
    inference_timeout: int = embed_flag(
        COMPUTING,
        "fail, naming the block, if no batch ends within this time",
        "SECONDS",
        600,
        type=POSITIVE,
    )
    runner: str = flag(COMPUTING, "Beam's runner", "NAME", DEFAULT_RUNNER)
    accelerator: str | None = embed_flag(
        DATAFLOW,
        "accelerator of every worker; also chooses --device, --machine_type and the disk",
        choices=ACCELERATORS,
    )
    right_fitting: bool = embed_switch(
        DATAFLOW, "give the accelerator only to the workers of the model's steps", False
    )
    dry_run: bool = switch(None, "print the plan and stop", False)
    beam_args: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that takes these options."""
        return "tokenize" if self.output_format == EXAMPLES else "embed"

    @property
    def runner_name(self) -> str:
        """The runner as one lower-case word: Beam also takes `flink` and a dotted path."""
        name = self.runner.rpartition(".")[2].lower()
        return name if name.endswith("runner") else f"{name}runner"

    @property
    def is_portable(self) -> bool:
        """Whether the run goes to a cluster through a job server."""
        return self.runner_name in FOREIGN_RUNNERS

    @property
    def is_dataflow(self) -> bool:
        """Whether the run goes to Dataflow."""
        return self.runner_name == "dataflowrunner"

    @property
    def loads_table(self) -> bool:
        """Whether the vectors go to a BigQuery table."""
        return self.output_format == "bigquery"

    @property
    def writes_texts(self) -> bool:
        """Whether the output holds the texts."""
        return self.keep_text or self.table_schema == BEAM_RAG

    @property
    def reads_table(self) -> bool:
        """Whether the input is a BigQuery table or query, not files."""
        if self.query is not None or self.input_format is not None:
            return self.query is not None or self.input_format == "bigquery"
        from bert_embed.transforms.bigquery.client import (
            looks_like_table,  # --help does not need it
        )

        return any(map(looks_like_table, self.input))


FLAGS: dict[str, Flag] = {
    each.name: each.metadata["flag"] for each in fields(EmbedOptions) if "flag" in each.metadata
}
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(EmbedOptions)}
