"""What a run is: its source and its work; what it says before it starts."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import chain, groupby, islice
from typing import Any

from bert_embed.base.errors import counted, shown_bytes
from bert_embed.bundle.bundle import Bundle, query_prompt, trained_prompts, unused_prompt
from bert_embed.bundle.fingerprints import run_fingerprint
from bert_embed.models.heads.kinds import KINDS
from bert_embed.pipeline.options.embed import DEFAULTS, Options
from bert_embed.pipeline.run.earlier import Earlier
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.summary import rows_text, skipped_text, suffix_counts
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.results.chain import EarlierOutput
from bert_embed.results.files import EXAMPLES, FORMATS
from bert_embed.results.run_record import Goal, QueryRows
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.load import TableLoad
from bert_embed.transforms.bigquery.read import TableRequest
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock
from bert_embed.transforms.examples import ExampleSettings
from bert_embed.transforms.increments import KeySettings
from bert_embed.transforms.listing import Listing, StoredListing
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import (
    AS_UTF8,
    COMPRESSIONS,
    EACH_FILE,
    WHOLE_FILES,
    InputFile,
    PlannedWork,
    default_block_bytes,
)
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.examples import ExampleReading, first_examples
from bert_embed.transforms.read.lines import Lines, first_lines, utf8_detail
from bert_embed.transforms.read.reader import document_blocks, example_blocks, parts_of
from bert_embed.transforms.read.streams import STRINGS, packing

BUCKET_KEYS = 1_000_000  # some 50 MB of hashes, compared in one worker's memory
_MOST_BUCKETS = 1 << 16
OUTPUT_FORMAT = 2  # rises when equal input would give other files


def head_settings(bundle: Bundle, text_spec: TextSpec) -> dict[str, dict[str, Any]]:
    """What a run says of the heads that make its vectors, by their kind."""
    return {
        kind: bundle.heads[kind].described(bundle.config, text_spec.head_options(kind))
        for kind in text_spec.heads
    }


@dataclass(frozen=True)
class Source:
    """What a run reads; a table is one file, and has an empty listing."""

    patterns: tuple[str, ...]  # absolute paths, folders and globs, or the table
    columns: Columns
    digest: str  # of the listing
    listing: Listing = field(default_factory=partial(Listing, [], {}))  # the files that were named
    files: list[InputFile] = field(default_factory=list)  # to read, with `--limit` the first ones
    documents: int = 0  # estimated, by the first records of a file of each kind
    table: TableRequest | None = None  # None if the input is files
    query_rows: QueryRows | None = None  # of a query's result, which expires
    expired: bool = False  # whether it has: its run is complete, and reads nothing
    examples: bool = False
    settings: ExampleSettings | None = None  # of examples; None for texts, and where no file says
    arrived: int = 0  # files that came after an unfinished run there had listed its input
    like_id: str | None = None  # a field that may hold the ids of documents named by places
    unchecked: str | None = None  # why a dry run could not look at the input and the output

    @property
    def bytes(self) -> int:
        """As stored; of Parquet, those of its texts."""
        return sum(file.text_bytes for file in self.files)

    @property
    def stored(self) -> StoredListing:
        """What workers plan the run from; no files for a table."""
        return StoredListing(self.digest, [] if self.table else self.files)


@dataclass(frozen=True)
class Work:
    """All that may change a byte of the output, but for the files that are read."""

    options: Options  # as given
    bundle: Bundle
    vector_spec: VectorSpec
    text_spec: TextSpec
    columns: Columns
    metadata: dict[str, Any]  # what the output's files say of the vectors, or examples, they hold
    digest: str  # of the listing
    block_bytes: int
    part_docs: int  # maximum number of documents in a part
    planned: PlannedWork
    skipped: Earlier | None  # the outputs whose documents are skipped
    reading: ExampleReading | None  # of examples; None for texts
    table: TableRequest | None  # divided into blocks; None if the input is files

    @property
    def earlier(self) -> tuple[EarlierOutput, ...]:
        """The outputs whose documents are skipped."""
        return self.skipped.outputs if self.skipped else ()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that changes rows or how files are cut."""
        cut: dict[str, Any] = {
            "output_format": self.options.output_format,
            "input_format": self.options.input_format,
            "block_bytes": self.block_bytes,
            "part_docs": self.part_docs,
            "limit": self.options.limit,
            "listing": self.digest,
        }
        if self.earlier:
            cut["skip_existing"] = [(output.run, output.digest) for output in self.earlier]
        # Not `vars`, which has what a column set has computed of itself, too.
        columns = {one.name: getattr(self.columns, one.name) for one in fields(self.columns)}
        return run_fingerprint(self.metadata, columns, cut)

    @property
    def token_spec(self) -> TextSpec:
        """How texts are tokenized."""
        return token_spec(self.options, self.text_spec)

    @property
    def read(self) -> "partial[Iterator[DocumentBlock]] | partial[Iterator[TokenBlock]]":
        """What gives the documents of a BlockSpec of files, without the parts in `done`."""
        docs, size = self.part_docs, self.block_bytes
        if self.reading is not None:
            return partial(example_blocks, reading=self.reading, part_docs=docs, block_bytes=size)
        return partial(document_blocks, columns=self.columns, part_docs=docs, block_bytes=size)


