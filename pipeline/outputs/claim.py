"""Claims the output folder of a run, by what the folder holds.

run.json of        the folder is   what a command does with it
-----------------  --------------  --------------------------------------------------------
nothing            free            `start` creates run.json, exclusively: that is the claim
nothing, but files stray           `start` refuses; with --overwrite: removes them, free
another run        other           `start` refuses; with --overwrite: removes it, free
... of no vectors  empty           `make_room` removes it, free
this run           same            `start` rewrites run.json, finished blocks are kept;
                                   if nothing is left to do, it returns what is there
... skipped blocks unskipped       `make_room` removes the records of blocks that are not
                                   skipped any more, same
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Literal

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import EXAMPLES, FLAGS
from bert_embed.pipeline.outputs.outcome import embedded_nothing, problem_of
from bert_embed.pipeline.outputs.run_record import first_record, record_of_output
from bert_embed.pipeline.run import EmbedRun
from bert_embed.run_record import RunRecord
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import (
    create_exclusive,
    join,
    write_bytes,
)
from bert_embed.transforms.bigquery.load import is_loaded
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.listing import write_listing
from bert_embed.transforms.output_folder import SETTINGS_FILE
from bert_embed.transforms.parts import BLOCK_SKIPPED
from bert_embed.transforms.reconcile import listing_hash

_State = Literal["free", "other", "empty", "same", "unskipped"]


def complete(run: EmbedRun) -> RunRecord | None:
    """The record of this run if nothing is left to do; None if something is. Writes nothing."""
    with _output_errors(run):
        state, record = _state(run)
        if record is not None and state == "same" and _is_complete(run, record):
            return record
        return None


def start(run: EmbedRun) -> RunRecord:
    """Claims the output folder for a run, or continues an earlier attempt of the same one.

    The record's status is `done` if the run is complete already, else `running`. UsageError if the
    folder holds another run, or files of one without its record, or cannot be written to.
    """
    with _output_errors(run):
        while (record := _claimed(run)) is None:
            continue  # another job was first: look what it wrote
        return record


def make_room(run: EmbedRun, alone: bool) -> None:
    """Removes what this command replaces: an empty run, or the records of blocks it skips no more.

    `alone` says whether this command has the output to itself already.
    """
    with _output_errors(run):
        if _state(run)[0] not in ("empty", "unskipped"):
            return
    with nullcontext() if alone else run.folder.held(alone=True), _output_errors(run):
        state, record = _state(run)  # another may have made room, and begun
        if record is not None and state == "unskipped":
            _reset_skipped_blocks(run, record)
        elif record is not None and state == "empty":
            run.folder.remove_all()


def forecast(run: EmbedRun) -> list[str]:
    """What `start` would find in the output folder, in one line or none; it writes nothing."""
    if run.unchecked is not None:
        why = run.unchecked
        return [f"note: input and output were not looked at, so the run has another name: {why}"]
    state, record = _state(run)
    if state == "empty" or (state == "free" and not _must_be_emptied(run, state, record)):
        return []
    if record is not None and state in ("same", "unskipped"):
        if state == "same" and _is_complete(run, record):
            return [f"{run.output} holds this run, complete since {record.ended}"]
        return [f"{run.output} holds an unfinished attempt of this run, which would be continued"]
    _must_be_emptied(run, state, record)
    return [f"{run.output} holds another run, which --overwrite would remove"]


@contextmanager
def _output_errors(run: EmbedRun) -> Iterator[None]:
    """Raises UsageError for an output that cannot be read or written."""
    try:
        yield
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--output {run.options.output} cannot be used: {error}") from error


def _state(run: EmbedRun) -> tuple[_State, RunRecord | None]:
    """What the folder is, stray files apart, and the record in it."""
    record = record_of_output(run.options, run.output)
    if record is None:
        return "free", None
    if record.run != run.fingerprint:
        return ("empty" if embedded_nothing(record) else "other"), record
    return ("unskipped" if _unskipped_blocks(run, record) else "same"), record


def _must_be_emptied(run: EmbedRun, state: _State, record: RunRecord | None) -> bool:
    """Whether the folder has files of another run; UsageError if --overwrite is not given."""
    if record is not None:
        if state in ("other", "empty") and not run.options.overwrite:
            raise UsageError(_refusal(run, record))
        return state in ("other", "empty")
    # Without such files, there is at most what an identical job writes at this moment.
    stray = next(iter(run.folder.data_files()), None)
    if stray is not None and not run.options.overwrite:
        raise UsageError(
            f"--output {run.options.output} holds {stray} but no run.json; choose another folder, "
            "or --overwrite to remove the files of that run"
        )
    return stray is not None


def _claimed(run: EmbedRun) -> RunRecord | None:
    """The record of a run that has the folder now, or is complete; None if another was faster."""
    state, record = _state(run)
    if _must_be_emptied(run, state, record):
        run.folder.remove_all()
        record = None
    if record is not None and state == "same" and _is_complete(run, record):
        return record
    first = first_record(run)
    # The record comes first: what else is written would belong to whoever has the folder.
    run.folder.prepare()
    if record is None and not create_exclusive(run.folder.record, first.to_json()):
        return None
    if run.table is None:
        write_listing(run.folder, run.listing)
    if run.kind == EXAMPLES:
        write_bytes(join(run.output, SETTINGS_FILE), run.written_examples.to_json())
    if record is None:
        return first
    # What --overwrite loads again stays on record until that is done.
    holds = record.is_done or run.options.overwrite
    loads = record.loads if holds and record.table == first.table else {}
    first = replace(first, job=record.job, loads=loads)
    write_bytes(run.folder.record, first.to_json())
    return first


def _refusal(run: EmbedRun, record: RunRecord) -> str:
    ours, theirs = first_record(run).to_dict(), record.to_dict()
    differ = {
        part: [
            name for name, value in ours[part].items() if theirs.get(part, {}).get(name) != value
        ]
        for part in (run.kind, "input", "files")
    }
    changed = [f"--{name}" for names in differ.values() for name in names if name in FLAGS]
    if not all(name in FLAGS for name in differ["input"]):
        changed.append("the input")
    new = ", with --skip_existing for this one to embed only what is new"
    new = "" if differ[run.kind] else new
    return (
        f"--output {run.options.output} holds another run ({', '.join(changed) or 'settings'} "
        f"changed since); choose another folder{new}, or --overwrite to replace it"
    )


def _is_complete(run: EmbedRun, record: RunRecord) -> bool:
    """Whether nothing is left to do: by the names and sizes of files, and what was loaded."""
    if not record.is_done:
        return False
    refused = record.status == "refused"
    if refused and problem_of(record, run.options) is None:
        return False  # more may be rejected now: what is left is to load it
    if not refused and record.table != (run.load.requested if run.load else None):
        return False
    listing = f"{listing_hash(run.folder.data_files()):016x}"
    parts = len(run.folder.recorded_parts())
    if listing != record.numbers.listing or parts < record.numbers.counts.parts:
        return False
    try:
        return refused or run.load is None or is_loaded(run.load, record.loads)
    except ValueError as error:  # the table cannot be read
        raise UsageError(str(error)) from error


def _unskipped_blocks(run: EmbedRun, record: RunRecord) -> set[int]:
    """Blocks that an earlier attempt skipped and this one does not."""
    return {*(record.options.get("skip_blocks") or ())} - {*run.options.skip_blocks}


def _reset_skipped_blocks(run: EmbedRun, record: RunRecord) -> None:
    """Removes the block records of such blocks."""
    again = _unskipped_blocks(run, record)
    for block, part in run.folder.recorded_parts():
        if block in again:
            block_record = read_block_record(run.folder, block, part, run.fingerprint)
            if block_record is not None and BLOCK_SKIPPED in block_record.rejected:
                run.folder.remove_block_records([(block, part)])
                run.folder.remove_files(block_record.files)
