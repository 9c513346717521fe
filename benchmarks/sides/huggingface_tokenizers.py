"""Hugging Face `tokenizers` in the peers' environment, as a `benchmarks.measure.Child`.

A question has the numbers of the first and the last text and whether offsets are wanted; the
answer is the seconds of processor time and the number of tokens.
"""

import argparse
import os
import time
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from benchmarks.measure import answer_lines


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--call", type=int, required=True, help="texts a call")
    args = parser.parse_args()
    texts = Path(args.texts).read_text(encoding="utf-8").splitlines()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def answer(asked: tuple[int, int, bool]) -> tuple[float, int]:
        first, last, offsets = asked
        encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        start, tokens = time.process_time(), 0
        for at in range(first, last, args.call):
            for text in encode(texts[at : min(at + args.call, last)], add_special_tokens=False):
                tokens += len(text.ids)
                if offsets and len(text.offsets) != len(text.ids):
                    raise RuntimeError("a token without offsets")
        return time.process_time() - start, tokens

    answer_lines(answer)


if __name__ == "__main__":
    main()
