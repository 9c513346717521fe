"""Counts what Beam's monitoring shows of a run; dashboards rely on the names, which are stable.

The record of each part is counted once its files are written, twice where a bundle is retried: for
watching. The exact counts are in run.json.
"""

import re
from collections.abc import Mapping

from apache_beam.metrics import Metrics

from bert_embed.transforms.records.block_record import SUMMED, BlockRecord

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
