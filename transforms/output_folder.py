"""Defines OutputFolder: where a run's files lie, which are its own, who may write to it."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import orjson

from bert_embed.base.errors import InputError, StorageError, naming, raise_passing
from bert_embed.models.heads.head import PIECES
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.files import EXAMPLES, suffixes
from bert_embed.results.names import (
    BLOCK_RECORDS,
    DELETED,
    EARLIER_RUNS,
    PART_NUMBERS,
    RUN_FILE,
    block_record_name,
    by_number,
    file_name,
    parse_name,
    part_name,
)
from bert_embed.storage.files import (
    change,
    files_in,
    for_each,
    is_remote,
    join,
    list_files,
    make_below,
    make_folder,
    names_in,
    open_raw,
    read_bytes,
    remove,
    remove_folder,
    sizes_in,
    sweep_temporary,
    sync_folder,
    write_unsynced,
    write_whole,
)
from bert_embed.storage.local import is_at, is_folder, is_link

_MOMENT = 0.1  # seconds


@contextmanager
def lock_held(path: str, alone: bool) -> Iterator[bool]:
    """Holds a lock, `alone` or with others; gives whether it could, or there are no locks."""
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    while True:
        file = _opened(path)
        if file is None:
            yield True
            return
        taken = _locked(file, how)
        if not taken:  # perhaps by a holder that ends, for a moment
            time.sleep(_MOMENT)
            taken = _locked(file, how)
        if not taken or is_at(path, file.fileno()):
            break
        file.close()  # the last holder removed it after it was opened here
    with file:
        try:
            yield taken
        finally:
            with suppress(OSError):  # a lock that stays there holds nobody
                if taken and _locked(file, fcntl.LOCK_EX):  # nobody else holds it
                    os.remove(path)


def _opened(path: str) -> BinaryIO | None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "ab")
    except OSError as error:
        raise_passing(error, path, "written")
        return None  # what writes there later says why it cannot


def _locked(file: BinaryIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise_passing(error, file.name, "locked")
        return True  # this file system has no locks
    return True


REPORT_PAGE = "report.html"  # shows the run to people
_PAGE_SIGN = b"<title>Report of a run</title>"
_MOST_BYTES = 64 << 10  # in which the page says what it is


def is_foreign_page(folder: str) -> bool:
    """Whether a folder holds a report.html that this program did not write."""
    with suppress(FileNotFoundError), open_raw(join(folder, REPORT_PAGE)) as file:
        return _PAGE_SIGN not in file.read(_MOST_BYTES)
    return False


REJECTED = "rejected"
SETTINGS_FILE = "examples.json"  # says what holds for all files of examples
STATE = "_state"  # the run's own bookkeeping, and files that are still being written
_TEXTS = f"{STATE}/texts"
LISTING = f"{STATE}/listing.json.zst"  # of the input, from which workers plan the run
_LOCK = f"{STATE}/lock"
_KEYS = f"{STATE}/keys"
KEYS_INDEX = f"{STATE}/keys.json.zst"  # names these files
_BLOCK_RECORD = re.compile(rf"{PART_NUMBERS}\.json")
_KEY_FILE = re.compile(r"[0-9]{7,}\.parquet")
_TEXT = re.compile(r"[0-9]{7,}-[0-9]{5,}\.zst")
_PRIVATE_MODE = 0o600  # of files that hold records as they were read
_PRIVATE = {REJECTED: _PRIVATE_MODE}


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that was written: bytes, CRC32C in base64, and rows of any kind."""

    bytes: int
    crc32c: str
    rows: int


