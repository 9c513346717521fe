"""Starts `embed` with the parameters of a Flex Template."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main(["embed", *sys.argv[1:]]))
