"""Says which runs a run continues, by the list that its output keeps and the hash in its run.json.

Where that list was lost, run.json names the newest of them, which names its own newest: so the list
is put together again, and compared with the hash.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from bert_embed.base.errors import InputError
from bert_embed.base.json import from_json, to_json
from bert_embed.results.names import EARLIER_RUNS, RUN_FILE
from bert_embed.results.run_record import (
    EarlierRun,
    EarlierRuns,
    RunRecord,
    hash_with,
    read_packed,
    read_record,
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
    columns: tuple[str, ...] | None = None  # text and extra ones; None: a table
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
    return EarlierRuns.of(runs) if runs else None


@dataclass(frozen=True)
class _Kept:
    outputs: tuple[EarlierOutput, ...]


def write_chain(folder: str, outputs: tuple[EarlierOutput, ...]) -> None:
    """Keeps which outputs a run continues, in its own folder."""
    write_packed(join(folder, EARLIER_RUNS), to_json(_Kept(outputs)))


def read_chain(folder: str, record: RunRecord) -> tuple[EarlierOutput, ...] | None:
    """What `write_chain` kept; None if it was lost, is damaged or is not that of the run."""
    listed, path = record.input.skip_existing, join(folder, EARLIER_RUNS)
    values = None if listed is None else read_packed(path)
    if listed is None or values is None:
        return None
    with suppress(InputError):
        outputs = from_json(_Kept, values, path).outputs
        kept = earlier_of(outputs)
        return outputs if kept is not None and kept.hash == listed.hash else None
    return None


class EarlierLists:
    """The lists of several runs: each is that of its newest and this, or read from its folder."""

    def __init__(self) -> None:
        self._runs: dict[str | None, tuple[str, RunRecord]] = {}  # folders and records
        self._lists: dict[str, tuple[EarlierRun, ...]] = {}  # by their hashes

    def add(self, folder: str, record: RunRecord) -> None:
        """Takes a run that was read, with whose list those of others may begin."""
        self._runs[record.run] = folder, record

    def of(self, folder: str, record: RunRecord) -> tuple[EarlierRun, ...]:
        """The runs that a run continues, in their order; InputError if nothing tells them."""
        if record.input.skip_existing is None:
            return ()
        waiting, begun = [(folder, record)], set()
        while waiting:
            place, run = waiting[-1]
            listed = run.input.skip_existing
            if listed is None or listed.hash in self._lists:
                waiting.pop()
                continue
            newest = self._runs.get(listed.newest.run)
            if newest is not None and listed.hash not in begun:
                begun.add(listed.hash)
                waiting.append(newest)
                continue
            runs = self._extended(listed)
            runs = runs or tuple(output.named for output in read_chain(place, run) or ())
            if not runs and newest is None:
                found = read_record(listed.newest.output) if listed.newest.run else None
                if found is not None and found.run == listed.newest.run:
                    self.add(listed.newest.output, found)
                    continue
            if not runs:
                raise InputError(
                    f"{join(place, EARLIER_RUNS)} is missing or damaged, and so is the list of "
                    f"{listed.newest.output}: put it back, or embed {place} again with overwrite"
                )
            self._lists[listed.hash] = runs
        return self._lists[record.input.skip_existing.hash]

    def places(self, folder: str, record: RunRecord) -> list[str]:
        """Where these are now: what lay beside a folder that was moved moved along with it."""
        before = absolute(record.options.get("output", folder)).rpartition("/")[0]
        places = [run.output for run in self.of(folder, record)]
        for number, place in enumerate(places):
            name = place.removeprefix(f"{before}/")
            if name != place and size_of(join(place, RUN_FILE)) is None:
                places[number] = join(folder.rpartition("/")[0], name)
        return places

    def _extended(self, listed: EarlierRuns) -> tuple[EarlierRun, ...]:
        """The list of the newest run, and this; empty if that is not what was listed."""
        if listed.newest.run not in self._runs:
            return ()
        before = self._runs[listed.newest.run][1].input.skip_existing
        runs = () if before is None else self._lists.get(before.hash, ())
        extended = hash_with("" if before is None else before.hash, listed.newest)
        return (*runs, listed.newest) if extended == listed.hash else ()
