"""Tells OpenLineage what a job reads and writes: events in a file, or to a server.

The events are those of https://openlineage.io/spec/2-0-2/OpenLineage.json, the datasets have the
names of its naming conventions. An attempt at a job is a run of its own, as the standard asks for
one START and one end of each: its id follows from run.json, so that the same command, or one that
finds the job complete, sends the same events.
"""

import http.client
import os
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from bert_embed.pipeline.console import hide_in, hide_secrets
from bert_embed.results.run_record import JobRecord, now
from bert_embed.storage.file_info import fixed_folder, is_glob
from bert_embed.storage.files import absolute, is_remote
from bert_embed.transforms.bigquery.client import looks_like_table, table_name
from bert_embed.version import __version__

_SPEC = "https://openlineage.io/spec"
_PRODUCER = f"pkg:generic/bert-embed@{__version__}"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
# The version of each facet, and the name of its definition.
_FACETS = {
    "dataSource": ("1-0-1", "DatasourceDatasetFacet"),
    "errorMessage": ("1-0-1", "ErrorMessageRunFacet"),
    "inputStatistics": ("1-0-0", "InputStatisticsInputDatasetFacet"),
    "jobType": ("2-0-4", "JobTypeJobFacet"),
    "outputStatistics": ("1-0-2", "OutputStatisticsOutputDatasetFacet"),
    "processing_engine": ("1-1-1", "ProcessingEngineRunFacet"),
    "schema": ("1-2-0", "SchemaDatasetFacet"),
    "sql": ("1-1-0", "SQLJobFacet"),
    "tags": ("1-0-0", "TagsRunFacet"),
}
_PATIENCE = 5.0  # seconds for an event, looking up the server's name included
_PATH = "/api/v1/lineage"  # where servers take events, as the standard's own clients believe

Kind = Literal["START", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True)
class Dataset:
    """What a job reads or writes: a folder, file, address or BigQuery table."""

    place: str  # a path, address, glob, or the name of a table
    rows: int | None = None  # this and the next two: None where nobody knows
    bytes: int | None = None
    files: int | None = None
    fields: dict[str, str] | None = None  # the types of its columns by name, as far as known

    @property
    def name(self) -> tuple[str, str]:
        """Its namespace and name, as the standard spells them.

        >>> Dataset("gs://bucket/texts/2026/*.txt").name
        ('gs://bucket', 'texts/2026')
        >>> Dataset("project:dataset.table$20261126").name, Dataset("/data/in.csv").name
        (('bigquery', 'project.dataset.table'), ('file', '/data/in.csv'))
        """
        if looks_like_table(self.place):
            return "bigquery", table_name(self.place, "input").path
        place = hide_secrets(self.place)
        if is_glob(place) and not os.path.exists(place):
            place = fixed_folder(place)
        if not is_remote(place):
            return "file", absolute(place)
        scheme, _, rest = place.partition("://")
        bucket, _, key = rest.partition("/")
        return f"{scheme}://{bucket}", key.rstrip("/") or "/"

    def described(self, is_output: bool) -> dict[str, Any]:
        """The dataset of an event."""
        namespace, name = self.name
        uri = namespace
        if not is_remote(namespace):
            uri = Path(name).as_uri() if namespace == "file" else f"{namespace}:{name}"
        facets = _facets("dataSource", name=namespace, uri=uri)
        if self.fields:
            columns = [{"name": name, "type": kind} for name, kind in self.fields.items()]
            facets |= _facets("schema", fields=columns)
        numbers = {"rowCount": self.rows, "size": self.bytes, "fileCount": self.files}
        numbers = {name: number for name, number in numbers.items() if number is not None}
        which = "output" if is_output else "input"
        statistics = _facets(f"{which}Statistics", **numbers) if numbers else {}
        return {
            "namespace": namespace,
            "name": name,
            "facets": facets,
            f"{which}Facets": statistics,
        }


@dataclass(frozen=True)
class Datasets:
    """What a job reads and writes, and the query that selects it, if it is one."""

    inputs: Sequence[Dataset]
    outputs: Sequence[Dataset]
    query: str | None = None


def fields_of(schema: pa.Schema) -> dict[str, str]:
    """The types of Arrow's columns, as a dataset has them."""
    return {field.name: str(field.type) for field in schema}


