"""The program of the Flex Template: the launcher's parameters in, the job's description out."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main(["embed", *sys.argv[1:]]))
