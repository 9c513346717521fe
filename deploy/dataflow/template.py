"""Starts `embed` with the parameters of a Flex Template."""

import sys
from functools import partial

from bert_embed.pipeline.cli import exit_code
from bert_embed.pipeline.commands.flex_template import run_template

if __name__ == "__main__":
    sys.exit(exit_code("embed", partial(run_template, sys.argv[1:])))
