"""Resolves the earlier outputs that a run skips, without opening each of a chain of them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bert_embed.base.errors import InputError, counted
from bert_embed.bundle.fingerprints import difference
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.options.flags import looks_like_table
from bert_embed.results.chain import EarlierOutput, read_chain
from bert_embed.results.columns import METADATA_KEY
from bert_embed.results.files import EXAMPLES
from bert_embed.results.names import DELETED, kinds_of
from bert_embed.results.outputs import Output, continued_runs, later_outputs
from bert_embed.results.run_record import ListedRun, RunRecord, Written, listed_runs, read_record
from bert_embed.storage.files import absolute, holds_files, list_files
from bert_embed.transforms.bigquery.read import earlier_table_name, table_facts
from bert_embed.transforms.increments import (
    MergedKeys,
    counting_files,
    earlier_digest,
    files_of_kind,
    key_files,
    merged_keys,
    sizes_digest,
)
from bert_embed.transforms.output_folder import REJECTED, OutputFolder

_ROW_BYTES = 256  # about the least that a document's vector takes


@dataclass(frozen=True)
class Earlier:
    """The outputs that --skip_existing names, in their order, and how their keys are read."""

    outputs: tuple[EarlierOutput, ...] = ()
    is_listed: bool = False  # the newest of several continues all others, as they were then

    @property
    def is_chain(self) -> bool:
        """Whether all are folders, so that the next run can tell whether they are the same."""
        return all(output.record is not None for output in self.outputs)

    @property
    def older(self) -> OutputFolder | None:
        """The last but one of a chain, whose keys nobody needs once this run has kept its own.

        They are those of all documents, so a chain keeps two copies of them, however long.
        """
        is_next = self.is_listed and self.outputs[-2].continues == len(self.outputs) - 2
        return OutputFolder(self.outputs[-2].place) if is_next else None

    @cached_property
    def sources(self) -> tuple[EarlierOutput | MergedKeys, ...]:
        """What the keys are read from: each, or what the newest kept of all others, and it."""
        merged = merged_keys(self.outputs[-1]) if self.is_listed else None
        return self.outputs if merged is None else (merged, self.outputs[-1])


def earlier_outputs(options: Options, output: str, vectors: Mapping[str, Any]) -> Earlier:
    """The outputs that --skip_existing names, in order, each once; not the run's own `output`.

    InputError if one cannot be compared, or readers would refuse it beside the others.
    """
    output = output.rstrip("/")
    groups: list[list[str]] = []  # the tables and runs that each path names
    listed: dict[str, ListedRun] = {}
    for named in options.skip_existing:
        found = [] if looks_like_table(named) else _runs(named, output)
        listed |= {run.folder: run for run in found}
        groups.append([run.folder for run in found])
        if looks_like_table(named):
            groups[-1].append(earlier_table_name(named))
    tables = {place for group in groups for place in group} - listed.keys()
    if len(listed) > 1 and not tables and (outputs := _chain(groups, listed, vectors)):
        return Earlier(outputs, is_listed=True)
    opened_runs = ((place, _record(place, run.files is None)) for place, run in listed.items())
    records = {place: record for place, record in opened_runs if record is not None}
    opened = [Output(place, record.settings, record) for place, record in records.items()]
    lists = continued_runs(opened) if len(opened) > 1 else [()] * len(opened)
    if output not in {run.output for before in lists for run in before}:
        later_outputs(opened, lists)  # else `output` is refused, as that of another run
    runs = {place: record.run for place, record in records.items()}
    continued = {
        one.folder: {run.run for run in before if run.run is not None}
        for one, before in zip(opened, lists, strict=True)
    }
    ordered = _in_turn(
        [[place for place in group if place in runs or place in tables] for group in groups],
        continued,
        runs,
    )
    in_order = [runs.get(place) for place in ordered]
    earlier: list[EarlierOutput] = []
    for number, place in enumerate(ordered):
        if place in tables:
            earlier.append(_table(number, place, vectors))
            continue
        earlier.append(_earlier(number, place, records[place], listed[place], vectors))
        before = continued[place] & set(in_order)
        if before == set(in_order[: len(before)]):
            earlier[number] = replace(earlier[number], continues=len(before))
    return Earlier(tuple(earlier))


def _runs(named: str, output: str) -> list[ListedRun]:
    """The runs that a path names: itself, without a listing of its files, or those below it."""
    path = absolute(named).rstrip("/")
    if path == output:
        raise UsageError(f"--skip_existing {named} is the --output of this run")
    runs = listed_runs(path)
    # An empty folder, but for the run's own output, is that of the first day of a daily command;
    # none may be a slip of the pen.
    own = f"{output}/"
    if not (
        runs or (holds_files(path) and all(one.path.startswith(own) for one in list_files(path)))
    ):
        raise UsageError(
            f"--skip_existing {named} names no output of a run: no run.json in it or a folder "
            "below; on the first day of a daily command make it, an empty folder"
        )
    # What `tokenize` wrote holds no vectors to compare with.
    names = {run.folder: {name.partition("/")[0] for name in run.files or ()} for run in runs}
    return [run for run in runs if run.folder != output and EXAMPLES not in names[run.folder]]


def _chain(
    groups: Sequence[Sequence[str]], listed: Mapping[str, ListedRun], vectors: Mapping[str, Any]
) -> tuple[EarlierOutput, ...]:
    """The outputs in their order, if they are the newest and those that it continues; else none.

    Only the newest is opened: of all others its list says how their run.json and their files were
    listed when it was written.
    """
    newest = max(listed.values(), key=lambda run: run.record.modified)
    place, record = newest.folder, None
    with suppress(InputError):
        record = read_record(place)
    if record is None or record.input.skip_existing is None:
        return ()
    kept = read_chain(place, record.input.skip_existing)
    if kept is None or {output.place for output in kept} != listed.keys() - {place}:
        return ()
    for output in kept:
        run = listed[output.place]
        is_same = run.record == output.record and output.continues is not None
        if not is_same or earlier_digest(output, run.files)[0] != output.digest:
            return ()
    last = _earlier(len(kept), place, record, newest, vectors)
    outputs = (*kept, replace(last, continues=len(kept)))
    runs = {output.place: output.run or "" for output in outputs}
    in_order = [*runs.values()]
    continued = {one.place: {*in_order[: one.continues or 0]} for one in outputs}
    return outputs if _in_turn(groups, continued, runs) == [*runs] else ()


def _in_turn(
    groups: Iterable[Sequence[str]], continued: Mapping[str, set[str]], runs: Mapping[str, str]
) -> list[str]:
    """The places that were named, each once; of one named twice the last position counts.

    Folders of runs are by name, but for those that continue others, which come after them.
    """
    places: dict[str, None] = {}
    for group in groups:
        left = list(group)
        while left:
            waited = {runs[one] for one in left if one in runs}
            ready = (
                one for one in left if not (continued.get(one, set()) - {runs.get(one)}) & waited
            )
            place = next(ready, left[0])
            left.remove(place)
            places.pop(place, None)
            places[place] = None
    return [*places]


def _table(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    rows, created, described = table_facts(place)
    if described is None:
        raise UsageError(
            f"--skip_existing {place} does not describe its vectors: its description must "
            f"hold the key {METADATA_KEY}; name the output folder of the run that filled it"
        )
    _check_same(place, described, vectors)
    # This run may add rows to the table, which stays the same table.
    return EarlierOutput(number, place, None, digest=f"{place} {created}", documents=rows)


def _earlier(
    number: int, place: str, record: RunRecord, listed: ListedRun, vectors: Mapping[str, Any]
) -> EarlierOutput:
    present = counting_files(OutputFolder(place), record.is_done, listed.files)
    files, sizes = key_files(present)
    result = record.result
    written = result.written if result else {}
    deletes = record.is_done and DELETED in written
    deleted = files_of_kind(present, DELETED, ".parquet") if deletes else {}
    _check_same(place, record.settings, vectors)
    if files is None and kinds_of(record.settings) == ("token",):
        raise UsageError(
            f"--skip_existing {place} holds JSON lines of tokens, which have no text_hash; only "
            "outputs that also have other vectors, or Parquet, can be compared"
        )
    others = (name for name in written if name not in (REJECTED, DELETED))
    kind = (files and files[0]) or next(others, "")
    # Else the ids are not all there, or those that are deleted count as there.
    for folder, found in ((kind, sizes), (DELETED, deleted)) if record.is_done else ():
        wrote, size = written.get(folder, Written(0, 0, 0)), sum(found.values())
        if (len(found), size) != (wrote.files, wrote.bytes):
            raise UsageError(
                f"--skip_existing {place} holds {counted(len(found), 'file')} of "
                f"{counted(size, 'byte')} in {folder}/, its run wrote {wrote.files} of "
                f"{wrote.bytes}: `bert-embed verify --repair` writes them again"
            )
    return EarlierOutput(
        number=number,
        place=place,
        files=files or ("", ""),
        digest=sizes_digest(sizes | deleted),
        documents=sum(sizes.values()) // _ROW_BYTES if result is None else result.counts.embedded,
        complete=record.is_done,
        run=record.run,
        deletes=deletes,
        record=listed.record,
    )


def _record(folder: str, is_named: bool) -> RunRecord | None:
    """The record of a folder; None if it holds no vectors, and was not named itself."""
    record = read_record(folder)
    if record is None or (record.vectors is None and is_named):
        raise UsageError(f"--skip_existing {folder} holds examples of `tokenize`, not vectors")
    return None if record.vectors is None else record


def _check_same(place: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    differs = difference(theirs, ours)
    if differs is not None:
        how = "give the ids in the input the type that they had" * differs.startswith("id_type")
        raise UsageError(
            f"--skip_existing {place} holds other vectors than this run computes: {differs}; "
            f"{how or 'request the same'}, or leave it out"
        )
