"""Defines RunRecord, run.json: what a run reads and computes, its state and its result.

Nothing else knows the keys of the file; docs/report.md says what each means. Other records of a run
are packed JSON.
"""

import datetime
import glob
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
import zstandard

from bert_embed.base.errors import InputError, required
from bert_embed.base.json import from_json, is_torn, json_bytes, json_object, to_json
from bert_embed.results.names import DATA_FILES, RUN_FILE, parse_name
from bert_embed.storage.files import (
    absolute,
    change,
    is_remote,
    join,
    list_matching,
    read_bytes,
    stat,
    write_bytes,
)
from bert_embed.storage.local import FileInfo, fixed_folder, is_glob

_KEYS = {"format", "run", "status"}  # of every version
FORMAT = 2  # rises when a key gets another meaning
# `refused`: complete, but more records were rejected than allowed, so that nothing was loaded
Status = Literal["planned", "running", "done", "refused", "failed", "interrupted"]


@dataclass(frozen=True)
class RunModel:
    """The model of a run."""

    name: str
    fingerprint: str
    source: str


@dataclass(frozen=True)
class EarlierRun:
    """An output whose documents a run skips."""

    output: str
    run: str | None
    listing: str


@dataclass(frozen=True)
class EarlierRuns:
    """The outputs whose documents a run skips; `results/chain.py` finds out which they are."""

    runs: int
    hash: str  # of all, in their order
    newest: EarlierRun  # the last of them


def hash_with(of_earlier: str, run: EarlierRun) -> str:
    """The hash of a list of runs and one more, from that of the list, which is "" of none."""
    text = json_bytes({"runs": of_earlier} | to_json(run))
    return hashlib.sha256(text).hexdigest()[:32]


@dataclass(frozen=True)
class RunInput:
    """What a run reads."""

    patterns: tuple[str, ...]
    format: str | None
    listing: str
    files: int
    paths: tuple[str, ...] | None
    skipped_files: dict[str, int]
    bytes: int
    text_column: str
    id_column: str | None
    text_b_column: str | None
    extra_columns: dict[str, str] | None
    limit: int | None
    skip_existing: EarlierRuns | None


@dataclass(frozen=True)
class RunFiles:
    """How the output is cut into files."""

    format: str
    block_bytes: int
    part_docs: int


@dataclass(frozen=True)
class Goal:
    """What the block records of a complete run add up to, as far as its plan knows."""

    blocks: int
    covers: int | None
    records: int


@dataclass(frozen=True)
class QueryRows:
    """The table with the rows of `query`, which expires."""

    name: str
    rows: int
    bytes: int
    modified: float
    schema: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class RunTables:
    """The BigQuery tables that the vectors are loaded into."""

    tables: dict[str, str]
    write_disposition: str


@dataclass(frozen=True)
class Load:
    """A finished load of one kind of vectors into its table."""

    job: str | None
    documents: int
    ended: str
    table_rows: int
    modified: str
    now: bool


@dataclass(frozen=True)
class Job:
    """The job on a runner that computes a run."""

    runner: str  # as `--runner` names it
    name: str  # under which the runner's own pages list it
    endpoint: str  # of the job server, "" if Beam started one for this job
    flink_master: str  # address of the JobManager, "" if no flag names it
    id: str  # the job server's, "" until it has the job
    submitted: str


@dataclass(frozen=True)
class Counts:
    """How many records and parts a run has."""

    records: int
    embedded: int
    rejected: int
    skipped: int
    blank_lines: int
    truncated: int
    parts: int
    parts_reused: int


@dataclass(frozen=True)
class ChangeCounts:
    """What an increment found: documents of its input, and of the outputs that it continues."""

    new: int
    changed: int
    gone: int  # documents that earlier outputs have and the input lacks
    earlier: int  # documents of the earlier outputs
    unread: int = 0  # records of the input without an id
    withheld: str | None = None  # why those that are gone are not marked as deleted


@dataclass(frozen=True)
class Written:
    """The files of one kind: how many, their bytes and their rows."""

    files: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Unknown:
    """Tokens that are [UNK], and those that continue a word."""

    tokens: int
    share: float
    continuing_share: float = 0.0


@dataclass(frozen=True)
class Lengths:
    """A histogram of documents by their tokens."""

    bin_tokens: int
    counts: tuple[int, ...]
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None
    equal_bins: int | None = None


