"""python -m pipeline COMMAND …, also installed as bert-embed."""

import os
import sys

from pipeline.cli import DONE, INTERRUPTED, main


def run() -> None:
    """Ends the process with the command's exit code."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output (head, say) has seen enough; the interpreter must not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    if code == INTERRUPTED:
        # A worker thread in the middle of a block would be waited for; its files are whole or
        # not there, so it can be left.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
