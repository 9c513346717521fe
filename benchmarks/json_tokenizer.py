"""Tokens a CPU second of `JsonTokenizer`, beside the library that it calls, and its share of a run.

`python -m benchmarks.json_tokenizer [--rounds 3]`. Both sides use the same version of `tokenizers`
on one core and get the same calls of 2,000 texts; the library's ends with its own lists of ids
(and offsets), ours with flat NumPy arrays, words and white space counted. The vocabularies of
byte-level BPE and Unigram have 30,000 entries and are trained on the texts; WordPiece's is that of
MiniLM, read as if it were not BERT's. The share is that of the seconds of tokenizing in a whole run
of `embed`, of a random encoder with the shape of multilingual-e5-small. The load of the machine at
the start is in the record: seconds are of processor time, which other processes change little.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer, pre_tokenizers

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences
from benchmarks.peers import minilm_folder
from bert_embed.pipeline.cli import main as command_line
from bert_embed.text.json_tokenizer import JsonTokenizer
from tests.support.models.json_tokenizers import byte_level, unigram
from tests.support.models.tiny import write_tiny_huggingface

_CALL = 2000
_ENTRIES = 30_000
_RUN_TEXTS = 1000


def main() -> None:
    """Measures the sides in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=8_000, help="texts of a round")
    args = parser.parse_args()
    measure.one_core()
    load = os.getloadavg()[0]
    texts = english_sentences((args.rounds + 1) * args.texts)
    results = {}
    table = []
    for name, file in tokenizer_files(texts).items():
        share = _share(file, texts[:_RUN_TEXTS]) if name == "Unigram" else None
        for offsets in (False, True):
            sides = {"ours": _ours(file, offsets), "library": _library(file, offsets)}
            found = _measured(sides, texts, args.rounds, args.texts)
            what = f"{name}, {'offsets' if offsets else 'ids'}"
            results[what] = found | ({"share_of_run": share} if share else {})
            rates = [f"{found[side][0] / 1e6:.2f}" for side in sides]
            spreads = [f"{found[side][1]:.2f}" for side in sides]
            ratio = f"{found['ours'][0] / found['library'][0]:.2f} x"
            shown = f"{100 * share:.2f}%" if share and not offsets else ""
            table.append([what, rates[0], spreads[0], rates[1], spreads[1], ratio, shown])
    record = {
        "benchmark": "json_tokenizer",
        "data": f"{args.rounds} rounds of {args.texts} new sentences, after as many others",
        "load": round(load, 2),
        "tokenizers": tokenizers.__version__,
        "results": results,
    }
    header = ["pieces", "ours, M tokens/s", "spread", "library, M tokens/s", "spread", "ours is"]
    measure.report(record, [*header, "share of a run"], table)


def _measured(
    sides: dict[str, Callable[[Sequence[str]], int]], texts: Sequence[str], rounds: int, size: int
) -> dict[str, tuple[float, float]]:
    """Returns median and spread of each side's tokens a CPU second; the first round warms up."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, work in sides.items():
            start = time.process_time()
            tokens = sum(map(work, _calls(texts[turn * size : (turn + 1) * size])))
            if turn:
                rates[name].append(tokens / (time.process_time() - start))
    return {
        name: (statistics.median(found), max(found) / min(found)) for name, found in rates.items()
    }


def _calls(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[at : at + _CALL] for at in range(0, len(texts), _CALL))


def _ours(file: Path, offsets: bool) -> Callable[[Sequence[str]], int]:
    tokenizer = JsonTokenizer(file.read_text("utf-8"))
    return lambda texts: len(tokenizer.tokenize_texts(texts, offsets).ids)


def _library(file: Path, offsets: bool) -> Callable[[Sequence[str]], int]:
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast

    def work(texts: Sequence[str]) -> int:
        tokens = 0
        for encoded in encode(list(texts), add_special_tokens=False):
            tokens += len(encoded.ids)
            if offsets and len(encoded.offsets) != len(encoded.ids):
                raise RuntimeError("a token without offsets")
        return tokens

    return work


def tokenizer_files(texts: Sequence[str]) -> dict[str, Path]:
    """Returns the tokenizer.json of each kind; those that are trained are trained once."""
    folder = FOLDER / "json_tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.json" for name in ("Unigram", "BPE")}
    metaspace = pre_tokenizers.Metaspace()
    trained = {
        "Unigram": lambda: unigram(texts, _ENTRIES, metaspace),
        "BPE": lambda: byte_level(texts, _ENTRIES),
    }
    for name, file in files.items():
        if not file.exists():
            trained[name]().save(str(file))
    return files | {"WordPiece": minilm_folder() / "tokenizer.json"}


def _share(file: Path, texts: Sequence[str]) -> float:
    """Returns the share of tokenizing in the seconds of all stages of a run on this core."""
    with tempfile.TemporaryDirectory() as folder:
        entries = json.loads(file.read_text("utf-8"))["model"]["vocab"]
        model = Path(folder, "model")
        write_tiny_huggingface(
            model, layers=12, hidden=384, heads=12, positions=512, vocab=[row[0] for row in entries]
        )
        (model / "vocab.txt").unlink()
        (model / "tokenizer.json").write_text(file.read_text("utf-8"), "utf-8")
        (model / "tokenizer_config.json").write_text("{}")
        source, output = Path(folder, "in.txt"), Path(folder, "out")
        source.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        flags = [f"--input={source}", f"--output={output}", f"--model={model}"]
        if command_line(["embed", *flags]) != 0:
            raise RuntimeError("the run failed")
        seconds = json.loads((output / "run.json").read_text())["stage_seconds"]
    return seconds["tokenize"] / sum(seconds.values())


if __name__ == "__main__":
    main()
