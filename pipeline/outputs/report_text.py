"""Writes the sentences of a run: its plan, its summary, notes on crashes, and SQL for its table."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bert_embed.bundle.prompts import trained_prompts, unused_prompt
from bert_embed.formats.kinds import KINDS
from bert_embed.formats.output_files import PIECES
from bert_embed.pipeline.outputs.outcome import ADVICE
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.run_record import Result, RunRecord
from bert_embed.storage.plurals import counted, counted_of
from bert_embed.transforms.bigquery.client import TableName
from bert_embed.transforms.crash_markers import Crash, crashes
from bert_embed.transforms.increments import EarlierOutput
from bert_embed.transforms.listing import HIDDEN

_MOST_NAMED = 5
_WORST_FILES = 3
# English prose, notes and program code have 7 to 10%, German, French, Polish and Russian 33 to 75%
# with the vocabulary of an English model.
_MUCH_SPLIT = 0.3
_MUCH = 0.05  # share of tokens that were lost, above which the summary warns
_SUFFIXES = (".csv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".tfrecord", ".txt")
_LONG_TEXTS = {
    "truncate": "texts cut at",
    "window": "texts in windows of",
    "reject": "texts rejected over",
}

# SQL that searches a table of a kind of vectors, or that lists documents by a score
_STATEMENTS = {
    "sentence": """\
-- {path}: vectors of {width} numbers; an index takes 5,000 rows or more
CREATE VECTOR INDEX IF NOT EXISTS embedding_index ON `{path}`(embedding)
OPTIONS (index_type = 'IVF', distance_type = '{distance}');
SELECT base.id, distance FROM VECTOR_SEARCH(
  TABLE `{path}`, 'embedding',
  (SELECT @query AS embedding),  -- ARRAY<FLOAT64> of {width} numbers
  top_k => 10, distance_type => '{distance}');
""",
    "sparse": """\
-- {path}: sparse vectors; @query is ARRAY<STRUCT<index INT64, value FLOAT64>>
SELECT * FROM (SELECT id, (
    SELECT SUM(entry.value * query.value) FROM UNNEST(sparse) AS entry
    JOIN UNNEST(@query) AS query ON query.index = entry.index
  ) AS score FROM `{path}`) WHERE score > 0 ORDER BY score DESC LIMIT 10;
""",
    "multi": """\
-- {path}: multi-vectors; @query is ARRAY<STRUCT<embedding ARRAY<FLOAT64>>>, each of {width} numbers
SELECT id, (SELECT SUM((SELECT MAX((
    SELECT SUM(x * y) FROM UNNEST(q.embedding) AS x WITH OFFSET n
    JOIN UNNEST(token.embedding) AS y WITH OFFSET m ON n = m
  )) FROM UNNEST(multi) AS token)) FROM UNNEST(@query) AS q) AS score
