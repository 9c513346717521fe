"""Our pipeline with a model that costs nothing, and what of its processor time each room takes."""

import argparse
import functools
import json
import pkgutil
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.sides.null_blocks import BATCH_TOKENS, embed
from pipeline.options import EmbedOptions

# What is timed, by the name that the table gives it; a piece of a room is named after the room.
ROOMS = {
    "read": "transforms.sources:document_blocks",
    "read: lines to texts": "transforms.sources.text:line_texts",
    "read: ids": "transforms.sources.text:positions",
    "tokenize": "transforms.tokenization:token_block",
    "tokenize: texts to tokens": "bert.documents:tokenize_documents",
    "tokenize: tokens to rows": "bert.layout:lay_out",
    "tokenize: equal rows": "transforms.tokenization:distinct_rows",
    "tokenize: hashes of texts": "transforms.tokenization:text_hashes",
    "infer": "transforms.inference:BertModelHandler.run_inference",
    "write": "transforms.sinks:write_block",
    "write: Parquet": "polars:DataFrame.write_parquet",
    "write: to the disk": "os:fsync",
}


def main() -> None:
    """Runs `embed` and prints a JSON line: the seconds of each room, the most bytes of memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--dim", type=int)
    args = parser.parse_args()
    seconds: Counter[str] = Counter()
    for name, place in ROOMS.items():
        module, _, path = place.partition(":")
        above, _, last = path.rpartition(".")
        owner = pkgutil.resolve_name(f"{module}:{above}")
        setattr(owner, last, timed(getattr(owner, last), name, seconds))
    embed(
        EmbedOptions(
            input=(args.input,),
            output=args.output,
            dim=args.dim,
            batch_tokens=BATCH_TOKENS,
            overwrite=True,
        )
    )
    seconds["everything"] = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(seconds | {"peak": peak}))


def timed(function: Callable[..., Any], name: str, seconds: Counter[str]) -> Callable[..., Any]:
    """The function, adding what it takes to `seconds`; what it yields, where it is a generator.

    When the first one is called, start-up is over.
    """

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        seconds.setdefault("start-up", started)
        try:
            result = function(*args, **kwargs)
        finally:
            seconds[name] += time.process_time() - started
        return each(result) if isinstance(result, Iterator) else result

    def each(results: Iterator[Any]) -> Iterator[Any]:
        while True:
            started = time.process_time()
            try:
                result = next(results)
            except StopIteration:
                return
            finally:
                seconds[name] += time.process_time() - started
            yield result

    return measured


if __name__ == "__main__":
    main()
