"""The ledger of a run: a record of each part, the finished parts, their sum, the verdict on it."""

import bisect
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from bert_embed.backends.runner import failed_in_model
from bert_embed.base.errors import counted, counted_of, step_message
from bert_embed.results.names import DELETED, output_name, parse_name
from bert_embed.results.run_record import (
    ChangeCounts,
    Counts,
    Lengths,
    Load,
    Result,
    Unknown,
    Written,
)
from bert_embed.storage.files import for_each, read_bytes, size_of
from bert_embed.transforms.output_folder import OutputFile, OutputFolder, part_name
from bert_embed.transforms.parts import BLANK_LINE, CURES, BlockSpec, Part, PlannedWork

_FORMAT = 2
_MOST = 1 << 50  # of any number; sums of more than JSON's 64 bits hold could not be written
# The histogram of lengths has bins of 16 tokens up to 1,024, then four to each doubling: a book as
# one document adds some bins to it, not a million.
LENGTH_BIN = 16
EQUAL_BINS = 64
_PER_DOUBLING = 4


class ReconcileError(RuntimeError):
    """The block records do not add up to what was planned: documents were lost or doubled."""


@dataclass(frozen=True)
class BlockRecord:
    """What became of a part, beside `Part`; written after all its files, it marks it as done."""

    block: int
    part: int
    last: bool
    records: int
    covered: dict[int, int]
    end_of_file: int | None
    embedded: int = 0  # documents with a vector in the output
    skipped: int = 0  # documents that an earlier output has
    rejected: dict[str, int] = field(default_factory=dict)  # how many for each reason
    blank: int = 0  # blank lines among the rejected
    unfit: dict[str, int] = field(default_factory=dict)  # values that no column could take
    truncated: int = 0  # embedded documents whose text was cut
    tokens: int = 0  # of embedded documents, special tokens included
    full_tokens: int = 0  # the same if no text had been cut
    text_tokens: int = 0  # in which [UNK] were counted
    unknown_tokens: int = 0  # [UNK] of them
    continuing_tokens: int = 0  # of them, those that continue a word
    computed_tokens: int = 0  # of the model, each distinct row once
    padded_tokens: int = 0  # the same with padding
    batches: int = 0  # that the model computed
    compiled: int = 0  # shapes of batches that were compiled for the part
    length_bins: list[int] = field(default_factory=list)  # as `length_histogram` counts them
    files: dict[str, OutputFile] = field(default_factory=dict)  # by name
    seconds: dict[str, float] = field(default_factory=dict)
    cut_contexts: int = 0  # documents with a context of chunks that was cut
    norms: list[float] = field(default_factory=list)  # least and greatest of vectors of texts
    zero_vectors: int = 0  # of texts, all of whose numbers are 0
    foreign_texts: int = 0  # that seem to be of languages that the model does not know
    reused: bool = False  # an earlier attempt wrote it; not kept in the file

    def __post_init__(self) -> None:
        counted = self.embedded + self.skipped + sum(self.rejected.values())
        if self.records != counted:
            raise ReconcileError(
                f"part {part_name(self.block, self.part)}: {self.records} records read, but "
                f"{counted} embedded, rejected or skipped"
            )


# What is summed of all records: the names of their numbers, but for those of block and part
SUMMED = tuple(one.name for one in fields(BlockRecord) if one.type is int)[2:]


def block_record(
    part: Part,
    num_tokens: np.ndarray,
    truncated: np.ndarray,
    files: dict[str, OutputFile],
    **computed: Any,
) -> BlockRecord:
    """The record of a part: int32 and bool `[documents]` of its output, and counts."""
    return BlockRecord(
        block=part.block,
        part=part.number,
        last=part.last,
        records=part.records,
        covered=part.covered,
        end_of_file=part.end_of_file,
        embedded=len(num_tokens),
        skipped=part.skipped,
        rejected=dict(sorted(Counter(one.reason for one in part.rejected).items())),
        blank=sum(rejection.blank for rejection in part.rejected),
        unfit=part.unfit,
        truncated=int(truncated.sum()),
        cut_contexts=part.cut_contexts,
        tokens=int(num_tokens.sum()),
        text_tokens=part.unknown.tokens,
        unknown_tokens=part.unknown.unknown,
        continuing_tokens=part.unknown.continuing,
        foreign_texts=part.unknown.foreign,
        length_bins=length_histogram(num_tokens),
        files=files,
        seconds={stage: round(seconds, 6) for stage, seconds in part.seconds.items()},
        **computed,
    )


