"""Metrics: what Beam's monitoring shows of a run; the names are stable, dashboards hang on them.

They are counted from the report of each part once its files are written. A bundle that is repeated
counts again what it does again, so they are for watching; what is true stands in run.json.
"""

import re

from apache_beam.metrics import Metrics

from transforms.accounting import BlockReport

NAMESPACE = "bert_embed"
_COUNTED = (
    "records",
    "skipped",
    "truncated",
    "tokens",
    "computed_tokens",
    "padded_tokens",
    "batches",
    "compiled",
)


def count_report(report: BlockReport) -> None:
    """Adds a part to the counters, and its seconds to the distribution of block seconds."""
    counts = {name: getattr(report, name) for name in _COUNTED}
    counts |= {"parts": 1, "documents": report.embedded, "rejected": sum(report.rejected.values())}
    counts |= {reason_name(reason): count for reason, count in report.rejected.items()}
    for name, count in counts.items():
        Metrics.counter(NAMESPACE, name).inc(count)
    milliseconds = round(1000 * sum(report.seconds.values()))
    Metrics.distribution(NAMESPACE, "block_milliseconds").update(milliseconds)


def reason_name(reason: str) -> str:
    """The counter of a reason for which records are rejected.

    >>> reason_name("no tokens"), reason_name("model error: ZeroDivisionError")
    ('rejected_no_tokens', 'rejected_model_error_zerodivisionerror')
    """
    return "rejected_" + re.sub("[^a-z0-9]+", "_", reason.lower()).strip("_")
