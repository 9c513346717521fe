"""Tokens a second on one core: ours, tensorflow_text.FastBertTokenizer, Hugging Face tokenizers.

`python -m benchmarks.tokenizer [--rounds 5]`. All sides get the same texts in the same calls of
2,000 Python strings, and end with flat NumPy ids (Hugging Face: with its own lists). A first run
over `--warm` texts is not counted, as a worker has read texts before; each round's texts are new
to all sides, so that nothing is looked up that was only just computed. Seconds are of processor
time. Ids of FastBertTokenizer and Hugging Face differ from the reference on some texts; ours do
not. English: docstrings of the pinned dependencies, as they are and with a tenth of the words
replaced by random letters; 96 languages: benchmarks/multilingual.py.
"""

import argparse
import random
import statistics
import string
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences, write_lines
from benchmarks.multilingual import multilingual_texts
from benchmarks.peers import minilm_folder, peer
from bert_embed.text.tokenizer import Tokenizer

OURS, FAST_BERT, HUGGING_FACE = "ours", "FastBertTokenizer", "Hugging Face tokenizers"
_CALL = 2000  # texts a call: the blocks of the pipeline hold thousands
_SEED = 20250803
_WORK = FOLDER / "tokenizer"

Side = Callable[[int, int, bool], tuple[float, int]]  # first, last text, offsets: seconds, tokens


def main() -> None:
    """Measures all sides in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=20_000, help="texts before the first round")
    parser.add_argument("--texts", type=int, default=8_000, help="texts of a round")
    args = parser.parse_args()
    measure.one_core()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    count = args.warm + args.rounds * args.texts
    results: dict[str, dict[str, dict[str, float]]] = {}
    for data, texts in {
        "English": english_sentences(count),
        "a tenth unseen": with_unseen_words(english_sentences(count)),
        "96 languages": multilingual_texts(count),
    }.items():
        path = write_lines(_WORK / f"{data.replace(' ', '-')}.txt", texts)
        for offsets in (False, True):
            name = f"{data}, {'offsets' if offsets else 'ids'}"
            results[name] = measured(make_sides(texts, path), args, offsets)
    record = {
        "benchmark": "tokenizer",
        "data": f"{args.rounds} rounds of {args.texts} new texts each, after {args.warm} others",
        "results": results,
    }
    header = ["texts", "side", "M tokens/s", "spread", "ours is"]
    rows = [_row(name, side, f) for name, sides in results.items() for side, f in sides.items()]
    measure.report(record, header, rows)


def with_unseen_words(texts: Sequence[str]) -> list[str]:
    """Returns texts in which every tenth word, about, is one of 3 to 12 random letters."""
    draw = random.Random(_SEED)

    def word() -> str:
        return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(3, 12)))

    return [
        " ".join(word() if draw.random() < 0.1 else known for known in text.split(" "))
        for text in texts
    ]


def _row(name: str, side: str, result: dict[str, float]) -> list[str]:
    rate, spread = f"{result['tokens_per_second'] / 1e6:.2f}", f"{result['spread']:.2f}"
    return [name, side, rate, spread, f"{result['ours_is']:.2f} x"]


def measured(
    sides: dict[str, Side], args: argparse.Namespace, offsets: bool
) -> dict[str, dict[str, float]]:
    """Returns the figures of each side; a rate is our number of tokens over the side's seconds."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work(0, args.warm, offsets)
    for turn in range(args.rounds):
        first = args.warm + turn * args.texts
        spent = {name: work(first, first + args.texts, offsets) for name, work in sides.items()}
        tokens = spent[OURS][1]
        for name, (seconds, _) in spent.items():
            rates[name].append(tokens / seconds)
        print(f"round {turn + 1} of {args.rounds}", flush=True)
    ours = statistics.median(rates[OURS])
    return {
        name: {
            "tokens_per_second": round(statistics.median(values)),
            "spread": round(max(values) / min(values), 3),
            "ours_is": round(ours / statistics.median(values), 3),
        }
        for name, values in rates.items()
    }


def make_sides(texts: Sequence[str], path: Path) -> dict[str, Side]:
    """Returns what each side does with a part of the texts (in `path` too), with empty caches."""
    vocab = minilm_folder() / "vocab.txt"
    return {
        OURS: _ours(texts, vocab),
        FAST_BERT: _fast_bert(texts, vocab),
        HUGGING_FACE: _hugging_face(path),
    }


def _ours(texts: Sequence[str], vocab: Path) -> Side:
    tokenizer = Tokenizer(vocab)

    def call(part: Sequence[str], offsets: bool) -> np.ndarray:
        return (
            tokenizer.encode_with_offsets(part).ids if offsets else tokenizer.encode_flat(part)[0]
        )

    return _timed(texts, call)


def _fast_bert(texts: Sequence[str], vocab: Path) -> Side:
    entries = vocab.read_text(encoding="utf-8").split()
    tokenizer = tf_text.FastBertTokenizer(
        entries, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )

    def call(part: Sequence[str], offsets: bool) -> np.ndarray:
        if not offsets:
            return tokenizer.tokenize(tf.constant(part)).flat_values.numpy()
        ids, starts, stops = tokenizer.tokenize_with_offsets(tf.constant(part))
        starts.flat_values.numpy(), stops.flat_values.numpy()
        return ids.flat_values.numpy()

    return _timed(texts, call)


def _timed(texts: Sequence[str], call: Callable[[Sequence[str], bool], np.ndarray]) -> Side:
    def work(first: int, last: int, offsets: bool) -> tuple[float, int]:
        start = time.process_time()
        calls = range(first, last, _CALL)
        tokens = sum(len(call(texts[at : min(at + _CALL, last)], offsets)) for at in calls)
        return time.process_time() - start, tokens

    return work


def _hugging_face(path: Path) -> Side:
    tokenizer = minilm_folder() / "tokenizer.json"
    flags = ("--texts", path, "--tokenizer", tokenizer, "--call", _CALL)
    child = peer("huggingface_tokenizers", *flags)
    return lambda first, last, offsets: child.ask([first, last, offsets])


if __name__ == "__main__":
    main()
