"""python -m pipeline COMMAND …, also installed as bert-embed."""

import os
import sys

from pipeline.cli import INTERRUPTED, main


def run() -> None:
    """Ends the process with the command's exit code."""
    code = main()
    if code == INTERRUPTED:
        # A worker thread in the middle of a block would be waited for; its files are whole or
        # not there, so it can be left.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
