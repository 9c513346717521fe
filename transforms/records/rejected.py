"""Defines Rejected, a record without a vector, with its place and the reason."""

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

_MOST_RECORD_BYTES = 1 << 20  # a longer record is cut in the output; its place finds it again

# A blank line of plain text is more often layout than a lost document: it is rejected and counted
# like every record, but does not count towards --max_rejected.
BLANK_LINE = "empty text"
BLOCK_SKIPPED = "block skipped on request"  # because it crashed or hung its workers


class BadRecordError(Exception):
    """A record gives no document; the message is the reason, `detail` what is wrong where in it."""

    def __init__(self, reason: str, detail: object = None) -> None:
        super().__init__(reason)
        self.detail = None if detail is None else str(detail)


@dataclass(frozen=True)
class Rejected:
    """A record without a vector."""

    id: str | None
    source: str  # `<file>:<byte offset>`
    stage: str  # that rejected it: `read`, `tokenize`, `infer`
    reason: str  # short fixed phrase that can be counted
    record: str | bytes | None = None  # text or raw bytes, if the stage still has it
    blank: bool = False  # a blank line of a text file
    detail: str | None = None  # what is wrong and where in the record, without its text


def rejected_lines(rejected: Iterable[Rejected]) -> bytes:
    """JSON lines of the file of rejected records, in the records' order."""
    lines = []
    for rejection in rejected:
        row = {
            "id": rejection.id,
            "source": rejection.source,
            "stage": rejection.stage,
            "reason": rejection.reason,
        }
        if rejection.detail is not None:
            row["detail"] = rejection.detail
        lines.append(orjson.dumps(row | {"record": _record(rejection.record)}) + b"\n")
    return b"".join(lines)


def _record(record: str | bytes | None) -> str | dict[str, str] | None:
    if isinstance(record, bytes):
        return {"base64": base64.b64encode(record[:_MOST_RECORD_BYTES]).decode("ascii")}
    return None if record is None else record[:_MOST_RECORD_BYTES]


def count_reasons(rejected: Iterable[Rejected]) -> dict[str, int]:
    """How many records were rejected for each reason, sorted by reason."""
    return dict(sorted(Counter(rejection.reason for rejection in rejected).items()))
