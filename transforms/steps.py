"""What the Beam steps of a run share: their base, a coder for blocks, metrics, signs of life.

The metrics count the record of each part once its files are written, twice where a bundle is
retried: they are for watching. The exact counts are in run.json.
"""

import pickle
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from bert_embed.transforms.blocks import nbytes
from bert_embed.transforms.ledger import SUMMED, BlockRecord


class Step(beam.PTransform):
    """A transform whose settings are the fields of a dataclass."""

    def __post_init__(self) -> None:
        super().__init__()


class BlockCoder(beam.coders.Coder):
    """Pickles blocks, as Beam does by itself, but estimates their size without pickling them.

    Beam encodes every element to measure it, also between fused steps: for a block of vectors that
    took a tenth of the time around the model.
    """

    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Any:
        return pickle.loads(encoded)

    def estimate_size(self, value: Any) -> int:
        return nbytes(value)

    def is_deterministic(self) -> bool:
        return False


def passed_as_block(block: type) -> None:
    """Has Beam pass records of this type by `BlockCoder`, in pipelines that are built from now."""
    beam.coders.registry.register_coder(block, BlockCoder)


NAMESPACE = "bert_embed"
_OTHERWISE = ("embedded", "blank")  # counted as `documents` and by the reason


def count_block_record(record: BlockRecord) -> None:
    """Adds a part to the counters, and its seconds to the distribution of block seconds."""
    counts = {name: getattr(record, name) for name in SUMMED if name not in _OTHERWISE}
    _count({**counts, "parts": 1, "documents": record.embedded}, record.rejected)
    milliseconds = round(1000 * sum(record.seconds.values()))
    Metrics.distribution(NAMESPACE, "block_milliseconds").update(milliseconds)


def count_documents(embedded: int, truncated: int, rejected: Mapping[str, int]) -> None:
    """Adds a batch of another pipeline to the counters; `rejected` has how many by reason."""
    _count({"documents": embedded, "truncated": truncated}, rejected)


def _count(counts: Mapping[str, int], rejected: Mapping[str, int]) -> None:
    by_reason = {reason_name(reason): count for reason, count in rejected.items()}
    for name, count in {**counts, "rejected": sum(rejected.values()), **by_reason}.items():
        Metrics.counter(NAMESPACE, name).inc(count)


def reason_name(reason: str) -> str:
    """The name of the counter of records that are rejected for a reason."""
    return "rejected_" + re.sub("[^a-z0-9]+", "_", reason.lower()).strip("_")


_doing: list[str] = []  # of any thread; the one that began last says what people see
_lock = threading.Lock()  # of what follows


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Names what this process does, such as "loading the model", until the block ends."""
    _doing.append(name)
    try:
        yield
    finally:
        _doing.remove(name)


def current_activity() -> str | None:
    """What this process does now; None if nothing that has a name."""
    return _doing[-1] if _doing else None


@dataclass
class PartInWork:
    """A part that the model computes in this process, or that it has computed."""

    records: int
    covered: int  # bytes of its file, or rows
    share: float = 0.0  # of it that is computed


PartsInWork = dict[tuple[int, int], PartInWork]  # by their blocks' numbers and their own
_watching: list[PartsInWork] = []


@contextmanager
def watching_parts() -> Iterator[PartsInWork]:
    """Gives the parts that this process computes from now on; who reads them takes them out."""
    parts: PartsInWork = {}
    _watching.append(parts)
    try:
        yield parts
    finally:
        with _lock:
            _watching[:] = [others for others in _watching if others is not parts]


def computing(
    block: int, number: int, records: int, covered: int
) -> Callable[[float], None] | None:
    """What takes further shares of a part that are computed; None where nobody watches."""
    if not _watching:
        return None
    part = PartInWork(records, covered)
    with _lock:
        for parts in _watching:
            parts[block, number] = part

    def tell(share: float) -> None:
        with _lock:
            part.share += share

    return tell
