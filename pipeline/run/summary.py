"""What a command says of what came out of a run."""

from collections.abc import Iterator, Mapping
from typing import Any

from bert_embed.backends.runner import failed_in_model
from bert_embed.base.errors import counted, counted_of, step_message
from bert_embed.models.heads.head import PIECES
from bert_embed.models.static import NO_LIMIT
from bert_embed.pipeline.options.embed import Options
from bert_embed.results.names import DELETED
from bert_embed.results.run_record import ChangeCounts, Result, RunRecord
from bert_embed.settings import DOCUMENT_CONTEXT
from bert_embed.transforms.ledger import is_nothing, problem
from bert_embed.transforms.listing import HIDDEN, LINKS, OF_RUNS
from bert_embed.transforms.parts import BLOCK_SKIPPED
from bert_embed.transforms.read.columns import ID


def embedded_nothing(record: RunRecord) -> bool:
    """Whether a finished run holds nothing: it embedded none of what it read, and deletes none."""
    if not record.is_done or DELETED in record.numbers.written:
        return False
    return is_nothing(record.numbers.counts)


def problem_of(record: RunRecord, options: Options) -> str | None:
    """Why a complete run is refused by the options of now; None if it is not."""
    numbers, truncates = record.numbers, options.write_disposition == "truncate"
    why = problem(numbers.counts, numbers.rejected, options.max_rejected, truncates)
    return why and step_message(why)


def is_final(record: RunRecord) -> bool:
    """Whether rows of a run are in a table to which rows are only added, never replaced."""
    table, loads = record.table, record.loads.values()
    return (
        table is not None
        and table.write_disposition != "truncate"
        and any(load.job for load in loads)
    )


def failure_lines(output: str, record: RunRecord) -> Iterator[str]:
    """What to do about texts on which the model failed, and what a table lacks, if anything."""
    rejected, final = record.numbers.rejected, is_final(record)
    lacking = f"--skip_existing {output} and another --output"
    if failed := failed_in_model(rejected):
        texts = f"the model failed on {counted(failed, 'text')}"
        if final:
            yield (
                f"{texts}, and the table has the rows of all others: the same command with "
                f"{lacking} tries them again and adds them"
            )
        else:
            yield f"{texts}: the same command tries again"
    if final and (skipped := rejected.get(BLOCK_SKIPPED)):
        yield (
            f"the table lacks {counted(skipped, 'document')} of skipped blocks: the same command "
            f"without --skip_blocks, with {lacking} adds them"
        )


MOST_NAMED = 5
# English prose, notes and program code have 7 to 10%, German, French, Polish and Russian 33 to 75%
# with the vocabulary of an English model.
_MUCH_SPLIT = 0.3
_MUCH = 0.05  # share of tokens that were lost, above which the summary warns
_MUCH_FOREIGN = 0.1  # share of texts: names and code are in many pieces, too
_LONG_TEXTS = {
    "truncate": "texts cut at",
    "window": "texts in windows of",
    "windows": "texts in windows of",
    "reject": "texts rejected over",
}


def skipped_text(files: Mapping[str, int]) -> str:
    kinds = {HIDDEN: "hidden", OF_RUNS: "of a run's output", LINKS: "a link to another"}
    why = [text for name, text in kinds.items() if name in files]
    others = {name.startswith(".") for name in files.keys() - kinds.keys()}
    why += ["not text"] * (True in others) + ["beside the data"] * (False in others)
    shown = " or ".join(why)
    skipped = counted(sum(files.values()), f"file is {shown} and is", f"files are {shown} and are")
    return f"{skipped} skipped ({suffix_counts(files)})"


def suffix_counts(counts: Mapping[str, int]) -> str:
    """The most frequent suffixes and how many files have them."""
    shown = [f"{suffix or 'no suffix'} {count:,}" for suffix, count in counts.items()]
    return ", ".join(shown[:MOST_NAMED]) + ", …" * (len(shown) > MOST_NAMED)