@dataclass(frozen=True)
class OutputFolder:
    """The files of a run by relative names, `embeddings/part-…`."""

    path: str

    @property
    def has_page(self) -> bool:
        """Whether there is a page that shows the run to people."""
        return REPORT_PAGE in names_in(self.path)

    def block_record(self, block: int, part: int) -> str:
        """Path of a part's block record."""
        return join(self.path, block_record_name(block, part))

    def text(self, block: int, part: int) -> str:
        """Path of a part's text, kept while the run is not complete."""
        return join(self.path, f"{_TEXTS}/{part_name(block, part)}.zst")

    def path_of(self, name: str) -> str:
        """Path of a file by its name."""
        return join(self.path, name)

    def prepare(self) -> None:
        """Makes the folders of block records and unfinished files; removes leftover files."""
        make_folder(self.path_of(BLOCK_RECORDS))
        sweep_temporary(self.path)
        sweep_temporary(join(self.path, STATE))

    @contextmanager
    def held(self, alone: bool = False) -> Iterator[None]:
        """Locks a local output while a command writes there, `alone` where it removes."""
        if is_remote(self.path):
            yield
            return
        self._check_links()
        existed = is_folder(self.path)
        try:
            with lock_held(join(self.path, _LOCK), alone) as taken:
                if not taken:
                    raise StorageError(
                        f"another command writes to {self.path} at this moment: wait for it, or "
                        "stop it"
                    )
                yield
        finally:
            self._remove_empty([STATE] if existed else [STATE, ""])

    def _check_links(self) -> None:
        """Refuses folders that are links: files of another place would be written and removed."""
        state = join(self.path, STATE)
        places = [join(self.path, name) for name in (*_endings(), STATE)]
        with naming(state, "listed"):
            below = os.listdir(state) if is_folder(state) and not is_link(state) else []
        for place in (*places, *(join(state, name) for name in below)):
            if is_link(place):
                raise InputError(
                    f"{place} is a link, through which no command writes or removes files: put "
                    f"what {os.path.realpath(place)} holds in its place, or choose another folder"
                )

    def write(
        self,
        kind: str,
        block: int,
        part: int,
        ending: str,
        write: Callable[[BinaryIO], object],
        rows: int,
    ) -> dict[str, OutputFile]:
        """Writes one file of a part, whole or not at all; returns its name and what was written.

        A power cut may take the file back until its folder is synced. It costs a part a tenth of
        its time to wait for that each time, so `sync` does it once, before the run counts as
        complete: until then a block record counts only where the files that it names are there.
        """
        name, state = file_name(kind, block, part, ending), join(self.path, STATE)
        make_below(self.path, kind)
        make_below(self.path, STATE)
        stored = write_whole(self.path_of(name), write, state, _PRIVATE.get(kind, 0o666))
        return {name: OutputFile(stored.size, stored.crc32c, rows)}

    def write_block_record(
        self, block: int, part: int, data: bytes | Callable[[bytes | None], bytes | None]
    ) -> None:
        """Writes the block record of a part, which says that its files are complete.

        `data`, or what gives it from that of the record that is there, None to keep this one.
        """
        make_below(self.path, BLOCK_RECORDS)
        changed = data if callable(data) else lambda present: data
        change(self.block_record(block, part), changed, join(self.path, STATE), is_new=True)

    def sync(self) -> None:
        """Waits until no power cut takes back what was written, or removed, before."""
        folders = [join(self.path, name) for name in (*_endings(), BLOCK_RECORDS, _KEYS, STATE)]
        for folder in filter(os.path.isdir, folders):  # none of a store
            sync_folder(folder)

    def write_text(self, block: int, part: int, data: bytes) -> None:
        """Keeps the compressed text of a part until the run is complete, or a machine crashes."""
        make_below(self.path, _TEXTS)
        write_unsynced(self.text(block, part), data, join(self.path, STATE), _PRIVATE_MODE)

    def key_file(self, name: str) -> str:
        """Path of keys of the runs that this one continues; ValueError if it is not theirs."""
        if not _KEY_FILE.fullmatch(name):
            raise ValueError(f"{name} is not the name of a file of keys")
        return join(self.path, f"{_KEYS}/{name}")

    def write_keys(self, bucket: int, write: Callable[[BinaryIO], object]) -> dict[str, str]:
        """Writes the keys of a bucket; returns the file's name in its folder, and its CRC32C."""
        make_below(self.path, _KEYS)
        name = f"{bucket:07d}.parquet"
        stored = write_whole(self.key_file(name), write, join(self.path, STATE))
        return {name: stored.crc32c}

    def remove_keys(self) -> None:
        """Removes these files, and what names them."""
        self._remove_matching(_KEYS, _KEY_FILE, self.path_of(KEYS_INDEX))

    def remove_texts(self) -> None:
        """Removes the texts of parts."""
        self._remove_matching(_TEXTS, _TEXT)

    def _remove_matching(self, folder: str, pattern: re.Pattern[str], *others: str) -> None:
        place = join(self.path, folder)
        remove(
            [*others, *(join(place, name) for name in filter(pattern.fullmatch, names_in(place)))]
        )
        self._remove_empty([folder])

    def data_files(self) -> dict[str, int]:
        """Names and sizes of all files of this layout, by folder, block and part."""
        return only_data_files(_sizes_below(self.path, _endings()))

    def listed(self) -> tuple[dict[str, int], list[tuple[int, int]]]:
        """`data_files` and `recorded_parts`; a store is asked once."""
        if not is_remote(self.path):
            return self.data_files(), self.recorded_parts()
        sizes = _sizes_below(self.path, (*_endings(), BLOCK_RECORDS))
        records = [name.removeprefix(f"{BLOCK_RECORDS}/") for name in sizes]
        return only_data_files(sizes), _parts_of(records)

    def other_files(self) -> list[str]:
        """Names of files that do not belong in their folders; of hidden ones none."""
        others = (name for name in _sizes_below(self.path, _endings()) if not _is_ours(name))
        return sorted(name for name in others if "/." not in name)

    def recorded_parts(self, empty: bool = True) -> list[tuple[int, int]]:
        """Block and part of every block record, `empty` ones too, sorted."""
        folder = self.path_of(BLOCK_RECORDS)
        sizes = {} if empty else sizes_in(folder)
        return _parts_of(names_in(folder) if empty else filter(sizes.get, sizes))

    def recorded_run(self) -> str | None:
        """The fingerprint of the run that a block record names, the first that can be read."""
        for part in self.recorded_parts():
            with suppress(ValueError, KeyError, TypeError):
                return str(orjson.loads(read_bytes(self.block_record(*part)) or b"")["run"])
        return None

    def new_block_records(
        self, is_known: Callable[[int, int], bool]
    ) -> Iterator[tuple[int, int, float, bytes]]:
        """Block, part, time (seconds since 1970) and content of records that are not known."""

        def is_new(name: str) -> bool:
            match = _BLOCK_RECORD.fullmatch(name)
            return match is not None and not is_known(int(match[1]), int(match[2]))

        files = files_in(self.path_of(BLOCK_RECORDS), is_new)
        contents = for_each(self.path, read_bytes, [file.path for file in files])
        for file, data in zip(files, contents, strict=True):
            if data is not None:  # it still exists
                [(block, part)] = _parts_of([file.path.rpartition("/")[2]])
                yield block, part, file.modified, data

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files of this layout by their names, and folders that are then empty."""
        names = list(names)
        if strange := [name for name in names if not _is_ours(name)]:
            raise ValueError(f"{strange[0]} is not a file of a run")
        remove([self.path_of(name) for name in names])
        self._remove_empty(dict.fromkeys(name.partition("/")[0] for name in names))

    def remove_block_records(self, parts: Iterable[tuple[int, int]]) -> None:
        """Removes the block records of parts, so that the parts count as not finished."""
        remove([self.block_record(*part) for part in parts])

    def remove_all(self) -> None:
        """Removes a run's files, its record last; a report.html only if this program wrote it."""
        self.remove_block_records(self.recorded_parts())
        self.remove_files(self.data_files())
        self.remove_texts()
        self.remove_keys()
        remove([self.path_of(name) for name in (LISTING, EARLIER_RUNS, SETTINGS_FILE)])
        self.sync()
        pages = [] if is_foreign_page(self.path) else [REPORT_PAGE]
        remove([self.path_of(name) for name in (*pages, RUN_FILE)])

    def _remove_empty(self, folders: Iterable[str]) -> None:
        for folder in folders:
            remove_folder(join(self.path, folder))