def token_spec(options: Options, text_spec: TextSpec) -> TextSpec:
    """How texts are tokenized: examples hold each token's place."""
    kinds = text_spec.granularity
    if options.output_format != EXAMPLES or "token" in kinds:
        return text_spec
    return replace(text_spec, granularity=(*kinds, "token"))


def described(
    options: Options, bundle: Bundle, vector_spec: VectorSpec, text_spec: TextSpec, id_type: str
) -> dict[str, Any]:
    """What the files of an output say of the vectors, or examples, that they hold."""
    if options.output_format == EXAMPLES:  # the fields of ExampleSettings
        spec = token_spec(options, text_spec)
        prompt_tokens = load_tokenizer(bundle).prompt_length(spec.prompt) if spec.prompt else 0
        return {
            "tokenizer": bundle.tokenizer_fingerprint,
            "max_seq_length": spec.max_seq_length,
            "long_text": spec.long_text,
            "overlap": spec.overlap,
            "prompt": spec.prompt,
            "prompt_tokens": prompt_tokens,
            "granularity": list(spec.granularity),
            "keep_text": spec.keep_text,
        }
    needs_tokens, config = text_spec.needs_tokens, bundle.config
    heads = head_settings(bundle, text_spec)
    queries, similarity = query_prompt(bundle, text_spec.prompt), bundle.similarity
    return {
        "format": OUTPUT_FORMAT,
        "model": bundle.fingerprint,
        "model_source": bundle.source,
        "tokenizer": bundle.tokenizer_settings,
        "num_hidden_layers": config.num_hidden_layers,
        "precision": options.precision,
        "output_dtype": options.output_dtype,
        "shape": list(vector_spec.shape(config)),
        "token_shape": list(vector_spec.token_shape(config)) if needs_tokens else None,
        "id_type": id_type,
        **vector_spec.to_dict(),
        **text_spec.to_dict(),
        **({"heads": heads} if heads else {}),
        **({"query_prompt": queries} if queries else {}),
        **({} if similarity == "cosine" else {"similarity": similarity}),
        **({"int8_word_scales": "balanced"} if options.precision == "int8" else {}),
    }


