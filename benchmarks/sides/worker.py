"""A worker with our encoder: a word in, a JSON line out.

`warm OUTPUT` and `run OUTPUT` embed its share of the lines, `sentence` or `token` vectors, and
answer when that began and ended, on the clock that all processes share; `memory` answers with the
bytes that the process holds.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.sides.our_encoder import load_ours

_BLOCK = 1000  # texts whose vectors are held at once, as in a block of the pipeline


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--share", required=True, help="number/all")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", required=True)
    args = parser.parse_args()
    number, processes = map(int, args.share.split("/"))
    texts = args.input.read_text(encoding="utf-8").splitlines()[number::processes]
    encoder = load_ours(args.precision, args.threads)
    tokens = len(encoder.tokenizer.encode_flat(texts)[0]) + 2 * len(texts)
    calls = {"sentence": encoder.encode, "token": encoder.encode_tokens}
    for line in sys.stdin:
        word, _, output = line.strip().partition(" ")
        if word == "memory":
            print(json.dumps(held()), flush=True)
            continue
        start = time.monotonic()
        for at in range(0, len(texts), _BLOCK):
            calls[output](texts[at : at + _BLOCK])
        taken = {"start": start, "stop": time.monotonic(), "tokens": tokens}
        print(json.dumps(taken), flush=True)


def held() -> dict[str, int]:
    """Returns the bytes of PSS and RSS of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return {"pss": sizes["Pss"], "rss": sizes["Rss"]}


if __name__ == "__main__":
    main()
