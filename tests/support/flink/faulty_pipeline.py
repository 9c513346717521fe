"""`bert-embed` with a model that fails in the way that $FAULTS says."""

import functools
import json
import os
import sys

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.run import graph
from tests.support.flink.handlers import Faults, FaultyHandler

if __name__ == "__main__":
    faults = Faults(**json.loads(os.environ["FAULTS"]))
    if "hang" in faults.words.values():
        graph.INFERENCE_TIMEOUT = 3.0
    graph.BlockModelHandler = functools.partial(FaultyHandler, faults)
    sys.exit(main())
