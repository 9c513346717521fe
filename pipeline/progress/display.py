"""Shows how far the job is that this command started, again and again until it ends."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bert_embed.notebook import cell_line, in_notebook
from bert_embed.pipeline.console import is_terminal, visible
from bert_embed.pipeline.progress.counts import Counts
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote
from bert_embed.transforms.crash_markers import read_markers
from bert_embed.transforms.steps import current_activity, watching_parts

_logger = logging.getLogger(__name__)
_LIVE_SECONDS, _FIRST_SECONDS, _LOG_SECONDS = 0.5, 2.0, 30.0
_REMOTE_SECONDS = 10.0  # a store is listed at each look
_LOOKING = 50  # pauses last so many times longer than looks: 100,000 blocks are listed in a second


@contextmanager
def progress_of_run(counts: Counts, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Shows how far a run is, from its block records: a runner returns only at the end."""
    is_begun = False

    def line(stopped: Callable[[], bool]) -> str:
        nonlocal is_begun
        with suppress(OSError, InputError):  # the next look may find the store again
            counts.look(stopped)
            if not is_begun and not counts.latest:
                # Once is enough: each look at a store reads the markers of all workers.
                is_begun = bool(read_markers(counts.output, counts.run, {}))
        return str(counts.progress(current_activity() or counts.phase(is_begun, "starting")))

    with watching_parts() as counts.in_work, shown_progress(counts.output, line, tell):
        yield


@contextmanager
def shown_progress(
    output: str,
    line: Callable[[Callable[[], bool]], str],
    tell: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Shows the progress of the job with the folder `output`, until the context ends.

    `line` takes what says whether to stop, and returns a line, for `tell`; None shows them in place
    on a terminal and in a notebook, else logs them.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(output, line, tell, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(
    output: str,
    line: Callable[[Callable[[], bool]], str],
    tell: Callable[[str], None] | None,
    stop: threading.Event,
) -> None:
    looked = 0.0
    with _display(output, tell) as (show, pause, longest):
        while not stop.wait(max(pause, _LOOKING * looked)):
            started = time.monotonic()
            text = line(stop.is_set)
            looked = time.monotonic() - started
            show(text)
            pause = min(1.5 * pause, longest)


@contextmanager
def _display(
    output: str, tell: Callable[[str], None] | None
) -> Iterator[tuple[Callable[[str], object], float, float]]:
    """What takes the lines, and the first and the longest pause between them."""
    least = _REMOTE_SECONDS if is_remote(output) else _LIVE_SECONDS
    if tell is not None:
        yield tell, _FIRST_SECONDS, _LOG_SECONDS
    elif in_notebook():
        show = cell_line()
        yield (lambda line: show(visible(line))), least, least
    elif not is_terminal(sys.stderr):
        yield (lambda line: _logger.warning("%s", line)), _LOG_SECONDS, _LOG_SECONDS
    else:
        with Live(Text(""), console=Console(stderr=True), transient=True) as live:
            yield (lambda line: live.update(one_line(line))), least, least


def one_line(line: str) -> Text:
    """A line for a terminal, cut where it is too long."""
    return Text(visible(line), no_wrap=True, overflow="ellipsis")