@dataclass(frozen=True)
class EmbedRun:
    """A run that is checked: what it reads, computes and writes."""

    options: Options  # as given
    job: RunnerOptions
    source: Source
    work: Work
    state: OutputState  # the output, as it was found
    load: TableLoad | None = None  # None if the vectors stay in files
    engine: str | None = None  # None for examples, and where workers choose it
    bytes: int = 0  # of the output, about

    @property
    def kind(self) -> str:
        """What the run writes: `vectors`, or only `examples`."""
        return FORMATS[self.options.output_format].holds

    @property
    def folder(self) -> OutputFolder:
        """The paths of the run's files."""
        return self.state.folder

    @property
    def output(self) -> str:
        """The absolute folder, or URL, of the run's files."""
        return self.state.folder.path

    @property
    def fingerprint(self) -> str:
        """Of everything that changes rows or how files are cut."""
        return self.work.fingerprint

    @property
    def keys(self) -> KeySettings | None:
        """How the ids of the documents are compared; None if they are not."""
        work, skipped = self.work, self.work.skipped
        if skipped is None or not skipped.outputs:
            return None
        keys = self.source.documents + sum(output.documents for output in skipped.outputs)
        buckets = min(keys // BUCKET_KEYS + 1, _MOST_BUCKETS)
        keeper, read = self.folder if skipped.is_chain else None, None if work.table else work.read
        return KeySettings(skipped.sources, buckets, read, keeper)

    @property
    def keeps_texts(self) -> bool:
        """Whether workers may keep texts of parts in the output, while a large file is cut."""
        return None in self.work.planned.stops

    @property
    def reads_all(self) -> bool:
        """Whether it sees all documents of its input; `tokenize` may have rejected some before."""
        source = self.source
        return self.options.limit is None and not source.examples and not source.arrived

    @property
    def goal(self) -> Goal:
        """What the progress of the run is measured against."""
        planned = self.work.planned
        stops = [stop for stop in planned.stops if stop is not None]
        covers = sum(stops) if len(stops) == len(planned.stops) else None
        return Goal(planned.blocks, covers, self.source.documents)


MOST_PART_DOCS = 65_536
_MOST_PART_BYTES = 128 << 20  # of vectors: a part is held in memory as a whole
_SLOW_MODEL = 768  # hidden size from which a block of the largest size would take minutes
_SLOW_MODEL_BLOCK = 256 << 10
_ACCELERATED, _LARGEST_ACCELERATED = 4, 4 << 20
_MOST_TOKEN_BYTES = 64 << 20  # of tokens' vectors in a block
_SMALLEST_BLOCK = 4 << 10
_TEXT_BYTES_A_TOKEN = 4
_SHORT_CHUNK = 4  # tokens of a short sentence
_CHUNK_TOKENS = {"sentence": 20, "paragraph": 80, "tokens": 200}
_ROW_OVERHEAD = 60  # bytes of a row beside its vector: id, counts, hash
_COMPRESSION = 4  # times that a text is larger than its compressed file


@dataclass(frozen=True)
class Widths:
    """How wide the output is, in numbers."""

    document: int  # in the vectors of a document
    token: int  # in those of each of its tokens, or words
    held: int = 0  # of each token that are computed, and so held in memory
    step: int = 0  # tokens of a text for each of its vectors; 0: a document has one
    plain: int = 0  # of a document, in what heads make, stored as float32 whatever the type

    @property
    def part_docs(self) -> int:
        """Maximum number of documents in a part, which is held in memory as a whole."""
        return max(1, min(MOST_PART_DOCS, _MOST_PART_BYTES // self.row_bytes))

    @property
    def row_bytes(self) -> int:
        """Bytes of a document that are in memory at a time, tokens apart."""
        return 4 * max(self.document + self.plain, 1)

    @classmethod
    def of(cls, text_spec: TextSpec, vector_spec: VectorSpec, bundle: Bundle) -> "Widths":
        by_token = text_spec.needs_tokens or text_spec.pools_late
        token_shape = vector_spec.token_shape(bundle.config) if by_token else ()
        settings = {
            "shape": vector_spec.shape(bundle.config),
            "token_shape": token_shape,
            "heads": head_settings(bundle, text_spec),
        }
        numbers = sum((KINDS[kind].numbers(settings) for kind in text_spec.kinds), Counter[str]())
        step = 0
        if text_spec.chunk is not None:
            most = text_spec.most_chunk_tokens if text_spec.fills_chunks else _SHORT_CHUNK
            step = max(most - (text_spec.overlap or 0), 1)
        held = math.prod(token_shape) if text_spec.pools_late else numbers["token"]
        plain = numbers["plain"] + len(text_spec.heads) * _ROW_OVERHEAD // 4
        return cls(numbers["document"], numbers["token"], held, step, plain)


def estimated_rows(documents: int, text_bytes: int, text_spec: TextSpec) -> int:
    """Estimates how many vectors of sentences there are: one a document, or one a chunk."""
    if text_spec.chunk is None:
        return documents
    tokens = text_spec.chunk_tokens or _CHUNK_TOKENS[text_spec.chunk]
    return max(documents, text_bytes // _TEXT_BYTES_A_TOKEN // tokens)


def block_bytes(total: int, bundle: Bundle, widths: Widths, accelerated: bool = False) -> int:
    """Bytes of text in a block, by the requested device: the plan must not depend on workers."""
    size = default_block_bytes(total)
    if accelerated:
        size = min(size * _ACCELERATED, _LARGEST_ACCELERATED)
    elif bundle.config.hidden_size >= _SLOW_MODEL:
        size = min(size, _SLOW_MODEL_BLOCK)
    if widths.held:
        # A token is some four bytes of text, and so is each of its numbers.
        size = min(size, max(_MOST_TOKEN_BYTES // widths.held, _SMALLEST_BLOCK))
    if widths.step:
        rows = _MOST_PART_BYTES // widths.row_bytes
        size = min(size, max(rows * widths.step * _TEXT_BYTES_A_TOKEN, _SMALLEST_BLOCK))
    return size


_COUNTED, _COUNTED_PACKED = 4 << 20, 1 << 20  # bytes of a file whose documents are counted


def count_documents(files: list[InputFile], limit: int | None, columns: Columns) -> int:
    """Estimates how many documents an input has; counts them where no text has to be read."""
    if files and files[0].format == "tfrecord":
        sizes = [len(record.data or b"") for record in first_examples(files[0])]
        documents = round(_stored_bytes(files) * len(sizes) / max(1, sum(sizes)))
    else:
        documents = sum(file.stop for file in files if file.footer is not None)
        documents += sum(file.format == WHOLE_FILES for file in files)
        others = [file for file in files if file.footer is None and file.format != WHOLE_FILES]
        # The largest of a kind stands for it: a short note in a folder says nothing of its tables.
        others.sort(key=lambda file: (file.format, -file.stop))
        for _, alike in groupby(others, key=lambda file: file.format):
            same = list(alike)
            if first := next(chain.from_iterable(_records(one, columns) for one in same), None):
                documents += max(1, round(_stored_bytes(same) / (first.size / first.count)))
    return documents if limit is None else min(documents, limit)


def _records(file: InputFile, columns: Columns) -> Iterator[Lines]:
    """Whole records of the start of a file."""
    most = _COUNTED_PACKED if packing(file.compression) else _COUNTED
    if file.format != "csv":
        return (content for content in [first_lines(file, most)] if content.count)
    parts = parts_of(replace(file.as_block(), read_through=True), most, most, columns)
    contents = chain.from_iterable(part.contents for part in parts)
    return (content for content in contents if content.count and not content.too_large)


def _stored_bytes(files: list[InputFile]) -> int:
    return sum(file.stop * (_COMPRESSION if packing(file.compression) else 1) for file in files)


def estimated_size(
    documents: int,
    text_bytes: int,
    options: Options,
    widths: Widths,
    tokens: int | None = None,
) -> int:
    """Estimates the bytes of the output; of `tokens` that nobody counted, by those of the texts."""
    if tokens is None:
        tokens = text_bytes // _TEXT_BYTES_A_TOKEN
    numbers = documents * widths.document + tokens * widths.token
    sizes = documents, tokens, numbers, documents * widths.plain, options.output_dtype
    text_size = text_bytes if options.keep_text else 0
    return text_size + FORMATS[options.output_format].size(*sizes)


# Suffixes of texts of which a good part are no words.
_MARKUP = {"htm", "html", "rtf", "xhtml", "xml"}


def plan_lines(run: EmbedRun) -> list[str]:
    """What a run will read, compute and write."""
    source, work, options = run.source, run.work, run.options
    listed = (
        f"{counted(len(work.planned.paths), 'file')}, {shown_bytes(source.bytes)}, about "
        f"{counted(source.documents, 'document')}, in {counted(work.planned.blocks, 'block')}"
    )
    rows = rows_text(work.text_spec.to_dict())
    rows += f", prompt {work.text_spec.prompt!r}" if work.text_spec.prompt else ""
    written = f"to {run.output}, about {shown_bytes(run.bytes)}"
    notes = list(_prompt_notes(run))
    is_pooled = options.pooling is None and run.kind != "examples"
    if is_pooled and not work.bundle.names_pooling:
        notes += [_UNNAMED_POOLING.format(options.model)] * ("sentence" in work.text_spec.kinds)
    if options.max_deleted != DEFAULTS["max_deleted"] and not options.skip_existing:
        notes.append("note: --max_deleted has no effect without --skip_existing")
    if source.unchecked is not None:
        listed = f"from {', '.join(source.patterns) or 'the --query'}"
        written = f"to {run.output}"
    if run.kind == "examples":
        model = f"tokenizer of {options.model} ({work.bundle.tokenizer_fingerprint}): {rows}"
        return [listed, *_file_notes(run), model, written, *notes]
    spec, unit = work.vector_spec, work.text_spec.pieces or "document"
    for one in work.earlier:
        part = "" if one.complete else " (an unfinished run: its finished blocks count)"
        notes.append(f"without what {one.place} has with the same text{part}")
    layers = f"layers {','.join(map(str, spec.layers))} {spec.layer_combine}"
    parts = [layers] * ("dense" in work.text_spec.vectors)
    parts += [KINDS[kind].words(work.metadata, unit) for kind in work.text_spec.kinds]
    types = (("computed in", options.precision), ("stored as", options.output_dtype))
    parts += [rows, *(f"{what} {kind}" for what, kind in types if kind != "float32")]
    model = f"model {options.model} ({work.bundle.fingerprint[:12]}): {', '.join(parts)}"
    return [listed, *_file_notes(run), model, written, *notes]


def _file_notes(run: EmbedRun) -> Iterator[str]:
    """The suffixes of the files, those that are skipped, what a document is, and its columns."""
    source, work = run.source, run.work
    plain = [file for file in source.files if file.format in ("text", WHOLE_FILES)]
    lines = [file for file in plain if file.format == "text"]
    notes = [suffix_counts(source.listing.suffixes)] if len(work.planned.paths) > 1 else []
    notes += [skipped_text(source.listing.skipped)] if source.listing.skipped else []
    if run.options.input_format == EACH_FILE:
        notes.append("each text file is one document")
    elif plain:
        split = ", which --chunk splits" if run.options.chunk else ""
        each = f"each line of plain text is one document{split}"
        notes.append(f"{each} (--input_format files: each file)")
    if notes:
        yield "; ".join(notes)
    markup = [suffix for suffix in source.listing.suffixes if _MARKUP & {*suffix.split(".")}]
    if plain and markup:
        yield (
            f"note: {', '.join(markup)} files are read as they are, tags and all: convert them to "
            "plain text or Markdown first"
        )
    if 0 < len(lines) < len(source.files):
        files = counted(len(lines), "text file lies", "text files lie")
        yield (
            f"note: {files} beside files of records, and each line is a document, as of "
            f"{lines[0].info.path}: name the others alone if that is not meant"
        )
    paths = dict.fromkeys(file.info.path for file in source.files)
    packed = (path.rpartition(".")[0] for path in paths if path.endswith(tuple(COMPRESSIONS)))
    for path in islice((path for path in packed if path in paths), 1):
        yield f"note: {path} is there compressed, too, and both are read: name the one that counts"
    yield from _collection_notes(source.files)
    if source.like_id is not None:
        yield (
            "note: no field is named id, so documents have their places as ids: if "
            f"{source.like_id} holds their ids, give --id_column '{source.like_id}'"
        )
    if source.arrived:
        yield (
            f"note: {counted(source.arrived, 'file')} arrived since this run began, which goes on "
            "without; embed them afterwards into another output, with --skip_existing for this one"
        )
    if run.options.text_column or run.options.text_b_column:
        pair = f", paired with {work.columns.text_b}" if work.columns.text_b else ""
        yield f"text: {' + '.join(work.columns.texts)}{pair}"
    if work.columns.extra:
        columns = ", ".join(f"{column.name} {column.type}" for column in work.columns.extra)
        yield f"extra columns: {columns}"


_MOST_SUFFIXES, _LOOKED_AT = 20, 1 << 12  # of each suffix so many bytes of a file
# First lines of files that hold many documents in a form of their own, and what reads them.
_COLLECTIONS = (
    (rb"WARC/\d", "WARC records", "warcio"),
    (rb"(?i:<doc\b[^>]*>)", "<doc> elements", "wikiextractor --json, or ir_datasets"),
    (
        rb"(?i:<(\?xml|!doctype|html|mediawiki|rss|add)\b|<[\w:]+ xmlns|<\w[^<>\n]*>\s*<\w)",
        *("markup", "lxml"),
    ),
    (rb"(From |[A-Z][A-Za-z-]+: )\S.*\n([ \t].*\n)*[A-Z][\w-]+: ", "mails", "mailbox or email"),
    (
        rb"(%.*\n\s*)*@\w+\{|TY  - |PMID- |%0 |FN (Clarivate|Thomson)",
        *("references", "bibtexparser, rispy or nbib"),
    ),
    (
        rb"# (newdoc|newpar|sent_id|text|global)\b.*=|1\t(\S+\t){8}|-DOCSTART-"
        rb"|(\S+[ \t]([^\n]*[ \t])?(O|[BIES]-[A-Z]\w*)\r?\n){2}",
        *("sentences of CoNLL", "conllu or nltk"),
    ),
    (rb"(<http\S+>|_:\w+) <http|@prefix ", "triples", "rdflib"),
    (rb"(---\s+)?- ?\w+: .*\n +\w+: ", "YAML", "PyYAML"),
    (rb'(#.*\n)*msgid "', "translations", "polib"),
    (rb"\{'\w", "Python's dicts", "ast.literal_eval"),
    (
        rb"(?i:(--\s+)?(insert into|create table|drop table|begin transaction|pragma \w+=)"
        rb"|(--\s+)+(\w+ )?(\w*sql|mariadb) |/\*M?!\d|set \w+ = )",
        *("SQL", "the database"),
    ),
    (rb"[^\x01\n]+\x01", "fields between ^A", "--input_format csv with --csv_header"),
    (rb"[^\x1f\n]+\x1f", "fields between ^_", "sqlite3 -json"),
    (
        rb"(.*\n)?[+| ]*--+[+|: ]+--[-+|: ]*\r?\n|(\xe2\x94\x8c|\xe2\x95\xad)\xe2\x94\x80",
        *("drawn tables", "psql --csv or sqlite3 -json"),
    ),
    (rb"__label__\S+ ", "labels of fastText", "jq -cR"),
    (rb'[^{\n]*\n\s*\{\s*"', "JSON behind another line", "tail -n +2 FILE"),
    (
        rb'\[\s*"(?:[^"\\\n]|\\.)*+"\s*[],]|(?:"(?:[^"\\\n]|\\.)*+"\r?\n){2}',
        *("JSON strings", STRINGS),
    ),
    (
        rb"\[Script Info|(\d+\r?\n)?\d+:\d\d:\d\d[,.]\d+( -->|,\d)|WEBVTT|\[(ti|ar|\d\d):",
        *("subtitles", "pysrt or webvtt"),
    ),
)


def _collection_notes(files: list[InputFile]) -> Iterator[str]:
    """Names text files, one of each suffix, whose lines are not all texts, or not UTF-8."""
    by_suffix: dict[str, InputFile] = {}
    for file in files:
        if file.format in ("text", WHOLE_FILES, "csv", "jsonl") and file.stop:
            by_suffix.setdefault(os.path.splitext(file.info.path)[1], file)
    for file in islice(by_suffix.values(), _MOST_SUFFIXES):
        start = first_lines(file, _LOOKED_AT).text
        if utf8_detail(start) is not None:
            yield f"note: {file.info.path} is not UTF-8, and such records are rejected: {AS_UTF8}"
        if file.format in ("csv", "jsonl"):
            continue
        is_named = bool(_MARKUP & {*file.info.path.lower().split(".")})  # which says it already
        stripped = start.lstrip()
        for begin, what, reader in _COLLECTIONS:
            if re.match(begin, stripped) and not (is_named and what == "markup"):
                yield (
                    f"note: {file.info.path} holds {what}, whose headers and marks are read as "
                    f"texts: write a document a line first, as JSON lines ({reader} reads them)"
                )
        if _looks_like_csv(start):
            yield (
                f"note: {file.info.path} looks like CSV, and its lines are read as texts: "
                "--input_format csv reads its columns"
            )


def _looks_like_csv(start: bytes) -> bool:
    """Whether the first line has the name `text` or `id`, and the second as many fields."""
    first, _, rest = start.partition(b"\n")
    second = rest.partition(b"\n")[0]
    for mark in (b",", b";", b"\t", b"|"):
        names = [name.strip(b' "\r').lower() for name in first.split(mark)]
        if 1 < len(names) <= second.count(mark) + 1 and {b"text", b"id"} & {*names}:
            return True
    return False


_UNNAMED_POOLING = (
    "note: the files of {} name no pooling, so the mean of its tokens is taken: it may be no model "
    "for sentences, and then all texts have high scores"
)


def _prompt_notes(run: EmbedRun) -> Iterator[str]:
    """Names the prompt that documents do not get, though the model seems to want it."""
    model, bundle = run.options.model, run.work.bundle
    trained = trained_prompts(bundle)
    if run.options.prompt is not None:
        return
    if (name := unused_prompt(bundle)) is not None:
        yield (
            f"note: {model} names a prompt {name}, but none document, so documents get none, as in "
            f"sentence-transformers; --prompt name:{name} puts it there"
        )
    elif trained is not None and trained.document != run.work.text_spec.prompt:
        yield (
            f"note: {model} was trained with {trained.document!r} before each document and "
            f"{trained.query!r} before each query, which its files do not say: --prompt "
            f"{trained.document!r} puts it there, and search then does the other by itself"
        )
