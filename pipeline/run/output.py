"""Opens the outputs of runs: what a command found in one, read once; what may lie beside it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from bert_embed.backends.runner import failed_in_model
from bert_embed.base.errors import InputError, error_text, is_passing
from bert_embed.base.json import is_torn
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.bundle import Bundle
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import UsageError
from bert_embed.results.names import RUN_FILE, output_name, part_of
from bert_embed.results.outputs import output_folders, read_run
from bert_embed.results.run_record import RunRecord, is_of_run, parse_record
from bert_embed.storage.files import absolute, check_writable, is_remote, read_bytes
from bert_embed.storage.local import exists
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.listing import StoredListing, read_listing
from bert_embed.transforms.output_folder import REJECTED, OutputFolder


class OutputState:
    """An output as a command found it: each thing is read once, when somebody asks for it.

    Another command may write there until this one holds the output's lock, and takes `again`.
    """

    def __init__(self, path: str, name: str, overwrite: bool = False) -> None:
        """`name` is how the command line names it, which may tell to `overwrite` what is there."""
        self.folder, self.name, self._overwrite = OutputFolder(path), name, overwrite

    @cached_property
    def record(self) -> RunRecord | None:
        """Its run.json; None if there is none, or one that `is_void`; UsageError for another."""
        return self._read[0]

    @cached_property
    def is_void(self) -> bool:
        """Whether a power cut left nothing of run.json, or it is damaged and to be overwritten."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[RunRecord | None, bool]:
        with self.errors():
            path = self.folder.path_of(RUN_FILE)
            data = read_bytes(path)
            if data is None or is_torn(data):
                return None, data is not None
            try:
                return parse_record(data, path), False
            except InputError as error:
                # Another program may have a run.json, too.
                if self._overwrite and (is_of_run(data) or self.folder.recorded_parts()):
                    return None, True
                raise InputError(f"{error}; choose another folder") from error

    @cached_property
    def run(self) -> str | None:
        """The fingerprint of its run, without run.json that of its block records; None: no run."""
        if self.record is not None:
            return self.record.run
        if not self.is_void and not self.files:
            return None
        with self.errors():
            return self.folder.recorded_run()

    @cached_property
    def listing(self) -> StoredListing | None:
        """The listing of the run's input, as the command kept it that began the run."""
        with self.errors():
            return read_listing(self.folder)

    @cached_property
    def files(self) -> dict[str, int]:
        """The files of results by name, and their bytes."""
        with self.errors():
            return self.folder.data_files()

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Block and part of every block record but those of which a power cut left nothing."""
        with self.errors():
            return self.folder.recorded_parts(empty=False)

    @cached_property
    def failed_parts(self) -> list[tuple[int, int]]:
        """Block and part of the block records of records on which the model failed."""
        run = self.record
        if run is None or (run.is_done and not failed_in_model(run.numbers.rejected)):
            return []
        rejecting = {part_of(name) for name in self.files if output_name(name).kind == REJECTED}
        parts = [part for part in self.parts if part in rejecting]
        with self.errors():
            read = in_parallel(lambda part: read_block_record(self.folder, *part, run.run), parts)
            pairs = zip(parts, read, strict=True)
            return [part for part, one in pairs if one and failed_in_model(one.rejected)]

    def again(self) -> "OutputState":
        """The same output at this moment."""
        return OutputState(self.folder.path, self.name, self._overwrite)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises UsageError where the output cannot be read or written."""
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError) or is_passing(error):
                raise
            raise UsageError(f"{self.name} cannot be used: {error_text(error)}") from error


def record_of_run(named: str, complete: bool = True) -> RunRecord:
    """The record of a run's output, as the command line names it.

    InputError if there is none, UsageError if the run must be `complete` and is not.
    """
    record = read_run(absolute(named))
    if complete and not record.is_done:
        why = f"(status {record.status}); run its command again"
        raise UsageError(f"{named}: the run is not complete {why}")
    return record


def one_output(named: str, why: str) -> str:
    """The output that was named, perhaps by a folder above it; InputError, and why, of several."""
    folder, *others = output_folders(named)
    if others:
        raise InputError(
            f"{named} holds several outputs, and {why}: merge them with `bert-embed "
            f"export {named} MERGED --to parquet`"
        )
    return folder


def check_model(bundle: Bundle, settings: Mapping[str, Any], place: str) -> None:
    """Refuses a model that did not compute the vectors in a place, by their settings."""
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors in "
            f"{place} come from {settings['model']} ({settings['model_source']})"
        )


def check_outside(name: str, place: str, run: str) -> None:
    """Refuses a place in a run's output, links followed: readers take every file there."""
    if lies_in(place, run):
        raise UsageError(
            f"{name} {hide_secrets(place)} lies in the output itself; choose a folder outside it"
        )


def lies_in(place: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it, links followed."""
    inner, outer = (
        path if is_remote(path) else os.path.realpath(path)
        for path in map(absolute, (place, folder))
    )
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")


def check_folder(name: str, folder: str) -> None:
    """UsageError if a folder, which may not exist yet, cannot be written; creates nothing."""
    try:
        check_writable(folder if is_remote(folder) else nearest_folder(folder))
    except OSError as error:
        if is_passing(error):
            raise
        why = error if is_remote(folder) else error.strerror or error
        raise UsageError(f"{name} cannot be written: {why}") from error


def nearest_folder(folder: str) -> str:
    """The folder of this machine, or the nearest one above it that exists; UsageError: a link."""
    while not exists(folder):
        if os.path.islink(folder):
            raise UsageError(f"{folder} is a broken link; make what it leads to, or remove it")
        folder = os.path.dirname(folder)
    return folder