def length_histogram(num_tokens: np.ndarray) -> list[int]:
    """Counts lengths, int `[documents]`, in bins whose upper ends `length_end` gives.

    >>> length_histogram(np.array([3, 15, 16, 40]))
    [2, 1, 1]
    >>> counts = length_histogram(np.array([1023, 1024, 1 << 20]))
    >>> [(at, length_end(at)) for at, count in enumerate(counts) if count]
    [(63, 1023), (64, 1279), (104, 1310719)]
    """
    lengths, first = num_tokens.astype(np.int64), LENGTH_BIN * EQUAL_BINS
    doublings = np.log2(np.maximum(lengths, first) / first).astype(np.int64)
    quarters = (lengths * _PER_DOUBLING >> doublings) // first - _PER_DOUBLING
    above = EQUAL_BINS + _PER_DOUBLING * doublings + quarters
    return np.bincount(np.where(lengths < first, lengths // LENGTH_BIN, above)).tolist()


def length_end(at: int) -> int:
    """The most tokens of a document in a bin of `length_histogram`.

    >>> length_end(0), length_end(63), length_end(64), length_end(67), length_end(68)
    (15, 1023, 1279, 2047, 2559)
    """
    if at < EQUAL_BINS:
        return (at + 1) * LENGTH_BIN - 1
    doublings, quarters = divmod(at + 1 - EQUAL_BINS, _PER_DOUBLING)
    return (LENGTH_BIN * EQUAL_BINS << doublings) * (_PER_DOUBLING + quarters) // _PER_DOUBLING - 1


def block_record_bytes(record: BlockRecord, run: str) -> bytes:
    """A record as JSON, with the fingerprint of its run."""
    row = {"format": _FORMAT, "run": run} | asdict(record)
    del row["reused"]
    for name in ("cut_contexts", "zero_vectors", "foreign_texts"):
        if not row[name]:  # as in most runs
            del row[name]
    return orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)


def read_block_record(folder: OutputFolder, block: int, part: int, run: str) -> BlockRecord | None:
    """An earlier attempt's record of a part, or None if there is none of this run."""
    record = parse_block_record(read_bytes(folder.block_record(block, part)) or b"", run)
    return record if record and (record.block, record.part) == (block, part) else None


def parse_block_record(data: bytes, run: str) -> BlockRecord | None:
    """The record in a file; None if it is of another run, or not as `block_record_bytes` writes.

    The files that it names will be opened, so they must have the part's own names, which lead
    nowhere else.
    """
    try:
        row = orjson.loads(data)
        if row.pop("format") != _FORMAT or row.pop("run") != run:
            return None
        row["covered"] = {int(file): size for file, size in row["covered"].items()}
        row["files"] = {name: OutputFile(**file) for name, file in row["files"].items()}
        record = BlockRecord(**row, reused=True)
        files = record.files.values()
        counts = [getattr(record, name) for name in ("block", "part", *SUMMED)]
        counts += [*record.rejected.values(), *record.covered.values(), *record.unfit.values()]
        counts += [number for file in files for number in (file.bytes, file.rows)]
        counts += [*record.length_bins, 0 if record.end_of_file is None else record.end_of_file]
        whole = all(type(count) is int and 0 <= count < _MOST for count in counts)
        whole &= type(record.last) is bool
        floats = (*record.seconds.values(), *record.norms)
        whole &= all(isinstance(number, (int, float)) for number in floats)
        whole &= all(isinstance(file.crc32c, str) for file in files)
        names = [parse_name(name) for name in record.files]
        named = all(parsed and parsed[1:3] == (record.block, record.part) for parsed in names)
    except (ReconcileError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return record if whole and named else None


_MOST_SLICES = 1000  # of the blocks whose records one worker reads at a time


@dataclass(frozen=True)
class BegunBlocks:
    """Blocks begun earlier, their parts that have block records, and sizes of files by name."""

    specs: list[BlockSpec]
    parts: dict[int, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def begun_blocks(
    folder: OutputFolder, specs: Iterable[BlockSpec]
) -> Iterator[BlockSpec | BegunBlocks]:
    """Gives blocks of which nothing is written as they are, and all others some at a time."""
    parts, files = defaultdict[int, list[int]](list), defaultdict[int, list[tuple[str, int]]](list)
    sizes, recorded = folder.listed()
    for block, part in recorded:
        parts[block].append(part)
    for name, size in sizes.items():
        files[output_name(name).block].append((name, size))

    def begun(specs: list[BlockSpec]) -> BegunBlocks:
        numbers = {spec.number: parts[spec.number] for spec in specs}
        of_blocks = itertools.chain.from_iterable(files.get(number, ()) for number in numbers)
        return BegunBlocks(specs, numbers, dict(of_blocks))

    held: list[BlockSpec] = []
    slices = 0
    for spec in specs:
        if spec.number not in parts:
            yield spec
            continue
        held.append(spec)
        slices += len(spec.slices)
        if slices >= _MOST_SLICES or spec.spread:
            yield begun(held)
            held, slices = [], 0
    if held:
        yield begun(held)


def finished_blocks(
    folder: OutputFolder, run: str, begun: BegunBlocks
) -> Iterator[tuple[BlockSpec, list[BlockRecord]]]:
    """Each block with the records of its finished parts, those whose files are there and whole."""
    pairs = [(spec.number, part) for spec in begun.specs for part in begun.parts[spec.number]]

    def read(pair: tuple[int, int]) -> BlockRecord | None:
        record = read_block_record(folder, *pair, run)
        files = record.files if record else {}
        is_whole = all(begun.sizes.get(name) == file.bytes for name, file in files.items())
        return record if is_whole else None

    block_records: dict[int, list[BlockRecord]] = {}
    for record in for_each(folder.path, read, pairs):
        if record is not None:
            block_records.setdefault(record.block, []).append(record)
    for spec in begun.specs:
        of_block = block_records.get(spec.number, [])
        last = max((record.part for record in of_block if record.last), default=-1)
        done = tuple(record.part for record in of_block)
        yield replace(spec, done=done, complete=0 < len(done) == last + 1), of_block


def finished_parts(folder: OutputFolder, run: str, spec: BlockSpec) -> dict[int, BlockRecord]:
    """The records, by part number, that an earlier try of this bundle wrote since the plan."""
    by_number: dict[int, BlockRecord] = {}
    done = frozenset(spec.done)
    for number in itertools.count() if spec.cut is None else (spec.cut.part.number,):
        if number in done:
            continue
        record = read_block_record(folder, spec.number, number, run)
        if record is None:
            break
        if all(size_of(folder.path_of(n)) == file.bytes for n, file in record.files.items()):
            by_number[number] = record
        if record.last:
            break
    return by_number


def is_complete(spec: BlockSpec, finished: dict[int, BlockRecord]) -> bool:
    """Whether nothing is left to read, with the parts that `finished_parts` gave."""
    if spec.cut is not None:
        return bool(finished)
    last = max(finished, default=-1)
    return last >= 0 and finished[last].last and len(finished) + len(spec.done) == last + 1


HASHES = 1 << 64  # listing hashes that there are
_COUNTERS = ("counts", "rejected", "unfit", "seconds", "covered", "records", "written")
_MOST_NAMED = 5  # problems of one kind that a message lists before it counts the rest


@dataclass
class Totals:
    """The sum of block records, with what is needed to check it; small for any number of them."""

    counts: Counter = field(default_factory=Counter)  # sums of their numbers
    rejected: Counter = field(default_factory=Counter)  # by reason
    unfit: Counter = field(default_factory=Counter)  # values that no column could take
    seconds: Counter = field(default_factory=Counter)  # by stage, over all workers
    lengths: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)  # least and greatest
    covered: Counter = field(default_factory=Counter)  # bytes of each file
    parts: dict[int, int] = field(default_factory=dict)  # of a block, bits: sets need more memory
    doubled: set[int] = field(default_factory=set)  # blocks with two records of one part
    ends: dict[int, int] = field(default_factory=dict)  # of blocks read through: a file's records
    records: Counter = field(default_factory=Counter)  # of the parts of blocks read through
    lasts: int = 0  # records that were their block's last
    written: Counter = field(default_factory=Counter)  # files, bytes and `(kind, "rows")`
    listing: int = 0  # `listing_hash` of all files

    def add(self, more: "BlockRecord | Totals") -> None:
        """Adds a block record, or a sum of some."""
        totals = more if isinstance(more, Totals) else _totals_of(more)
        self.listing = (self.listing + totals.listing) % HASHES
        for name in _COUNTERS:
            getattr(self, name).update(getattr(totals, name))
        lengths = itertools.zip_longest(self.lengths, totals.lengths, fillvalue=0)
        self.lengths = [one + other for one, other in lengths]
        norms = self.norms + totals.norms
        self.norms = [min(norms), max(norms)] if norms else []
        for block, parts in totals.parts.items():
            seen = self.parts.get(block, 0)
            self.parts[block] = seen | parts
            if seen & parts:
                self.doubled.add(block)
        self.doubled |= totals.doubled
        self.ends |= totals.ends
        self.lasts += totals.lasts


def _totals_of(record: BlockRecord) -> Totals:
    counts = Counter({name: getattr(record, name) for name in SUMMED})
    counts.update(block_records=1, reused=record.reused)
    if not record.reused:
        counts.update(new_documents=record.embedded, new_tokens=record.tokens)
    return Totals(
        counts=counts,
        rejected=Counter(record.rejected),
        unfit=Counter(record.unfit),
        seconds=Counter(record.seconds),
        lengths=record.length_bins,
        norms=record.norms,
        covered=Counter(record.covered),
        parts={record.block: 1 << record.part},
        ends={} if record.end_of_file is None else {record.block: record.end_of_file},
        records=Counter() if record.covered else Counter({record.block: record.records}),
        lasts=int(record.last),
        written=written_counts(record.files),
        listing=listing_hash({name: file.bytes for name, file in record.files.items()}),
    )


def listing_hash(sizes: dict[str, int]) -> int:
    """A hash of names and sizes in any order; that of two listings is the sum of theirs."""
    hashes = (
        hashlib.blake2b(f"{name} {size}".encode(), digest_size=8).digest()
        for name, size in sizes.items()
    )
    return sum(int.from_bytes(hash_bytes, "big") for hash_bytes in hashes) % HASHES


def of_parts(sizes: Mapping[str, int]) -> dict[str, int]:
    """Names and sizes without those of deleted ids, which are of no part."""
    return {name: size for name, size in sizes.items() if output_name(name).kind != DELETED}


def uncovered(
    counted: Mapping[int, int], recorded: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Block and part of what was counted, `Totals.parts`, and has no record among `recorded`."""
    left = dict(counted)
    for block, part in recorded:
        if block in left:
            left[block] &= ~(1 << part)
    return [
        (block, part)
        for block, parts in sorted(left.items())
        for part in range(parts.bit_length())
        if parts >> part & 1
    ]


def written_counts(files: dict[str, OutputFile]) -> Counter:
    """Files, bytes and rows of each kind, as `Totals.written`."""
    counts: Counter = Counter()
    for name, file in files.items():
        kind = name.partition("/")[0]
        counts.update({(kind, "files"): 1, (kind, "bytes"): file.bytes, (kind, "rows"): file.rows})
    return counts


@dataclass(frozen=True)
class Verdict:
    """The sums of a run, a sentence for each problem, and how each kind of vectors was loaded.

    `refused` says why a run that is whole is not to be loaded: too many records were rejected.
    """

    totals: Totals
    problems: tuple[str, ...]
    refused: str | None = None
    loads: dict[str, Load] = field(default_factory=dict)
    changes: ChangeCounts | None = None  # of a run that compares its input with earlier outputs
    deleted_before: tuple[str, ...] = ()  # files of deleted ids that an earlier attempt left


def with_files(verdict: Verdict, files: dict[str, OutputFile]) -> Verdict:
    """The verdict with further files, which are of no part."""
    totals = verdict.totals
    listing = totals.listing + listing_hash({name: file.bytes for name, file in files.items()})
    written = totals.written + written_counts(files)
    return replace(verdict, totals=replace(totals, written=written, listing=listing % HASHES))


def verdict(planned: PlannedWork, totals: Totals) -> Verdict:
    """Compares the sum of the block records with the plan."""
    problems: list[str] = []
    missing = planned.blocks - len(totals.parts)
    if missing:
        problems.append(f"{missing} of {planned.blocks} planned blocks have no block record")
    if totals.lasts != planned.blocks:
        problems.append(
            f"{totals.lasts} blocks reported their last part, {planned.blocks} were planned"
        )
    gaps = {block for block, parts in totals.parts.items() if parts & (parts + 1)}
    doubled = (
        f"block {block:07d} has parts missing or doubled" for block in sorted(gaps | totals.doubled)
    )
    # An independent check: the bytes of all lines must equal the size in the listing.
    uncovered = (
        f"{path}: its blocks covered {totals.covered[file]} bytes of {stop}"
        for file, (path, stop) in enumerate(zip(planned.paths, planned.stops, strict=True))
        if stop is not None and totals.covered[file] != stop
    )
    unread = (
        f"block {block:07d}: {counted(totals.records[block], 'record')} in its parts, its file "
        f"has {end}"
        for block, end in sorted(totals.ends.items())
        if end != totals.records[block]
    )
    problems += [*first_of(doubled, "blocks"), *first_of(uncovered, "files")]
    problems += first_of(unread, "blocks")
    return Verdict(totals, tuple(problems))


def first_of(problems: Iterable[str], what: str) -> Iterator[str]:
    """The first problems, and how many further ones there are."""
    listed = list(problems)
    yield from listed[:_MOST_NAMED]
    if len(listed) > _MOST_NAMED:
        yield f"and {len(listed) - _MOST_NAMED} further {what}"


def judged(verdict: Verdict, allowed: str, truncates: bool) -> Verdict:
    """The verdict of a whole run, refused if more was rejected than `max_rejected` allows."""
    if verdict.problems:
        return verdict
    totals = verdict.totals
    why = problem(_counts(totals), totals.rejected, allowed, truncates)
    return replace(verdict, refused=why and step_message(why))


def is_nothing(counts: Counts) -> bool:
    """Whether nothing was embedded, or skipped, of what was read, blank lines apart."""
    return counts.embedded == counts.skipped == 0 and counts.rejected > counts.blank_lines


def problem(
    counts: Counts, rejected: Mapping[str, int], allowed: str, truncates: bool
) -> str | None:
    """Why a complete run is refused; None if it is not.

    The records that were rejected are counted against all that were read, blank lines apart from
    both. `allowed` is max_rejected; `truncates` says whether a table's rows would be replaced.
    """
    blank = counts.blank_lines
    bad, records = counts.rejected - blank, counts.records - blank
    beside = f"(beside {counted(blank, 'blank line')}) " if blank else ""
    were = counted_of(bad, records, "record", f"{beside}was", f"{beside}were")
    whole = allowed.endswith("%") and Decimal(allowed[:-1]) == 100
    failed = failed_in_model(rejected)
    again = f"the model failed on {failed:,} of them, which the same command tries again"
    if is_nothing(counts) and not whole:
        ((reason, _),) = (Counter(rejected) - Counter({BLANK_LINE: blank})).most_common(1)
        corrected = (
            "with that corrected, the same output can be used again (max_rejected 100% accepts it)"
        )
        corrected = f"{CURES[reason]}; {corrected}" if reason in CURES else corrected
        what = again if failed else corrected
        return f"nothing was embedded: {were} rejected, most for: {reason}; {what}"
    if truncates and counts.embedded == 0 and counts.records:
        return (
            f"nothing of {counted(counts.records, 'record')} was embedded, so nothing was loaded: "
            "write_disposition truncate would have emptied the table (append leaves it as it is)"
        )
    if bad <= most_allowed(allowed, records):
        return None
    accepted = f"max_rejected {bad} accepts the run, whose vectors are kept"
    cures = [cure for reason, cure in CURES.items() if reason in rejected]
    return (
        f"{were} rejected, max_rejected allows {allowed}: rejected/ has them with their reasons; "
        + (again if failed else "; ".join([*cures, accepted]))
    )


def judged_changes(
    verdict: Verdict, changes: ChangeCounts, allowed: str, is_whole: bool
) -> Verdict:
    """The verdict with what changed; documents that are gone are deleted if nothing speaks against.

    `allowed` is max_deleted; `is_whole` says whether the run reads all of its input.
    """
    why = step_message(withheld(changes, allowed, is_whole) or "") or None
    if verdict.problems or verdict.refused:
        why = "the run is refused"
    return replace(verdict, changes=replace(changes, withheld=why if changes.gone else None))


NEW_IDS = (
    "most ids of the input are new and most earlier ones are gone, as where ids changed their form "
    "(another column, another path): embed the input as before, or, if all was replaced, into a "
    "new folder without skip_existing"
)


def withheld(changes: ChangeCounts, allowed: str, is_whole: bool) -> str | None:
    """Why documents that are gone are not marked as deleted; None if they are."""
    if not is_whole:
        return "the input is not read as a whole"
    if changes.unread:
        return f"the id of {counted(changes.unread, 'record')} of the input could not be read"
    most = most_allowed(allowed, changes.earlier)
    present = changes.earlier - changes.gone + changes.new
    if most and 2 * changes.gone > changes.earlier and 2 * changes.new > present:
        return NEW_IDS
    if changes.gone > most:
        return f"max_deleted allows {allowed}"
    return None


def most_allowed(allowed: str, total: int) -> Decimal:
    """The number that an option allows, which is one, or a share of a total."""
    # In binary fractions, 29% of 100 would be less than 29.
    return Decimal(allowed[:-1]) * total / 100 if allowed.endswith("%") else Decimal(allowed)


def _counts(totals: Totals) -> Counts:
    counts = totals.counts
    return Counts(
        records=counts["records"],
        embedded=counts["embedded"],
        rejected=sum(totals.rejected.values()),
        skipped=counts["skipped"],
        blank_lines=counts["blank"],
        truncated=counts["truncated"],
        parts=counts["block_records"],
        parts_reused=counts["reused"],
    )


def result_of(totals: Totals, elapsed: float, changes: ChangeCounts | None = None) -> Result:
    """The numbers of a run, from the sum of its block records.

    Rates are of what this attempt computed, over its whole time, start-up included; None if either
    is nothing, as where the clock was set back.
    """
    counts, elapsed = totals.counts, max(elapsed, 0.0)
    no_rates = not elapsed or (counts["reused"] > 0 and counts["new_documents"] == 0)
    padded = counts["padded_tokens"]
    return Result(
        counts=_counts(totals),
        written={
            kind: Written(*(totals.written[kind, name] for name in ("files", "bytes", "rows")))
            for kind in sorted({kind for kind, _ in totals.written})
        },
        listing=f"{totals.listing:016x}",
        rejected=dict(sorted(totals.rejected.items())),
        tokens=counts["tokens"],
        full_tokens=counts["full_tokens"],
        cut_share=share(counts["full_tokens"] - counts["tokens"], counts["full_tokens"]),
        unknown=Unknown(
            tokens=counts["unknown_tokens"],
            share=share(counts["unknown_tokens"], counts["text_tokens"]),
            continuing_share=share(counts["continuing_tokens"], counts["text_tokens"]),
        ),
        computed_tokens=counts["computed_tokens"],
        padded_tokens=padded,
        padding_share=share(padded - counts["computed_tokens"], padded),
        batches=counts["batches"],
        compiled_shapes=counts["compiled"],
        lengths=length_statistics(totals.lengths),
        stage_seconds={stage: round(spent, 3) for stage, spent in totals.seconds.items()},
        elapsed_seconds=round(elapsed, 3),
        documents_per_second=None if no_rates else round(counts["new_documents"] / elapsed, 1),
        tokens_per_second=None if no_rates else round(counts["new_tokens"] / elapsed, 1),
        unfit=dict(sorted(totals.unfit.items())),
        cut_contexts=counts["cut_contexts"],
        norms=tuple(totals.norms),
        zero_vectors=counts["zero_vectors"],
        foreign_texts=counts["foreign_texts"],
        changes=changes,
    )


def share(part: float, whole: float) -> float:
    """A share to four decimals; 0.0 of nothing."""
    return round(part / whole, 4) if whole else 0.0


def length_statistics(counts: list[int]) -> Lengths:
    """A histogram of documents by their tokens, with the upper ends of its percentiles' bins.

    >>> length_statistics([2, 1, 0, 1])
    Lengths(bin_tokens=16, counts=(2, 1, 0, 1), p50=15, p90=63, p99=63, max=63, equal_bins=None)
    """
    sums, tops = [*itertools.accumulate(counts)], {}
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        documents = -(-share * sums[-1] // 100) if sums else 0
        at = bisect.bisect_left(sums, documents)
        tops[name] = length_end(at) if documents else None
    wide = EQUAL_BINS if len(counts) > EQUAL_BINS else None
    return Lengths(LENGTH_BIN, tuple(counts), **tops, equal_bins=wide)
