"""The sum of a run's block records, and the verdict on it against the plan."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bert_embed.base.errors import counted
from bert_embed.results.run_record import Changes, Load
from bert_embed.transforms.ledger import Distinct
from bert_embed.transforms.output_folder import OutputFile
from bert_embed.transforms.parts import PlannedWork

HASHES = 1 << 64  # listing hashes that there are
_MOST_NAMED = 5  # problems of one kind that a message lists before it counts the rest


@dataclass
class Totals:
    """The sum of block records, with what is needed to check it."""

    counts: Counter = field(default_factory=Counter)  # sums of their numbers
    rejected: Counter = field(default_factory=Counter)  # by reason
    unfit: Counter = field(default_factory=Counter)  # values that are null, by extra column
    seconds: Counter = field(default_factory=Counter)  # by stage, over all workers
    lengths: list[int] = field(default_factory=list)
    covered: Counter = field(default_factory=Counter)  # bytes of each file
    parts: dict[int, int] = field(default_factory=dict)  # of a block, bits: sets need more memory
    doubled: set[int] = field(default_factory=set)  # blocks with two records of one part
    ends: dict[int, int] = field(default_factory=dict)  # of blocks read through: a file's records
    records: Counter = field(default_factory=Counter)  # of the parts of blocks read through
    lasts: int = 0  # records that were their block's last
    written: Counter = field(default_factory=Counter)  # files, bytes and `(kind, "rows")`
    listing: int = 0  # `listing_hash` of all files
    unknown_files: dict[str, tuple[int, int]] = field(default_factory=dict)  # worst: [UNK], tokens
    unknown_scripts: Counter = field(default_factory=Counter)  # of sampled [UNK]
    texts: list[Distinct] = field(default_factory=list)
    ids: list[Distinct] | None = field(default_factory=list)  # None: not counted


def listing_hash(sizes: dict[str, int]) -> int:
    """A hash of names and sizes in any order; that of two listings is the sum of theirs."""
    hashes = (
        hashlib.blake2b(f"{name} {size}".encode(), digest_size=8).digest()
        for name, size in sizes.items()
    )
    return sum(int.from_bytes(hash_bytes, "big") for hash_bytes in hashes) % HASHES


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
    changes: Changes | None = None  # of a run that compares its input with earlier outputs


def with_files(verdict: Verdict, files: dict[str, OutputFile]) -> Verdict:
    """The verdict with further files, which are of no part."""
    totals = verdict.totals
    listing = listing_hash({name: file.bytes for name, file in files.items()})
    totals = replace(
        totals,
        written=totals.written + written_counts(files),
        listing=(totals.listing + listing) % HASHES,
    )
    return replace(verdict, totals=totals)


def verdict(totals: Totals, planned: PlannedWork) -> Verdict:
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
    problems += [*_named(doubled, "blocks"), *_named(uncovered, "files"), *_named(unread, "blocks")]
    return Verdict(totals, tuple(problems))


def _named(problems: Iterable[str], what: str) -> Iterator[str]:
    listed = list(problems)
    yield from listed[:_MOST_NAMED]
    if len(listed) > _MOST_NAMED:
        yield f"and {len(listed) - _MOST_NAMED} further {what}"