class Events:
    """Sends the events of an attempt at a job, if somebody wants them.

    Attributes:
        problem: Why an event could not be delivered; None as long as all were.
    """

    def __init__(
        self,
        place: str | None,
        job: tuple[str, str],
        runner: str,
        datasets: Callable[[Any], Datasets],
    ) -> None:
        """`job` is the command and its output; `datasets` describes a record of it."""
        self._place, self._runner, self._datasets = place, runner, datasets
        self._command, self._output = job
        self.problem: str | None = None

    def send(self, kind: Kind, record: JobRecord, error: str | None = None) -> None:
        """Sends an event; what prevents it is a problem, not an error."""
        if self._place is None:
            return
        send = _post if is_remote(self._place) else _append
        try:
            reason = send(self._place, self._event(kind, record, self._datasets(record), error))
        except (OSError, ValueError) as reading:  # an output that changed meanwhile
            reason = str(reading)
        if reason is not None and self.problem is None:
            place = hide_secrets(self._place)
            self.problem = f"{kind} was not delivered to {place}: {hide_secrets(reason)}"

    def _event(
        self, kind: Kind, record: JobRecord, datasets: Datasets, error: str | None
    ) -> dict[str, Any]:
        is_start = kind == "START"
        run = uuid.uuid5(uuid.NAMESPACE_URL, f"{record.run} {self._output} {record.started}")
        facets = _facets(
            "processing_engine",
            name=f"Apache Beam, {self._runner}",
            version=record.versions.get("apache-beam", "unknown"),
            openlineageAdapterVersion=__version__,
        )
        tag = {"key": "fingerprint", "value": record.run, "source": "bert-embed"}
        facets |= _facets("tags", tags=[tag])
        if error is not None:
            facets |= _facets("errorMessage", message=error, programmingLanguage="PYTHON")
        job = _facets("jobType", processingType="BATCH", integration="BEAM", jobType="JOB")
        if datasets.query is not None:
            job |= _facets("sql", query=hide_secrets(datasets.query), dialect="bigquery")
        return {
            "eventType": kind,
            "eventTime": record.started if is_start else record.ended or now(),
            "run": {"runId": str(run), "facets": facets},
            "job": {
                "namespace": os.environ.get("OPENLINEAGE_NAMESPACE") or "bert-embed",
                "name": f"{self._command} {hide_in(self._output)}",
                "facets": job,
            },
            "inputs": [one.described(is_output=False) for one in _different(datasets.inputs)],
            "outputs": [one.described(is_output=True) for one in _different(datasets.outputs)],
            "producer": _PRODUCER,
            "schemaURL": _EVENT,
        }


def _different(datasets: Sequence[Dataset]) -> Iterator[Dataset]:
    """The datasets, each name once: `a/*.txt` and `a/*.csv` are one."""
    names: set[tuple[str, str]] = set()
    for one in datasets:
        if one.name not in names:
            names.add(one.name)
            yield one


def _facets(facet: str, /, **values: Any) -> dict[str, dict[str, Any]]:
    version, definition = _FACETS[facet]
    url = f"{_SPEC}/facets/{version}/{definition}.json#/$defs/{definition}"
    return {facet: {"_producer": _PRODUCER, "_schemaURL": url, **values}}


def _append(place: str, event: dict[str, Any]) -> str | None:
    """Appends an event, unless it is there; returns why it cannot."""
    line = orjson.dumps(event)
    try:
        with open(absolute(place), "ab+") as file:
            if os.path.isfile(file.name):
                file.seek(0)
                if any(_is_same(present, event) for present in file):
                    return None
                if os.pread(file.fileno(), 1, max(file.tell() - 1, 0)) not in (b"", b"\n"):
                    line = b"\n" + line  # that of a writer that was killed ends here
            file.write(line + b"\n")
    except OSError as error:
        return error.strerror or str(error)
    return None


def _is_same(line: bytes, event: dict[str, Any]) -> bool:
    """Whether a line is an event of the same moment of the same run."""
    if event["run"]["runId"].encode() not in line:
        return False
    try:
        present = orjson.loads(line)
    except ValueError:  # of a writer that was killed
        return False
    return all(present.get(key) == event[key] for key in ("eventType", "eventTime"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET, which delivers nothing."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def _post(place: str, event: dict[str, Any]) -> str | None:
    """Posts an event; returns why it was not taken. A server that is slow costs some seconds."""
    if urlsplit(place).path in ("", "/"):
        place = urlsplit(place)._replace(path=_PATH).geturl()
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(place, orjson.dumps(event), headers, method="POST")
    reasons = ["it does not answer"]

    def deliver() -> None:
        try:
            opener = urllib.request.build_opener(_NoRedirects())
            with opener.open(request, timeout=_PATIENCE):
                reasons.clear()
        except urllib.error.HTTPError as error:
            reasons[:] = [f"it answers {error.code}"]
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            reasons[:] = [str(getattr(why, "strerror", None) or why)]

    # In a thread, as no timeout ends the look-up of a name, or an answer that comes in drops.
    sender = threading.Thread(target=deliver, daemon=True)
    sender.start()
    sender.join(_PATIENCE)
    return next(iter(list(reasons)), None)