@dataclass(frozen=True)
class Result:
    """The numbers of a run that has ended, which stand beside the other keys of the record."""

    counts: Counts
    written: dict[str, Written]
    listing: str
    rejected: dict[str, int]
    tokens: int
    full_tokens: int
    cut_share: float
    unknown: Unknown
    computed_tokens: int
    padded_tokens: int
    padding_share: float
    batches: int
    compiled_shapes: int
    lengths: Lengths
    stage_seconds: dict[str, float]
    elapsed_seconds: float
    documents_per_second: float | None
    tokens_per_second: float | None
    unfit: dict[str, int] = field(default_factory=dict)  # values that no column could take
    cut_contexts: int = 0  # documents with a context of chunks that was cut
    norms: tuple[float, ...] = ()  # least and greatest of vectors of texts, if there are any
    zero_vectors: int = 0  # of texts, all of whose numbers are 0
    foreign_texts: int = 0  # that seem to be of languages that the model does not know
    changes: ChangeCounts | None = None  # of a run with `skip_existing`


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of `embed` or `tokenize`, as run.json describes it.

    A field with a default is written only if it differs.
    """

    status: Status
    run: str
    started: str
    options: dict[str, Any]
    versions: dict[str, str]
    job: Job | None = None
    ended: str | None = None
    error: str | None = None
    model: RunModel
    engine: str | None
    input: RunInput
    files: RunFiles
    plan: Goal
    query_rows: QueryRows | None
    table: RunTables | None
    vectors: dict[str, Any] | None = None
    examples: dict[str, Any] | None = None
    loads: dict[str, Load] = field(default_factory=dict)
    result: Result | None = None

    @property
    def is_done(self) -> bool:
        """Whether the job is complete: all that it writes to its folder is there."""
        return self.status in ("done", "refused")

    def stopped(self, error: str | None) -> "RunRecord":
        """The record of a job that failed with an error, or without one was interrupted."""
        status: Status = "interrupted" if error is None else "failed"
        return replace(self, status=status, error=error, ended=now())

    def submitted(self, job: Mapping[str, str]) -> "RunRecord":
        """The record of a job that a runner has."""
        return replace(self, job=Job(**{**job, "submitted": now()}))

    def to_json(self) -> bytes:
        """The bytes of run.json."""
        return json_bytes(self.to_dict())

    @property
    def kind(self) -> str:
        """What the run writes: `vectors`, or only `examples`."""
        return "examples" if self.vectors is None else "vectors"

    @property
    def settings(self) -> dict[str, Any]:
        """What the vectors, or the examples, are."""
        return getattr(self, self.kind) or {}

    @property
    def numbers(self) -> Result:
        """The result of a run that has one, as every complete run."""
        return required(self.result, "result of the run")

    def written(self, number: str) -> int:
        """The "files", "bytes" or "rows" of all kinds together; 0 while there is no result."""
        kinds = self.result.written.values() if self.result else ()
        return sum(getattr(kind, number) for kind in kinds)

    def incomplete(self) -> "RunRecord":
        """The record of a run of which files are missing."""
        return replace(self, status="failed", error="damaged")

    def finished(
        self, result: Result, loads: Mapping[str, Load], error: str | None, refused: str | None
    ) -> "RunRecord":
        """The record of a run that has ended, complete unless there is an error."""
        status: Status = "failed" if error else "refused" if refused else "done"
        loads, error = dict(loads) or self.loads, error or refused
        return replace(self, status=status, error=error, ended=now(), result=result, loads=loads)

    def to_dict(self) -> dict[str, Any]:
        """The content of run.json."""
        values = to_json(replace(self, result=None))
        result = {} if self.result is None else to_json(self.result)
        return {"format": FORMAT} | values | result


def change_record(
    folder: str, changed: Callable[[RunRecord | None], RunRecord | None]
) -> RunRecord | None:
    """Changes a folder's run.json by condition, as `change` does; returns what it then holds.

    `changed` takes the record, None where there is none or it is damaged, and gives the new one,
    None to leave it.
    """
    held: RunRecord | None = None

    def changed_bytes(data: bytes | None) -> bytes | None:
        nonlocal held
        present = None
        with suppress(InputError):
            present = None if data is None else parse_record(data, RUN_FILE)
        new = changed(present)
        held = present if new is None else new
        return None if new is None else new.to_json()

    change(join(folder, RUN_FILE), changed_bytes)
    return held


def read_record(folder: str) -> RunRecord | None:
    """Returns what `parse_record` does of a folder's run.json; None if it holds none."""
    path = join(folder, RUN_FILE)
    data = read_bytes(path)
    return None if data is None else parse_record(data, path)


@dataclass(frozen=True)
class ListedRun:
    """A folder that holds a run, as it was listed."""

    folder: str
    record: FileInfo  # its run.json
    # Bytes of the files that have names of a run's data, by these names; None: not listed
    files: dict[str, int] | None


def run_folders(path: str) -> list[str]:
    """The folders of `listed_runs`, the one that was named as it was."""
    return [run.folder for run in listed_runs(path)]