def _parts_of(names: Iterable[str]) -> list[tuple[int, int]]:
    """Block and part of the names of block records, sorted; others are left out."""
    matches = map(_BLOCK_RECORD.fullmatch, names)
    return sorted((int(match[1]), int(match[2])) for match in matches if match is not None)


def _sizes_below(root: str, folders: Iterable[str]) -> dict[str, int]:
    """Names and sizes in some folders of the layout; a store is listed once."""
    if is_remote(root):
        above, within = join(root, ""), tuple(f"{folder}/" for folder in folders)
        sizes = {file.path.removeprefix(above): file.size for file in list_files(above)}
        return {name: size for name, size in sizes.items() if name.startswith(within)}
    return {
        f"{kind}/{name}": size
        for kind in folders
        for name, size in sizes_in(join(root, kind)).items()
    }


def only_data_files(sizes: dict[str, int]) -> dict[str, int]:
    """Those of some names and sizes that are of this layout, by folder, block and part."""
    return {name: sizes[name] for name in sorted(filter(_is_ours, sizes), key=by_number)}


def _is_ours(name: str) -> bool:
    parsed = parse_name(name)
    return parsed is not None and parsed.ending in _endings().get(parsed.kind, ())


def _endings() -> dict[str, tuple[str, ...]]:
    """The endings of the files in each folder of a run's data."""
    vectors = (*(kind.folder for kind in KINDS.values()), *PIECES.values())
    return {
        **dict.fromkeys(vectors, suffixes()),
        EXAMPLES: suffixes(EXAMPLES),
        REJECTED: (".jsonl",),
        DELETED: (".parquet",),
    }


def settings_places(file: str) -> list[str]:
    """Where the settings of a file of examples may be: beside its folder, or beside the file."""
    folder = file.rpartition("/")[0]
    above, _, name = folder.rpartition("/")
    return [
        join(place, SETTINGS_FILE) for place in ([above] if name == EXAMPLES else []) + [folder]
    ]
