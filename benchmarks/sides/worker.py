"""A worker with our encoder, as a `benchmarks.measure.Child`.

`{"embed": OUTPUT}` embeds its share of the lines, `sentence` or `token` vectors, and answers when
that began and ended, on the clock that all processes share, and with its processor time;
`{"memory": []}` answers with the bytes that the process holds.
"""

import argparse
import time
from pathlib import Path

from benchmarks.measure import answer_lines
from benchmarks.sides.engine import held
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder

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
    encoder = Encoder(resolve_model("minilm"), threads=args.threads, precision=args.precision)
    tokens = len(encoder.tokenizer.encode_flat(texts)[0]) + 2 * len(texts)
    calls = {"sentence": encoder.encode, "token": encoder.units}

    def answer(asked: dict[str, str]) -> dict[str, float]:
        if "memory" in asked:
            return held()
        start, cpu = time.monotonic(), time.process_time()
        for at in range(0, len(texts), _BLOCK):
            calls[asked["embed"]](texts[at : at + _BLOCK])
        spent = {"start": start, "stop": time.monotonic(), "cpu": time.process_time() - cpu}
        return {**spent, "tokens": tokens}

    answer_lines(answer)


if __name__ == "__main__":
    main()
