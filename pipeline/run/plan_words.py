"""What a run says before it starts, its plan; and of processes that died on its blocks."""

from collections.abc import Iterator

from bert_embed.base.errors import counted, shown_bytes
from bert_embed.bundle.bundle import trained_prompts, unused_prompt
from bert_embed.models.heads.kinds import KINDS
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.options.embed import DEFAULTS
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.summary import MOST_NAMED, rows_text, skipped_text, suffix_counts
from bert_embed.transforms.activity import Crash, crashes
from bert_embed.transforms.increments import EarlierOutput

_SUFFIXES = (".csv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".tfrecord", ".txt")
# Suffixes of texts of which a good part are no words.
_MARKUP = {"htm", "html", "ipynb", "rtf", "xhtml", "xml"}


def plan_lines(run: EmbedRun) -> list[str]:
    """What a run will read, compute and write."""
    source, work = run.source, run.work
    listed = (
        f"{counted(len(work.planned.paths), 'file')}, {shown_bytes(source.bytes)}, about "
        f"{counted(source.documents, 'document')}, in {counted(work.planned.blocks, 'block')}"
    )
    rows = rows_text(work.text_spec.to_dict())
    rows += f", prompt {work.text_spec.prompt!r}" if work.text_spec.prompt else ""
    folder = " (a folder)" if run.output.endswith(_SUFFIXES) else ""
    written = f"to {run.output}{folder}, about {shown_bytes(run.forecast.bytes)}"
    notes = [] if run.forecast.disk_note is None else [run.forecast.disk_note]
    notes += _prompt_notes(run)
    if run.options.max_deleted != DEFAULTS["max_deleted"] and not run.options.skip_existing:
        notes.append("note: --max_deleted has no effect without --skip_existing")
    if source.unchecked is not None:
        listed = f"from {', '.join(source.patterns) or 'the --query'}"
        written = f"to {run.output}"
    if run.kind == "examples":
        tokenizer = work.bundle.tokenizer_fingerprint
        model = f"tokenizer of {run.options.model} ({tokenizer}): {rows}"
        return [listed, *_file_notes(run), model, written, *notes]
    spec, unit = work.vector_spec, work.text_spec.pieces or "document"
    earlier = map(_earlier_line, work.earlier)
    vectors = [KINDS[kind].words(work.metadata, unit) for kind in work.text_spec.kinds]
    layers = f"layers {','.join(map(str, spec.layers))} {spec.layer_combine}"
    parts = [layers] * ("dense" in work.text_spec.vectors) + vectors
    name = f"{run.options.model} ({work.bundle.fingerprint[:12]})"
    model = f"model {name}: {', '.join(parts)}, {rows}"
    return [listed, *_file_notes(run), model + _types_text(run), written, *notes, *earlier]


def _types_text(run: EmbedRun) -> str:
    """The number types that are not float32."""
    types = (("computed in", run.options.precision), ("stored as", run.options.output_dtype))
    return "".join(f", {what} {kind}" for what, kind in types if kind != "float32")


def _file_notes(run: EmbedRun) -> Iterator[str]:
    """The suffixes of the files, those that are skipped, what a document is, and its columns."""
    source, work = run.source, run.work
    notes = []
    if len(work.planned.paths) > 1:
        notes.append(suffix_counts(source.listing.suffixes))
    if source.listing.skipped:
        notes.append(skipped_text(source.listing.skipped))
    if run.options.document == "file":
        notes.append("each text file is one document")
    elif source.text_files:
        split = ", which --chunk splits" if run.options.chunk else ""
        notes.append(f"each line of plain text is one document{split} (--document file: each file)")
    if notes:
        yield "; ".join(notes)
    markup = [suffix for suffix in source.listing.suffixes if _MARKUP & {*suffix.split(".")}]
    if source.text_files and markup:
        yield (
            f"note: {', '.join(markup)} files are read as they are, tags and all: convert them to "
            "plain text or Markdown first"
        )
    if source.arrived:
        files = counted(source.arrived, "file", "files")
        yield (
            f"note: {files} arrived since this run began, which goes on without; embed them "
            "afterwards into another output, with --skip_existing for this one"
        )
    if run.options.text_column or run.options.text_b_column:
        pair = f", paired with {work.columns.text_b}" if work.columns.has_pairs else ""
        yield f"text: {' + '.join(work.columns.texts)}{pair}"
    if work.columns.extra:
        columns = ", ".join(f"{column.name} {column.type}" for column in work.columns.extra)
        yield f"extra columns: {columns}"


def _earlier_line(earlier: EarlierOutput) -> str:
    unfinished = "" if earlier.complete else " (an unfinished run: its finished blocks count)"
    return f"without what {earlier.place} has with the same text{unfinished}"


def _prompt_notes(run: EmbedRun) -> list[str]:
    """Names the prompt that documents do not get, though the model seems to want it."""
    if run.options.prompt is not None:
        return []
    if (name := unused_prompt(run.work.bundle)) is not None:
        return [
            f"note: {run.options.model} names a prompt {name}, but none document, so documents get "
            f"none, as in sentence-transformers; --prompt name:{name} puts it there"
        ]
    trained = trained_prompts(run.work.bundle)
    if trained is None or trained.document == run.work.text_spec.prompt:
        return []
    return [
        f"note: {run.options.model} was trained with {trained.document!r} before each document and "
        f"{trained.query!r} before each query, which its files do not say: --prompt "
        f"{trained.document!r} puts it there, and search then does the other by itself"
    ]


def crash_lines(run: EmbedRun) -> list[str]:
    """Names the blocks on which processes of this run died; empty if the store does not answer."""
    try:
        blocks = crashes(run.output, run.fingerprint)
    except OSError:
        return []
    suspects = [crash for crash in blocks if crash.block not in run.options.skip_blocks]
    lines = [_crash_line(crash) for crash in suspects[:MOST_NAMED]]
    if len(suspects) > MOST_NAMED:
        lines.append(f"note: and {counted(len(suspects) - MOST_NAMED, 'further block')}")
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
