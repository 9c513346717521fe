"""Keeps the state of a run in its output: claims the folder, keeps run.json.

run.json of        the folder is   what a command does with it
-----------------  --------------  --------------------------------------------------------
nothing            free            `claimed` creates run.json, exclusively
torn, or damaged   void            it removes that, free
... but files      stray           block records tell of which run: they are kept if it is this one,
                                   else it refuses; with --overwrite: removes them, free
another run        other           it refuses; with --overwrite: removes it, free
... of no vectors  empty           it removes it, free
this run           same            it rewrites run.json, finished blocks are kept;
                                   if nothing is left to do, it returns what is there
... skipped blocks reopened        it removes the block records of blocks that are not
                                   skipped any more, same
... failed texts   reopened        it removes the block records of parts with texts on
                                   which the model failed, same
"""

import importlib.metadata
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Literal

from bert_embed.base.errors import counted_of
from bert_embed.pipeline.console import hide_in, hide_in_flags, hide_secrets
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import FLAGS
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.summary import embedded_nothing, is_final, problem_of
from bert_embed.results.chain import earlier_of, write_chain
from bert_embed.results.files import EXAMPLES
from bert_embed.results.names import RUN_FILE, output_name, part_of
from bert_embed.results.run_record import (
    RunFiles,
    RunInput,
    RunModel,
    RunRecord,
    change_record,
    now,
)
from bert_embed.storage.files import create_exclusive, join, remove, write_bytes
from bert_embed.transforms.bigquery.load import has_load_job, is_loaded
from bert_embed.transforms.examples import ExampleSettings
from bert_embed.transforms.ledger import listing_hash, read_block_record, withheld
from bert_embed.transforms.listing import write_listing
from bert_embed.transforms.output_folder import REJECTED, SETTINGS_FILE
from bert_embed.transforms.parts import BLOCK_SKIPPED

_PACKAGES = (
    "apache-beam",
    "ai-edge-litert",
    "tensorflow",
    "tensorflow-cpu",  # may be installed in place of tensorflow
    "jax",
    "libtpu",
    "tensorflow-text",
    "numpy",
    "pyarrow",
)
_LIMITED = {"files", "bytes", "paths", "listing"}  # keys of `input` that --limit changes
_COLUMNS = {"text_column", "id_column", "text_b_column", "extra_columns"}  # by flags or records
_MOST_PATHS = 20  # of the input that are listed by name


def first_record(run: EmbedRun) -> RunRecord:
    """The record of a run that begins."""
    recorded = replace(run.options, device=run.job.device).recorded()
    options = hide_in(recorded) | {"beam_args": hide_in_flags(run.options.beam_args)}
    return RunRecord(
        status="running",
        run=run.fingerprint,
        started=now(),
        model=RunModel(
            name=hide_secrets(recorded.get("model", run.options.model)),
            fingerprint=run.work.bundle.fingerprint,
            source=hide_secrets(run.work.bundle.source),
        ),
        engine=run.engine,
        vectors=None if run.kind == EXAMPLES else run.work.metadata,
        examples=run.work.metadata if run.kind == EXAMPLES else None,
        input=_input(run),
        files=RunFiles(
            format=run.options.output_format,
            block_bytes=run.work.block_bytes,
            part_docs=run.work.part_docs,
        ),
        plan=run.goal,
        query_rows=run.source.query_rows,
        table=run.load.requested if run.load else None,
        options=options,
        versions=_versions(),
    )


