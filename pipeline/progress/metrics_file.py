"""Keeps how far a run is in a file that Prometheus' node_exporter collects."""

import datetime
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Metric, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.progress.tally import Tally
from bert_embed.pipeline.progress.view import View
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.files import absolute, check_writable, read_bytes

STATES = ("running", "done", "failed", "interrupted", "dead", "stalled")
_PREFIX = "bert_embed"
_SUCCESS = f"{_PREFIX}_last_success_time_seconds"
_LAST_SUCCESS = re.compile(rf"^{_SUCCESS}\{{.*\}} (\S+)$", re.MULTILINE)
_logger = logging.getLogger(__name__)


def check_metrics_file(path: str) -> None:
    """Raises UsageError if a metrics file cannot be written there, or would not be collected."""
    if "://" in path:
        raise UsageError(f"--metrics_file must be a local file, got {path}")
    if not path.endswith(".prom"):
        raise UsageError(
            f"--metrics_file must end with .prom, node_exporter reads no other file, got {path}"
        )
    folder = absolute(path).rpartition("/")[0] or "/"
    try:
        check_writable(folder)
    except OSError as error:
        raise UsageError(
            f"--metrics_file {path} cannot be written: {error.strerror or error}"
        ) from error


class MetricsFile:
    """The metrics of one run; each write replaces the file as a whole."""

    def __init__(self, path: str, output: str) -> None:
        """Takes over when a run last succeeded from the file that is there.

        Args:
            path: Local, ending with .prom.
            output: Folder of the run, the label of all metrics.
        """
        self._path, self._output = absolute(path), hide_secrets(output)
        self._success = 0.0
        with suppress(OSError, ValueError):
            found = _LAST_SUCCESS.search((read_bytes(self._path) or b"").decode())
            self._success = float(found[1]) if found else 0.0
        self._warned = False

    def write(self, tally: Tally, view: View, state: str, ended: str | None = None) -> None:
        """Writes the metrics; a file that cannot be written is logged once.

        Args:
            tally: The reports.
            view: How far the run is by these.
            state: One of `STATES`.
            ended: When the run was complete, as in its record.
        """
        if ended is not None:
            self._success = datetime.datetime.fromisoformat(ended).timestamp()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Metrics(list(self._metrics(tally, view, state))))
        try:
            write_to_textfile(self._path, registry)
        except OSError as error:
            if not self._warned:
                _logger.warning("--metrics_file %s cannot be written: %s", self._path, error)
            self._warned = True

    def _metrics(self, tally: Tally, view: View, state: str) -> Iterator[Metric]:
        yield self._counter("records", "Records read.", view.records)
        yield self._counter("documents", "Documents with a vector.", view.documents)
        yield self._counter("skipped", "Documents that an earlier output has.", view.skipped)
        yield self._counter("tokens", "Tokens of the documents.", view.tokens)
        computed, padded = tally.counts["computed_tokens"], tally.counts["padded_tokens"]
        yield self._counter("computed_tokens", "Tokens that the model computed.", computed)
        yield self._counter("padded_tokens", "The same with padding.", padded)
        yield self._labelled("rejected", "Rejected records.", "reason", view.rejected)
        seconds = {stage: round(spent, 3) for stage, spent in tally.seconds.items()}
        yield self._labelled("stage_seconds", "Seconds in a stage, all workers.", "stage", seconds)
        yield self._gauge("blocks_done", "Blocks that are finished.", view.blocks_done)
        yield self._gauge("blocks", "Blocks of the plan.", view.blocks)
        yield self._gauge("progress_ratio", "Share of the work that is done.", view.share)
        yield self._gauge(
            "tokens_per_second", "Tokens a second lately.", view.tokens_per_second_lately
        )
        yield self._gauge("start_time_seconds", "When the attempt began.", tally.began)
        yield self._gauge("update_time_seconds", "When this file was written.", time.time())
        if self._success:
            yield self._gauge(
                "last_success_time_seconds", "When a run last was complete.", self._success
            )
        states = GaugeMetricFamily(
            f"{_PREFIX}_run_state", "1 for the state of the run.", labels=["output", "state"]
        )
        for each in STATES:
            states.add_metric([self._output, each], float(each == state))
        yield states

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        metric = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=["output"])
        metric.add_metric([self._output], value)
        return metric

    def _counter(self, name: str, text: str, value: float) -> Metric:
        metric = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["output"])
        metric.add_metric([self._output], value)
        return metric

    def _labelled(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        metric = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["output", label])
        for key, value in values.items():
            metric.add_metric([self._output, key], value)
        return metric


class _Metrics(Collector):
    """Gives metrics that are computed already to a registry."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._listed = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._listed
