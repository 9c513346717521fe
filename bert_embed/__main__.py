"""Runs `bert-embed COMMAND`, also as `python -m bert_embed COMMAND`.

The latter imports what the current folder holds before any package of that name, unless it is
`python -P -m`; the command does not.
"""

import atexit
import gc
import os
import sys

from bert_embed.pipeline.errors import ExitCode

try:
    from bert_embed.pipeline.cli import main
    from bert_embed.pipeline.console import open_streams, settle_streams
except KeyboardInterrupt:  # the imports take some tenths of a second
    sys.exit(ExitCode.INTERRUPTED)


def run() -> None:
    """Ends the process with the command's exit code."""
    gc.disable()  # until a command's modules are there: nothing of what is imported is garbage
    open_streams()
    atexit.register(settle_streams)  # the first that is registered here runs last
    code = main()
    if code == ExitCode.INTERRUPTED:
        # The interpreter would wait for a worker thread in the middle of a block. Its files are
        # whole or absent, so the process can end now.
        settle_streams()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
