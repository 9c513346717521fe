"""Defines EmbedRun, a run that is checked and can start."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.prompts import query_prompt
from bert_embed.formats.kinds import KINDS
from bert_embed.pipeline.options import EXAMPLES, Options
from bert_embed.pipeline.runner_options import RunnerOptions
from bert_embed.run_record import Goal, QueryRows
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.tokenization.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.load import TableLoad
from bert_embed.transforms.bigquery.read import TableRequest
from bert_embed.transforms.examples.read import ExampleReading
from bert_embed.transforms.examples.write import ExampleFiles, ExampleSettings
from bert_embed.transforms.increments import EarlierOutput, KeySettings
from bert_embed.transforms.ledger import sample_bits
from bert_embed.transforms.listing import StoredListing
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import PlannedWork
from bert_embed.transforms.plan import PlanRequest
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.write import Counting

BUCKET_KEYS = 1_000_000  # some 50 MB of hashes, compared in one worker's memory
_MOST_BUCKETS = 1 << 16
_UNCOMPRESSED = {"compression": "none"}  # which TFRecord files could be in earlier versions
OUTPUT_FORMAT = 2  # rises when equal input would give other files


def key_buckets(documents: int, earlier: tuple[EarlierOutput, ...]) -> int:
    """The number of groups into which ids are divided to compare them.

    >>> key_buckets(1_000, ()), key_buckets(2_500_000, ())
    (1, 3)
    """
    keys = documents + sum(output.documents for output in earlier)
    return min(keys // BUCKET_KEYS + 1, _MOST_BUCKETS)


def head_settings(bundle: Bundle, text_spec: TextSpec) -> dict[str, dict[str, Any]]:
    """What a run says of the heads that make its vectors, by their kind."""
    return {
        kind: KINDS[kind].described(bundle.heads[kind], bundle.config, text_spec)
        for kind in text_spec.heads
    }


@dataclass(frozen=True)
class EmbedRun:
    """A run that is checked: what it reads, computes and writes."""

    options: Options  # as given
    job: RunnerOptions
    output: str  # absolute folder, or URL
    bundle: Bundle
    vector_spec: VectorSpec
    text_spec: TextSpec
    request: PlanRequest  # from what the plan is cut into blocks
    listing: StoredListing  # the files from which it is planned; empty for a table
    arrived: int  # files that came after an unfinished run there had listed its input
    patterns: tuple[str, ...]  # absolute paths, folders and globs, or the table
    planned: PlannedWork  # the plan at this moment
    columns: Columns
    part_docs: int  # maximum number of documents in a part
    input_bytes: int  # as stored; of Parquet, those of its texts
    estimated_documents: int  # by the first records of the first file
    settings: ExampleSettings | None  # of examples; None for texts, and where no file says
    reading: ExampleReading | None  # of examples; None for texts
    table: TableRequest | None  # None if the input is files
    query_rows: QueryRows | None  # of a query's result, which expires
    suffixes: dict[str, int]  # of the files that are read: how many of each
    text_files: int  # how many are plain text
    skipped_files: dict[str, int]  # suffixes of the files that are not text: how many were skipped
    fingerprint: str = ""  # of everything that changes rows or how files are cut
    estimated_bytes: int = 0
    earlier: tuple[EarlierOutput, ...] = ()  # whose documents are skipped
    load: TableLoad | None = None  # None if the vectors stay in files
    engine: str | None = None  # None for examples, and where workers choose it
    unchecked: str | None = None  # why a dry run could not look at the input and the output
    disk_note: str | None = None  # what to say of a disk that may be too small

    @property
    def kind(self) -> str:
        """What the run writes: `vectors`, or only `examples`."""
        return EXAMPLES if self.options.output_format == EXAMPLES else "vectors"

    @property
    def folder(self) -> OutputFolder:
        """The paths of the run's files."""
        return OutputFolder(self.output)

    @property
    def example_files(self) -> ExampleFiles:
        """How examples are written."""
        return ExampleFiles(self.output, self.bundle.tokenizer_fingerprint)

    @property
    def token_spec(self) -> TextSpec:
        """How texts are tokenized: examples hold each token's place."""
        kinds = self.text_spec.granularity
        if self.kind != EXAMPLES or "token" in kinds:
            return self.text_spec
        return replace(self.text_spec, granularity=(*kinds, "token"))

    @property
    def written_examples(self) -> ExampleSettings:
        """How the examples are tokenized that this run writes."""
        text_spec = self.token_spec
        prompt = text_spec.prompt
        prompt_tokens = load_tokenizer(self.bundle).prompt_length(prompt) if prompt else 0
        return ExampleSettings(
            tokenizer=self.bundle.tokenizer_fingerprint,
            max_seq_length=text_spec.max_seq_length,
            long_text=text_spec.long_text,
            stride=text_spec.stride,
            prompt=prompt,
            prompt_tokens=prompt_tokens,
            granularity=text_spec.granularity,
            run=self.fingerprint,
            keep_text=text_spec.keep_text,
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """The description of the vectors, or examples, that the output's files hold."""
        if self.kind == EXAMPLES:
            described = asdict(self.written_examples)
            del described["run"]
            described["granularity"] = list(described["granularity"])  # as JSON returns it
            return described | _UNCOMPRESSED
        queries = query_prompt(self.bundle, self.text_spec.prompt)
        similarity = self.bundle.similarity
        return (_UNCOMPRESSED if self.options.output_format == "tfrecord" else {}) | {
            "format": OUTPUT_FORMAT,
            "model": self.bundle.fingerprint,
            "model_source": self.bundle.source,
            "tokenizer": self.bundle.tokenizer_settings,
            "num_hidden_layers": self.bundle.config.num_hidden_layers,
            "precision": self.options.precision,
            "output_dtype": self.options.output_dtype,
            "shape": list(self.vector_spec.shape(self.bundle.config)),
            "token_shape": list(self.vector_spec.token_shape(self.bundle.config))
            if self.text_spec.needs_tokens
            else None,
            "id_type": self.columns.id_type,
            **self.vector_spec.to_dict(),
            **self.text_spec.to_dict(),
            **({"heads": heads} if (heads := head_settings(self.bundle, self.text_spec)) else {}),
            **({"query_prompt": queries} if queries else {}),
            **({} if similarity == "cosine" else {"similarity": similarity}),
            **self._int8_file,
        }

    @property
    def _int8_file(self) -> dict[str, Any]:
        # Bundles of one model may hold different files for int8, by the version that wrote them.
        if self.options.precision != "int8":
            return {}
        return {"int8_word_scales": self.bundle.int8_word_scales}

    @property
    def keys(self) -> KeySettings | None:
        """How the ids of the documents are compared; None if they are not."""
        if not self.earlier:
            return None
        return KeySettings(
            self.earlier,
            key_buckets(self.estimated_documents, self.earlier),
            self.folder,
            self.fingerprint,
            self.columns,
            self.part_docs,
            self.request.block_bytes,
            self.reading,
        )

    @property
    def counting(self) -> Counting:
        """How different texts and ids are counted; ids that are places are all different."""
        bits = sample_bits(self.estimated_documents)
        return Counting(bits, ids=bits == 0 and self.columns.id is not None)

    @property
    def goal(self) -> Goal:
        """What the progress of the run is measured against."""
        stops = [stop for stop in self.planned.stops if stop is not None]
        covers = sum(stops) if len(stops) == len(self.planned.stops) else None
        return Goal(self.planned.blocks, covers, self.estimated_documents)