FROM `{path}` ORDER BY score DESC LIMIT 10;
""",
    "scores": "SELECT * FROM `{path}` ORDER BY `{first}` DESC LIMIT 10;",
}
# What BigQuery calls the similarities; of distances it knows one.
_DISTANCES = {
    "cosine": "COSINE",
    "dot": "DOT_PRODUCT",
    "euclidean": "EUCLIDEAN",
    "manhattan": "EUCLIDEAN",
}
_UNIT_STATEMENT = """\
-- {path}: lists of vectors of {width} numbers
SELECT id, each.* FROM `{path}`, UNNEST({folder}) AS each;
"""


def plan_lines(run: EmbedRun) -> list[str]:
    """What a run will read, compute and write."""
    listed = (
        f"{counted(len(run.planned.paths), 'file')}, {run.input_bytes / 1e6:,.1f} MB, about "
        f"{counted(run.estimated_documents, 'document')}, in {counted(run.planned.blocks, 'block')}"
    )
    rows = _rows_text(run.text_spec.to_dict())
    rows += f", prompt {run.text_spec.prompt!r}" if run.text_spec.prompt else ""
    folder = " (a folder)" if run.output.endswith(_SUFFIXES) else ""
    written = f"to {run.output}{folder}, about {run.estimated_bytes / 1e6:,.1f} MB"
    notes = [] if run.disk_note is None else [run.disk_note]
    notes += _prompt_notes(run)
    if run.unchecked is not None:
        listed, written = f"from {', '.join(run.patterns) or 'the --query'}", f"to {run.output}"
    if run.kind == "examples":
        tokenizer = run.bundle.tokenizer_fingerprint
        model = f"tokenizer of {run.options.model} ({tokenizer}): {rows}"
        return [listed, *_file_notes(run), model, written, *notes]
    spec, settings, unit = run.vector_spec, run.metadata, run.text_spec.pieces or "document"
    earlier = map(_earlier_line, run.earlier)
    vectors = [KINDS[kind].words(settings, unit) for kind in run.text_spec.kinds]
    layers = f"layers {','.join(map(str, spec.layers))} {spec.layer_combine}"
    parts = [layers] * ("dense" in run.text_spec.vectors) + vectors
    model = f"model {run.options.model} ({run.bundle.fingerprint[:12]}): {', '.join(parts)}, {rows}"
    return [listed, *_file_notes(run), model + _types_text(run), written, *notes, *earlier]


def _types_text(run: EmbedRun) -> str:
    """The number types that are not float32."""
    computed, stored = run.options.precision, run.options.output_dtype
    shown = [] if computed == "float32" else [f", computed in {computed}"]
    return "".join([*shown, *([] if stored == "float32" else [f", stored as {stored}"])])


def _file_notes(run: EmbedRun) -> Iterator[str]:
    """The suffixes of the files, those that are skipped, what a document is, and its columns."""
    notes = []
    if len(run.planned.paths) > 1:
        notes.append(_suffix_counts(run.suffixes))
    if run.skipped_files:
        notes.append(_skipped_text(run.skipped_files))
    if run.options.document == "file":
        notes.append("each text file is one document")
    elif run.text_files:
        split = ", which --chunk splits" if run.options.chunk else ""
        notes.append(f"each line of plain text is one document{split} (--document file: each file)")
    if notes:
        yield "; ".join(notes)
    if run.arrived:
        files = counted(run.arrived, "file", "files")
        yield (
            f"note: {files} arrived since this run began, which goes on without; embed them "
            "afterwards into another output, with --skip_existing for this one"
        )
    if run.options.text_column or run.options.text_b_column:
        pair = f", paired with {run.columns.text_b}" if run.columns.has_pairs else ""
        yield f"text: {' + '.join(run.columns.texts)}{pair}"
    if run.columns.extra:
        columns = ", ".join(f"{column.name} {column.type}" for column in run.columns.extra)
        yield f"extra columns: {columns}"


def _skipped_text(files: Mapping[str, int]) -> str:
    why = "hidden or not text" if HIDDEN in files else "not text"
    skipped = counted(sum(files.values()), f"file is {why} and is", f"files are {why} and are")
    return f"{skipped} skipped ({_suffix_counts(files)})"


def _suffix_counts(counts: Mapping[str, int]) -> str:
    """The most frequent suffixes and how many files have them."""
    shown = [f"{suffix or 'no suffix'} {count:,}" for suffix, count in counts.items()]
    return ", ".join(shown[:_MOST_NAMED]) + ", …" * (len(shown) > _MOST_NAMED)


def _earlier_line(earlier: EarlierOutput) -> str:
    unfinished = "" if earlier.complete else " (an unfinished run: its finished blocks count)"
    return f"without what {earlier.place} has with the same text{unfinished}"


def summary_lines(output: str, record: RunRecord, page: str | None = None) -> list[str]:
    """What came out of a complete run, by its record; `page` is the path of its report."""
    result = record.numbers
    counts = result.counts
    skipped = f"{counts.skipped:,} skipped, " if counts.skipped else ""
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in result.rejected.items())
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in result.stage_seconds.items())
    done = "embedded" if record.kind == "vectors" else "tokenized"
    again = counts.parts_reused > 0
    rows = ", ".join(f"{kind}/ {files.rows:,}" for kind, files in result.written.items())
    lines = [
        f"{counted(counts.records, 'record')}: {counts.embedded:,} {done}, {skipped}"
        f"{counts.rejected:,} rejected{f' ({rejected})' if rejected else ''}"
    ]
    if counts.records == 0:
        lines.append("warning: the input holds no records")
    if record.input.skipped_files:
        lines.append(_skipped_text(record.input.skipped_files))
    if again:
        reused = counts.parts_reused, counts.parts
        lines.append(f"{counted_of(*reused, 'part', 'was', 'were')} there before")
    return [
        *lines,
        f"{counted(result.tokens, 'token')}, padding {100 * result.padding_share:.1f}%, "
        f"{_cut_text(record)}",
        *_unknown_lines(result),
        *_unfit_lines(record),
        *_equal_lines(record),
        f"{result.elapsed_seconds:.1f} s{' this time' if again else ''}: {_speed(result)} "
        f"(seconds per stage{', of all attempts' if again else ''}: {stages})",
        f"{record.kind} in {output}{f' (rows: {rows})' if rows else ''}, everything about the "
        f"run in {output}/run.json{f', the report in {page}' if page else ''}",
    ]


def _prompt_notes(run: EmbedRun) -> list[str]:
    """Names the prompt that documents do not get, though the model seems to want it."""
    if run.options.prompt is not None:
        return []
    if (name := unused_prompt(run.bundle)) is not None:
        return [
            f"note: {run.options.model} names a prompt {name}, but none document, so documents get "
            f"none, as in sentence-transformers; --prompt name:{name} puts it there"
        ]
    trained = trained_prompts(run.bundle)
    if trained is None or trained.document == run.text_spec.prompt:
        return []
    return [
        f"note: {run.options.model} was trained with {trained.document!r} before each document and "
        f"{trained.query!r} before each query, which its files do not say: --prompt "
        f"{trained.document!r} puts it there, and search then does the other by itself"
    ]


def _cut_text(record: RunRecord) -> str:
    settings, result = record.settings, record.numbers
    if settings["long_text"] != "truncate" or settings.get("chunk") is not None:
        return _rows_text(settings)
    cut = result.counts.truncated
    lost = f" ({_percent(result.cut_share)} of all tokens)" if cut else ""
    return f"{counted(cut, 'text')} cut at {settings['max_seq_length']} tokens{lost}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


# What to do about documents of one id, behind their number
EQUAL_IDS = "vectors cannot be joined to a table by it; --id_column takes one with unique values"


def _equal_lines(record: RunRecord) -> Iterator[str]:
    texts, ids = record.numbers.equal_texts, record.numbers.equal_ids
    if texts.surplus:
        about = "" if texts.exact else "about "
        equal = counted(texts.surplus, "embedded text is", "embedded texts are")
        yield f"{about}{equal} equal to another one"
    if ids is not None and ids.surplus:
        twice = counted(ids.surplus, "embedded document has", "embedded documents have")
        yield f"warning: {twice} the id of another one: {EQUAL_IDS}"


def _unfit_lines(record: RunRecord) -> Iterator[str]:
    """The values that the types of extra columns could not hold."""
    kinds = record.input.extra_columns or {}
    for name, count in record.numbers.unfit.items():
        values = counted(count, "value is", "values are")
        yield f"warning: extra column {name}: {values} not {kinds.get(name)}, and null"


def _unknown_lines(result: Result) -> Iterator[str]:
    """The share of [UNK]; and warnings where much of the text did not reach the model."""
    unknown = result.unknown
    if unknown.tokens:
        scripts = ", ".join(list(unknown.scripts)[:_MOST_NAMED])
        worst = ", ".join(
            f"{file.file} {_percent(file.share)}" for file in unknown.files[:_WORST_FILES]
        )
        yield (
            f"{counted(unknown.tokens, 'token is', 'tokens are')} [UNK], "
            f"{_percent(unknown.share)}"
            f"{f' ({scripts})' if scripts else ''}, most in {worst}"
        )
    if result.cut_share > _MUCH:
        yield (
            f"warning: {_percent(result.cut_share)} of the tokens were cut and have no part in "
            f"the vectors: {ADVICE['cut']}"
        )
    if unknown.share > _MUCH:
        yield (
            f"warning: {_percent(unknown.share)} of the tokens are words that the model does "
            f"not know: {ADVICE['unknown']}"
        )
    if unknown.continuing_share > _MUCH_SPLIT:
        yield (
            f"warning: {_percent(unknown.continuing_share)} of the tokens continue a word, as in a "
            f"language that the model was not trained on: {ADVICE['unknown']}"
        )


def _rows_text(settings: Mapping[str, Any]) -> str:
    """What happens to texts that are longer than a row."""
    rows = f"{_LONG_TEXTS[settings['long_text']]} {settings['max_seq_length']} tokens"
    chunk, most = settings.get("chunk"), settings.get("chunk_tokens")
    if chunk is None:
        return rows
    size = f" of up to {most} tokens" if most else ""
    if overlap := settings.get("chunk_overlap"):
        units = "words" if chunk == "tokens" else "sentences"
        size += f", neighbours sharing whole {units} of up to {overlap} tokens"
    late = f", pooled late: {rows}" if settings["chunk_pooling"] == "late" else ""
    return f"chunks by {chunk}{size}{late}"


def _speed(result: Result) -> str:
    documents, tokens = result.documents_per_second, result.tokens_per_second
    if documents is None or tokens is None:
        return "earlier attempts had computed everything"
    made = ((kind, result.written[kind].rows) for kind in PIECES.values() if kind in result.written)
    pieces = [f"{rows * tokens / max(result.tokens, 1):,.0f} {kind}/s, " for kind, rows in made]
    return f"{documents:,.0f} documents/s, {''.join(pieces)}{tokens:,.0f} tokens/s"


def crash_lines(run: EmbedRun) -> list[str]:
    """Names the blocks on which processes of this run died; empty if the store does not answer."""
    try:
        blocks = crashes(run.output, run.fingerprint)
    except OSError:
        return []
    suspects = [crash for crash in blocks if crash.block not in run.options.skip_blocks]
    lines = [_crash_line(crash) for crash in suspects[:_MOST_NAMED]]
    if len(suspects) > _MOST_NAMED:
        lines.append(f"note: and {counted(len(suspects) - _MOST_NAMED, 'further block')}")
    if suspects:
        numbers = ",".join(map(str, (*run.options.skip_blocks, suspects[0].block)))
        which = "it kills" if len(suspects) == 1 else "one kills"
        lines.append(f"note: if {which} every process, skip it with --skip_blocks {numbers}")
    return lines


def _crash_line(crash: Crash) -> str:
    times = "" if crash.times == 1 else f", {crash.times} times"
    unsure = "" if crash.certain else ", unless it still runs on another machine"
    place = hide_secrets(crash.place)
    return f"note: a process died on block {crash.block} ({place}){times}{unsure}"


def load_lines(record: RunRecord, started: bool) -> list[str]:
    """Which vectors are in which tables, and by which job, `started` by this command or not."""
    lines = []
    tables = record.table.tables if record.table else {}
    for kind, load in record.loads.items():
        table = tables[kind]
        vectors = f"{table}: vectors of {counted(load.documents, 'document')}"
        if load.job is None:
            lines.append(f"{table}: there was nothing to load")
        elif started and load.now:
            lines.append(f"{vectors} loaded at {load.ended} by job {load.job}")
        else:
            lines.append(
                f"{vectors} were loaded at {load.ended} by job {load.job}; not loaded again "
                "(--overwrite does, should rows have been deleted)"
            )
    return lines


def statements(record: RunRecord) -> list[str]:
    """SQL to continue with: an index over the vectors of a run's table, and a search in it."""
    lines = []
    for kind, destination in (record.table.tables if record.table else {}).items():
        path = TableName(*destination.partition("$")[0].rsplit(".", 2)).path
        statement = _STATEMENTS.get(kind, _UNIT_STATEMENT)
        settings, made = record.settings, KINDS[kind]
        text = statement.format(
            path=path,
            width=math.prod(made.shape(settings)),
            folder=made.folder,
            first=made.names(settings)[0],
            distance=_DISTANCES[settings.get("similarity", "cosine")],
        )
        lines += text.splitlines()
    return lines
