"""Runs `bert-embed COMMAND`, also as `python -m bert_embed COMMAND`."""

import os
import sys

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.errors import ExitCode


def run() -> None:
    """Ends the process with the command's exit code."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output, such as head, closed it; the interpreter must not write again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.DONE
    if code == ExitCode.INTERRUPTED:
        # The interpreter would wait for a worker thread in the middle of a block. Its files are
        # whole or absent, so the process can end now. That thread may have marked its block since
        # the run's markers were removed; a process that has not loaded markers has no such thread.
        if markers := sys.modules.get("bert_embed.transforms.crash_markers"):
            markers.end_markers()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
