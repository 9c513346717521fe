"""Runs `watch`: shows any run, on any runner, from the files in its output."""

import argparse
import sys
import time
from collections.abc import Iterator

import orjson
from rich.console import Console, Group
from rich.live import Live

from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.outputs.report_text import summary_lines
from bert_embed.pipeline.progress.metrics_file import MetricsFile, check_metrics_file
from bert_embed.pipeline.progress.shown import one_line
from bert_embed.pipeline.progress.snapshot import Snapshot, snapshot_of
from bert_embed.pipeline.progress.state import ENDED, WatchedRun
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import absolute


def run_watch(given: argparse.Namespace) -> int:
    """Runs `watch DIR`.

    Args:
        given: As `parse_watch` gives it.

    Returns:
        DONE when the run is, and after `--once` while it works; FAILED if it ended otherwise.

    Raises:
        UsageError: There is no run, or the metrics file cannot be written.
        StorageError: A store does not answer.
    """
    if given.metrics_file is not None:
        check_metrics_file(given.metrics_file)
    run = WatchedRun(absolute(given.output))
    last = _show(_snapshots(run, given), given.json, live=not given.once)
    if last.state == "done" and not given.json:
        say(*summary_lines(run.output, run.record))
    return ExitCode.FAILED if last.state in ENDED and last.state != "done" else ExitCode.DONE


def _show(snapshots: Iterator[Snapshot], as_json: bool, live: bool) -> Snapshot:
    """Prints each snapshot, on a terminal in place of the one before; returns the last."""
    snapshot = next(snapshots)
    if as_json or not live or not sys.stdout.isatty():
        say(*_printed(snapshot, as_json))
        for snapshot in snapshots:
            say(*_printed(snapshot, as_json))
        return snapshot
    with Live(_lines(snapshot), console=Console(), transient=True) as shown:
        for snapshot in snapshots:
            shown.update(_lines(snapshot))
    say(*snapshot.lines())
    return snapshot


def _lines(snapshot: Snapshot) -> Group:
    return Group(*map(one_line, snapshot.lines()))


def _printed(snapshot: Snapshot, as_json: bool) -> list[str]:
    return [orjson.dumps(snapshot.to_dict()).decode()] if as_json else list(snapshot.lines())


def _snapshots(run: WatchedRun, given: argparse.Namespace) -> Iterator[Snapshot]:
    """A snapshot each interval until the run has ended; one only with `--once`."""
    metrics = None if given.metrics_file is None else MetricsFile(given.metrics_file, run.output)
    while True:
        try:
            run.look()
        except StorageError as error:
            if given.once:
                raise
            warn(f"note: {hide_secrets(str(error))}; asking again in {given.interval:g} s")
        snapshot = snapshot_of(run)
        if metrics is not None:
            ended = snapshot.ended if snapshot.state == "done" else None
            metrics.write(run.tally, snapshot.view, snapshot.state, ended)
        yield snapshot
        if given.once or snapshot.state in ENDED:
            return
        time.sleep(given.interval)