def _input(run: EmbedRun) -> RunInput:
    columns, paths = run.work.columns, run.work.planned.paths
    extra = columns.extra
    return RunInput(
        patterns=tuple(hide_in(run.source.patterns)),
        format=run.options.input_format,
        listing=run.work.digest,
        files=len(paths),
        paths=tuple(hide_in(paths)) if len(paths) <= _MOST_PATHS else None,
        skipped_files=run.source.listing.skipped,
        bytes=run.source.bytes,
        text_column=columns.text,
        id_column=columns.id,
        text_b_column=columns.text_b,
        extra_columns=extra and {column.name: str(column.type) for column in extra},
        limit=run.options.limit,
        skip_existing=earlier_of(run.work.earlier) if run.work.earlier else None,
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


_Standing = Literal["free", "void", "other", "empty", "same", "reopened"]


@contextmanager
def claimed(run: EmbedRun) -> Iterator[RunRecord]:
    """Claims the output for a run, or continues an attempt of it, and locks it meanwhile.

    The record says `running`; or `done`, and nothing is locked or written, if the run is complete
    already. UsageError if the folder holds another run, or files of one without its record, or
    cannot be written to.
    """
    state = run.state
    if (record := _complete(run, state)) is not None:
        yield record
        return
    with ExitStack() as held:
        alone = run.options.overwrite
        if alone:
            held.enter_context(run.folder.held(alone=True))
        if _standing(run, state) in ("void", "empty", "reopened"):
            with nullcontext() if alone else run.folder.held(alone=True):
                _make_room(run, state.again())  # another may have made room, and begun
            state = state.again()
        if not alone:
            held.enter_context(run.folder.held())
        if state.record is not None:
            state = state.again()  # what another command wrote before this one had the lock
        while (record := _claim(run, state)) is None:
            state = state.again()  # another was first
        yield record


def _make_room(run: EmbedRun, state: OutputState) -> None:
    """Removes an empty run, or the block records of parts that are computed again.

    The vectors of such a part stay until the new ones replace them.
    """
    standing, folder = _standing(run, state), run.folder
    with state.errors():
        if standing == "empty" or (standing == "void" and _must_be_emptied(run, state)):
            folder.remove_all()
        elif standing == "void":
            remove([folder.path_of(RUN_FILE)])
        elif standing == "reopened":
            again, blocks = {*failed_parts(run, state)}, _unskipped_blocks(run, state)
            for part in state.parts:
                if part[0] in blocks:
                    record = read_block_record(folder, *part, run.fingerprint)
                    again |= {part} if record and BLOCK_SKIPPED in record.rejected else set()
            folder.remove_block_records(sorted(again))
            folder.remove_files(
                name
                for name in state.files
                if output_name(name).kind == REJECTED and part_of(name) in again
            )


def forecast(run: EmbedRun) -> list[str]:
    """What `claimed` would find in the output folder, in one line or none; it writes nothing."""
    if run.source.unchecked is not None:
        return [
            f"note: input and output were not looked at ({run.source.unchecked}), on which the "
            "number of documents, the size and the job's name depend"
        ]
    state = run.state
    standing, record = _standing(run, state), state.record
    if record is not None and _complete(run, state) is not None:
        return [f"{run.output} holds this run, complete since {record.ended}"]
    if standing == "empty" or (state.run is None and not _must_be_emptied(run, state)):
        return []
    if state.run == run.fingerprint:
        return [f"{run.output} holds an unfinished attempt of this run, which would be continued"]
    _must_be_emptied(run, state)
    return [f"{run.output} holds another run, which --overwrite would remove"]


def _standing(run: EmbedRun, state: OutputState) -> _Standing:
    """What the folder is, stray files apart."""
    if state.record is None:
        return "void" if state.is_void else "free"
    if state.record.run != run.fingerprint:
        return "empty" if embedded_nothing(state.record) else "other"
    again = _unskipped_blocks(run, state) or failed_parts(run, state)
    return "reopened" if again else "same"


def failed_parts(run: EmbedRun, state: OutputState) -> list[tuple[int, int]]:
    """Block and part of what this command computes again, as the model failed on texts of it."""
    record = state.record
    if record is None or record.run != run.fingerprint or not state.failed_parts:
        return []
    return [] if _rows_stay(run, record) else state.failed_parts


def _rows_stay(run: EmbedRun, record: RunRecord) -> bool:
    """Whether no part of a run can be computed again.

    Its rows are in a table to which rows are only added: those of the part would be there twice. Or
    the rows of its query are gone.
    """
    if run.source.expired or is_final(record):
        return True
    return run.load is not None and not run.load.replaces and has_load_job(run.load)


def again_lines(run: EmbedRun) -> list[str]:
    """What this command computes again, in a line or none."""
    if run.source.unchecked is not None or not (again := failed_parts(run, run.state)):
        return []
    parts = counted_of(len(again), len(run.state.parts), "finished part", "has", "have")
    return [f"{parts} texts on which the model failed: computed again"]


def _must_be_emptied(run: EmbedRun, state: OutputState) -> bool:
    """Whether the folder has files of another run; UsageError if --overwrite is not given."""
    if state.record is not None:
        is_other = state.record.run != run.fingerprint
        if is_other and not run.options.overwrite:
            raise UsageError(_refusal(run, state.record))
        return is_other
    if state.run == run.fingerprint:
        return False
    # Without such files, there is at most what an identical job writes at this moment.
    stray = next(iter(state.files), state.run and "block records")
    if run.options.overwrite:
        return state.is_void or stray is not None
    # A power cut came before a run of this input finished a part: its files are none.
    listing = state.listing if state.is_void and state.run is None else None
    is_ours = listing is not None and listing.digest == run.work.digest
    if stray is not None and not is_ours:
        what = "an empty or cut run.json" if state.is_void else "no run.json"
        raise UsageError(
            f"{state.name} holds {stray} but {what}; choose another folder, or --overwrite to "
            "remove the files of that run"
        )
    return stray is not None


def _claim(run: EmbedRun, state: OutputState) -> RunRecord | None:
    """The record of a run that has the folder now, or is complete; None if another was faster."""
    record = state.record
    with state.errors():
        if _must_be_emptied(run, state):
            run.folder.remove_all()
            record = None
        elif (done := _complete(run, state)) is not None:
            return done
        first = first_record(run)
        # The record comes first: what else is written would belong to whoever has the folder.
        run.folder.prepare()
        path = run.folder.path_of(RUN_FILE)
        if record is None and not create_exclusive(path, first.to_json()):
            return None
        if run.work.table is None:
            write_listing(run.folder, run.source.stored)
        if run.work.earlier:
            write_chain(run.output, run.work.earlier)
        if run.kind == EXAMPLES:
            settings = ExampleSettings(**run.work.metadata, run=run.fingerprint)
            write_bytes(join(run.output, SETTINGS_FILE), settings.to_json())
        if record is None:
            return first
        # What --overwrite loads again stays on record until that is done.
        holds = record.is_done or run.options.overwrite
        loads = record.loads if holds and record.table == first.table else {}
        begun = replace(first, job=record.job, loads=loads)
        held = change_record(run.output, lambda now: begun if now == record else None)
        return held if held is begun else None


def _refusal(run: EmbedRun, record: RunRecord) -> str:
    ours, theirs, name = first_record(run).to_dict(), record.to_dict(), run.state.name
    differ = {
        part: [key for key, value in ours[part].items() if theirs.get(part, {}).get(key) != value]
        for part in (run.kind, "input", "files", "options")
    }
    # What the first records decide, such as the column of the ids, changes with the input alone.
    decided = _COLUMNS & {*differ["input"]} - {*differ.pop("options")}
    changed = [
        f"--{key}"
        for keys in differ.values()
        for key in keys
        if key in FLAGS and key not in decided
    ]
    others = {*differ["input"]} - FLAGS.keys() | decided
    if others - _LIMITED if "limit" in differ["input"] else others:
        changed.append("the input")
    new = (
        "" if differ[run.kind] else ", with --skip_existing for this one to embed only what is new"
    )
    cure = f"choose another folder{new}, or --overwrite to replace it"
    return f"{name} holds another run ({', '.join(changed) or 'settings'} changed since); {cure}"


def _complete(run: EmbedRun, state: OutputState) -> RunRecord | None:
    """The record if nothing is left to do: by the names and sizes of files, and what was loaded."""
    record, load, options = state.record, run.load, run.options
    if record is None or not record.is_done or _standing(run, state) != "same":
        return None
    refused, changes = record.status == "refused", record.numbers.changes
    if refused and problem_of(record, options) is None:
        return None  # more may be rejected now: what is left is to load it
    if not refused and record.table != (load.requested if load else None):
        return None
    held = None if refused or changes is None else changes.withheld
    if changes and held and withheld(changes, options.max_deleted, run.reads_all) is None:
        return None  # more may be deleted now, and is not marked so
    listing = f"{listing_hash(state.files):016x}"
    if listing != record.numbers.listing or len(state.parts) < record.numbers.counts.parts:
        return None
    return record if refused or load is None or is_loaded(load, record.loads) else None


def _unskipped_blocks(run: EmbedRun, state: OutputState) -> set[int]:
    """Blocks that an earlier attempt skipped and this one does not, if they can be computed."""
    record = state.record
    if record is None:
        return set()
    blocks = {*(record.options.get("skip_blocks") or ())} - {*run.options.skip_blocks}
    return set() if blocks and _rows_stay(run, record) else blocks
