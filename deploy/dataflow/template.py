"""Starts `embed` with the parameters of a Flex Template."""

import sys

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.commands.flex_template import template_arguments

if __name__ == "__main__":
    sys.exit(main(["embed", *template_arguments(sys.argv[1:])]))