def listed_runs(path: str) -> list[ListedRun]:
    """The run in a folder; else those in its folders, or if it has none, in what it matches.

    InputError if one beside these has lost its record: its documents would be left out unseen.
    """
    place, own = absolute(path), absolute(join(path, RUN_FILE))
    if not (is_glob(path) and is_remote(path)):  # of which the listing below says it
        with suppress(FileNotFoundError, NotADirectoryError):
            return [ListedRun(path, stat(own), None)]
    literal = glob.escape(place)
    patterns = [join(f"{literal}/*", RUN_FILE), join(f"{literal}/*", DATA_FILES)]
    above = place
    if is_glob(path):
        above = fixed_folder(place)
        patterns += [own, join(place, DATA_FILES), join(literal, RUN_FILE)]
    names = list_matching(above, patterns)
    names = [file for file in names if file.path.startswith(f"{place}/")] or names
    if any(file.path == own for file in names):
        return [ListedRun(path, file, None) for file in names if file.path == own]
    records = {
        file.path.rpartition("/")[0]: file for file in names if file.path.endswith(f"/{RUN_FILE}")
    }
    files: dict[str, dict[str, int]] = {folder: {} for folder in records}
    for file in names if records else ():
        folder, kind, name = file.path.rsplit("/", 2)
        if name == RUN_FILE or parse_name(f"{kind}/{name}") is None:
            continue
        if folder not in records:
            raise InputError(
                f"{folder} holds {kind}/{name} of a run, but no {RUN_FILE}: copy the whole run "
                "there, or move it away"
            )
        files[folder][f"{kind}/{name}"] = file.size
    return [ListedRun(folder, file, files[folder]) for folder, file in records.items()]


def is_of_run(data: bytes) -> bool:
    """Whether a run.json, which may be damaged, is that of an `embed` of any version."""
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError:
        return is_torn(data)
    return isinstance(values, dict) and values.keys() >= _KEYS and "command" not in values


def parse_record(data: bytes, path: str) -> RunRecord:
    """Returns the record that a run.json holds; InputError if it is none, or damaged."""
    values = json_object(data, path)
    folder = path.removesuffix(f"/{RUN_FILE}")
    version = values.get("format")
    if type(version) is int and version > FORMAT:
        raise InputError(
            f"{folder} was written by a newer version of bert-embed (format {version}, this one "
            f"reads {FORMAT}): update bert-embed"
        )
    if version != FORMAT:
        raise InputError(f"{folder} is not the output of `embed`: {path} is not the record of one")
    record = replace(from_json(RunRecord, values, path), result=None)
    if (record.vectors is None) == (record.examples is None):
        raise InputError(f"{path} is damaged: it must have vectors or examples")
    if record.vectors is not None:
        check_settings(record.vectors, path)
    cut = record.files
    if cut.block_bytes < 1 or cut.part_docs < 1:
        raise InputError(f"{path} is damaged: files.block_bytes and part_docs must be at least 1")
    if record.is_done and record.ended is None:
        raise InputError(f"{path} is damaged: it has no ended")
    if record.is_done or "counts" in values:
        record = replace(record, result=from_json(Result, values, path))
    return record


@dataclass(frozen=True)
class _Settings:
    """What every description of vectors has; it may have more."""

    model: str
    output_dtype: str
    shape: tuple[int, ...]
    token_shape: tuple[int, ...] | None
    granularity: tuple[str, ...]
    precision: str
    layers: tuple[int, ...]
    layer_combine: str
    pooling: str
    normalize: bool
    max_seq_length: int
    long_text: str
    prompt: str
    id_type: str
    dim: int | None = None
    vectors: tuple[str, ...] = ()
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)


def check_settings(settings: Mapping[str, Any], path: str) -> None:
    """Raises InputError if what a record, or a file's footer, says of its vectors is wrong."""
    typed = from_json(_Settings, settings, path, "vectors.")
    shape = typed.shape or typed.token_shape
    if typed.dim is not None and shape and typed.dim != shape[-1]:
        raise InputError(f"{path} is damaged: vectors.dim differs from the shape {list(shape)}")


def write_packed(path: str, values: Mapping[str, Any]) -> None:
    """Writes JSON, compressed with a checksum, for `read_packed`."""
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    write_bytes(path, compressor.compress(orjson.dumps(values)))


def read_packed(path: str) -> dict[str, Any] | None:
    """The object in a file, None if there is none, or it is damaged."""
    data = read_bytes(path)
    with suppress(zstandard.ZstdError, ValueError):
        values = orjson.loads(zstandard.decompress(data or b""))
        return values if isinstance(values, dict) else None
    return None


def now() -> str:
    """Returns the time, UTC, as records have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