def summary_lines(output: str, record: RunRecord, page: str | None = None) -> Iterator[str]:
    """What came out of a complete run, by its record; `page` is the path of its report."""
    result, changes = record.numbers, record.numbers.changes
    counts, skipped_files = result.counts, record.input.skipped_files
    skipped = f"{counts.skipped:,} skipped, " if counts.skipped else ""
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in result.rejected.items())
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in result.stage_seconds.items())
    done = "embedded" if record.kind == "vectors" else "tokenized"
    again = counts.parts_reused > 0
    rows = ", ".join(f"{kind}/ {files.rows:,}" for kind, files in result.written.items())
    yield (
        f"{counted(counts.records, 'record')}: {counts.embedded:,} {done}, {skipped}"
        f"{counts.rejected:,} rejected{f' ({rejected})' if rejected else ''}"
    )
    if changes is not None:
        yield from _change_lines(changes)
    if counts.records == 0:
        yield "warning: the input holds no records"
    if skipped_files:
        yield skipped_text(skipped_files)
    if again:
        reused = counts.parts_reused, counts.parts
        yield f"{counted_of(*reused, 'part', 'was', 'were')} there before"
    padding = f"padding {100 * result.padding_share:.1f}%"
    yield f"{counted(result.tokens, 'token')}, {padding}, {_cut_text(record)}"
    yield from _unknown_lines(record)
    yield from _unfit_lines(record)
    if result.cut_contexts:
        documents = counted(result.cut_contexts, "document")
        yield f"contexts of {documents} were cut, at half of what the model reads at a time"
    if result.zero_vectors:
        zeros = counted(result.zero_vectors, "vector is", "vectors are")
        yield f"{zeros} all zeros: their cosine with any other is 0 here, NaN in most databases"
    yield (
        f"{result.elapsed_seconds:.1f} s{' this time' if again else ''}: {_speed(result)} "
        f"(seconds per stage{', of all attempts' if again else ''}: {stages})"
    )
    yield (
        f"{record.kind} in {output}{f' (rows: {rows})' if rows else ''}, everything about the "
        f"run in {output}/run.json{f', the report in {page}' if page else ''}"
    )


def _change_lines(changes: ChangeCounts) -> Iterator[str]:
    listed = " (kept)" if changes.withheld else f" ({DELETED}/ lists them)" if changes.gone else ""
    yield (
        f"{changes.new:,} new, {changes.changed:,} changed, {changes.gone:,} gone of "
        f"{counted(changes.earlier, 'document')} of earlier outputs{listed}"
    )
    if changes.withheld is not None and not changes.withheld.endswith((" 0", " 0%")):
        advice = ""
        if changes.withheld.startswith("--max_deleted"):
            same = f"the same command with --max_deleted {changes.gone} says so"
            advice = f"; if they are gone, {same}"
        lacks = "that the input lacks"
        kept = counted(changes.gone, f"document {lacks} is", f"documents {lacks} are")
        yield f"warning: {kept} kept, as {changes.withheld}{advice}"


def _cut_text(record: RunRecord) -> str:
    settings, result = record.settings, record.numbers
    is_cut = settings["long_text"] == "truncate" and settings.get("chunk") is None
    if not is_cut or settings["max_seq_length"] == NO_LIMIT:
        return rows_text(settings)
    cut = result.counts.truncated
    lost = f" ({_percent(result.cut_share)} of all tokens)" if cut else ""
    return f"{counted(cut, 'text')} cut at {settings['max_seq_length']} tokens{lost}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _unfit_lines(record: RunRecord) -> Iterator[str]:
    kinds = record.input.extra_columns or {}
    for name, count in record.numbers.unfit.items():
        kind, values = kinds.get(name, ""), counted(count, "value is", "values are")
        if name == ID:  # no extra column's name
            late = counted(count, "document has", "documents have")
            yield (
                f"warning: {late} an {ID}, which the first records lack, so that places name all; "
                f"with --id_column {ID} the others are rejected"
            )
        elif record.table is not None and kind.startswith("list"):
            nulls = "null elements, which no ARRAY of BigQuery holds"
            yield f"warning: extra column {name}: {values} left out: {nulls}, or not {kind}"
        else:
            yield f"warning: extra column {name}: {values} not {kind or None}, and null"


def advice(record: RunRecord) -> dict[str, str]:
    """Which flags help where much of a text was cut, or is unknown to the model."""
    chunks = " or --chunk tokens" if record.kind == "vectors" else ""
    cut = f"--long_text window{chunks} reads whole texts, a larger --max_seq_length more"
    if record.input.text_b_column is not None:  # pairs have neither windows nor chunks
        cut = "a larger --max_seq_length reads more"
    return {"cut": cut, "unknown": "choose a --model for these languages"}


