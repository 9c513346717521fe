"""Hugging Face `tokenizers` in the peers' environment, as a `benchmarks.measure.Child`.

A question has the numbers of the first and the last text and whether offsets are wanted; the
answer is the seconds of processor time and the number of tokens.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from benchmarks.measure import answer_lines


def counting(file: str) -> Callable[[Sequence[str], bool], int]:
    """Returns what counts the tokens of texts, and looks at their offsets where these are wanted.

    Raises:
        RuntimeError: A token has no offsets.
    """
    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def count(texts: Sequence[str], offsets: bool) -> int:
        encode, tokens = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast, 0
        for text in encode(list(texts), add_special_tokens=False):
            tokens += len(text.ids)
            if offsets and len(text.offsets) != len(text.ids):
                raise RuntimeError("a token without offsets")
        return tokens

    return count


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--call", type=int, required=True, help="texts a call")
    args = parser.parse_args()
    texts = Path(args.texts).read_text(encoding="utf-8").splitlines()
    count = counting(args.tokenizer)

    def answer(asked: tuple[int, int, bool]) -> tuple[float, int]:
        first, last, offsets = asked
        start = time.process_time()
        calls = range(first, last, args.call)
        tokens = sum(count(texts[at : min(at + args.call, last)], offsets) for at in calls)
        return time.process_time() - start, tokens

    answer_lines(answer)


if __name__ == "__main__":
    main()
