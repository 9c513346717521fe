"""Shows how far a job of `cluster` or `dedup` is, from the files that it finished."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bert_embed.pipeline.clusters.prepare import ClusterRun
from bert_embed.pipeline.console import warn
from bert_embed.storage.files import is_remote
from bert_embed.storage.plurals import counted

_SECONDS = 30.0


@contextmanager
def shown_progress(run: ClusterRun) -> Iterator[None]:
    """Prints a line every half minute for a local output; a cluster shows its own progress."""
    if is_remote(run.job.output):
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(run, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(run: ClusterRun, stop: threading.Event) -> None:
    while not stop.wait(_SECONDS):
        done = run.job.folder.progress()
        files = len(run.files)
        warn(
            f"sampled {done.sampled:,}, clustered {done.assigned:,} of {counted(files, 'file')}; "
            f"{counted(done.searched, 'range')} of clusters searched"
        )
