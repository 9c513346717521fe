"""Says which runs a run continues, by the list that its output keeps and the hash in its run.json.

Where that list was lost, that of the newest of them tells, if it is at hand.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

from bert_embed.base.errors import InputError
from bert_embed.base.json import from_json, to_json
from bert_embed.results.names import EARLIER_RUNS, RUN_FILE
from bert_embed.results.run_record import (
    EarlierRun,
    EarlierRuns,
    RunRecord,
    hash_with,
    read_packed,
    write_packed,
)
from bert_embed.storage.files import absolute, join, size_of
from bert_embed.storage.local import FileInfo


@dataclass(frozen=True)
class EarlierOutput:
    """An output whose documents are skipped, by its `number` among those that were named."""

    number: int
    place: str  # folder, or `project.dataset.table`
    files: tuple[str, str] | None  # kind and ending of those with its documents; None: a table
    digest: str  # of its listing, when the command line listed it
    documents: int
    complete: bool = True
    run: str | None = None
    deletes: bool = False  # whether it marks documents of earlier ones as deleted
    record: FileInfo | None = None  # its run.json as it was listed; None: a table
    # How many of the outputs before it are those that it continues; None: others than the first
    continues: int | None = None

    @property
    def named(self) -> EarlierRun:
        """What run.json says of it."""
        return EarlierRun(self.place, self.run, self.digest)


def earlier_of(outputs: Iterable[EarlierOutput]) -> EarlierRuns | None:
    """What run.json says of outputs, None of none."""
    runs = [output.named for output in outputs]
    return EarlierRuns(len(runs), reduce(hash_with, runs, ""), runs[-1]) if runs else None


@dataclass(frozen=True)
class _Kept:
    outputs: tuple[EarlierOutput, ...]


def write_chain(folder: str, outputs: tuple[EarlierOutput, ...]) -> None:
    """Keeps which outputs a run continues, in its own folder."""
    write_packed(join(folder, EARLIER_RUNS), to_json(_Kept(outputs)))


def read_chain(folder: str, listed: EarlierRuns) -> tuple[EarlierOutput, ...] | None:
    """What `write_chain` kept; None if it was lost, is damaged or is not what run.json says."""
    path = join(folder, EARLIER_RUNS)
    values = read_packed(path) or {}
    with suppress(InputError):
        outputs = from_json(_Kept, values, path).outputs
        return outputs if earlier_of(outputs) == listed else None
    return None


def earlier_runs(folder: str, record: RunRecord) -> tuple[EarlierRun, ...]:
    """The runs that a run continues, in their order; InputError if its list is lost."""
    return earlier_runs_of([(folder, record)])[0]


def earlier_runs_of(runs: Sequence[tuple[str, RunRecord]]) -> list[tuple[EarlierRun, ...]]:
    """The same of several runs, by folders and records.

    A list is that of the run's newest and this, where that is one of them, else its folder has it:
    to read those of a chain one by one would take the square of its length.
    """
    hashes: dict[str | None, str] = {record.run: _hash_of(record) for _, record in runs}
    lists: dict[str | None, tuple[EarlierRun, ...]] = {"": ()}  # by their hashes
    increments = [
        (record.input.skip_existing, folder)
        for folder, record in runs
        if record.input.skip_existing is not None
    ]
    for listed, folder in sorted(increments, key=lambda increment: increment[0].runs):
        before = hashes.get(listed.newest.run)
        if listed.hash in lists:
            continue
        if before in lists and hash_with(before or "", listed.newest) == listed.hash:
            lists[listed.hash] = (*lists[before], listed.newest)
        elif kept := read_chain(folder, listed):
            lists[listed.hash] = tuple(output.named for output in kept)
        else:
            raise InputError(
                f"{join(folder, EARLIER_RUNS)} is missing or damaged: put it back, or embed "
                f"{folder} again with overwrite"
            )
    return [lists[_hash_of(record)] for _, record in runs]


def _hash_of(record: RunRecord) -> str:
    return record.input.skip_existing.hash if record.input.skip_existing else ""


def earlier_places(folder: str, record: RunRecord) -> list[str]:
    """Where these are now: what lay beside a folder that was moved moved along with it."""
    before = absolute(record.options.get("output", folder)).rpartition("/")[0]
    places = [run.output for run in earlier_runs(folder, record)]
    for number, place in enumerate(places):
        name = place.removeprefix(f"{before}/")
        if name != place and size_of(join(place, RUN_FILE)) is None:
            places[number] = join(folder.rpartition("/")[0], name)
    return places