def _unknown_lines(record: RunRecord) -> Iterator[str]:
    """The share of [UNK]; and warnings where much of the text did not reach the model."""
    result, ways = record.numbers, advice(record)
    unknown = result.unknown
    if unknown.tokens:
        shown = counted(unknown.tokens, "token is", "tokens are")
        yield f"{shown} [UNK], {_percent(unknown.share)}"
    foreign = result.foreign_texts > _MUCH_FOREIGN * result.counts.embedded
    if foreign:
        texts = foreign_text(result.foreign_texts, result.counts.embedded)
        yield f"warning: {texts}: {ways['unknown']}"
    split = "continue a word, as in a language that the model was not trained on"
    for share, most, what, way in (
        (result.cut_share, _MUCH, "were cut and have no part in the vectors", "cut"),
        (unknown.share, _MUCH, "are words that the model does not know", "unknown"),
        (0 if foreign else unknown.continuing_share, _MUCH_SPLIT, split, "unknown"),
    ):
        if share > most:
            yield f"warning: {_percent(share)} of the tokens {what}: {ways[way]}"


def foreign_text(texts: int, documents: int) -> str:
    """What is said of texts in languages that the model seems not to know."""
    return (
        f"{counted(texts, 'text')} ({_percent(texts / max(documents, 1))}) may be of languages "
        "that the model does not know, by letters, or words in many pieces"
    )


def rows_text(settings: Mapping[str, Any]) -> str:
    """What happens to texts that are longer than a row."""
    length, chunk, most = (
        settings.get(name) for name in ("max_seq_length", "chunk", "chunk_tokens")
    )
    if chunk is None:
        rows = f"{_LONG_TEXTS[settings['long_text']]} {length} tokens"
        return "texts of any length" if length == NO_LIMIT else rows
    size = f" of up to {most} tokens" if most else ""
    if overlap := settings.get("overlap"):
        units = "words" if chunk == "tokens" else "sentences"
        size += f", neighbours sharing whole {units} of up to {overlap} tokens"
    before = settings.get("chunk_context", ())
    late = f", pooled late, from texts in windows of {length} tokens"
    late = late if DOCUMENT_CONTEXT in before else ""
    names = ", ".join(name for name in before if name != DOCUMENT_CONTEXT)
    return f"chunks by {chunk}{size}{f', each after its {names}' if names else ''}{late}"


def _speed(result: Result) -> str:
    documents, tokens = result.documents_per_second, result.tokens_per_second
    if documents is None or tokens is None:
        if not result.elapsed_seconds:
            return "the clock was set back meanwhile"
        return "earlier attempts had computed everything"
    made = ((kind, result.written[kind].rows) for kind in PIECES.values() if kind in result.written)
    pieces = [f"{rows * tokens / max(result.tokens, 1):,.0f} {kind}/s, " for kind, rows in made]
    return f"{documents:,.0f} documents/s, {''.join(pieces)}{tokens:,.0f} tokens/s"


def load_lines(record: RunRecord, started: bool) -> Iterator[str]:
    """Which vectors are in which tables, and by which job, `started` by this command or not."""
    tables = record.table.tables if record.table else {}
    for kind, load in record.loads.items():
        table = tables[kind]
        vectors = f"{table}: vectors of {counted(load.documents, 'document')}"
        if load.job is None:
            yield f"{table}: there was nothing to load"
        elif started and load.now:
            yield f"{vectors} loaded at {load.ended} by job {load.job}"
            if record.table and record.table.write_disposition == "truncate" and not load.modified:
                yield (
                    f"note: others changed {table} since this load, which may have replaced its "
                    "rows; the same command loads them again"
                )
        else:
            yield (
                f"{vectors} were loaded at {load.ended} by job {load.job}; not loaded again "
                "(--overwrite does, should rows have been deleted)"
            )


def outcome_lines(
    output: str, record: RunRecord, started: bool, page: str | None, is_gone: bool
) -> Iterator[str]:
    """What came out of a complete job, `started` by this command or found complete.

    `page` is the path of its report; `is_gone` says whether its input can be read no more.
    """
    if not started:
        yield f"nothing to do: {output} holds this run, complete since {record.ended}"
    yield from summary_lines(output, record, page)
    if not is_gone:
        yield from failure_lines(output, record)
    if record.table and record.status == "done":
        yield from load_lines(record, started)
