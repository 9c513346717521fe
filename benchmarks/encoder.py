"""Our encoder alone: tokens a second by batch budget and by how the cores are used.

`python -m benchmarks.encoder [--sentences 3000] [--rounds 3]`. Token rows of real sentences, the
packaged model, pooling and normalising included, tokenizing not. "a batch a core" runs as many
batches at once as there are cores; "all cores a batch" leaves one batch to TensorFlow's own
threads. "limit" is the share of the tokens that large products of the same run's shapes alone
would allow, filling not counted.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

from benchmarks import measure
from benchmarks.corpus import english_sentences
from bert.config import BertConfig
from bert.encoder import Encoder, available_cores
from bert.resolve import resolve_model
from bert.rows import build_rows

BUDGETS = (512, 1024, 2048)
WAYS = ("a batch a core", "all cores a batch", "one core")
_ROWS, _HIDDEN, _INNER, _PRODUCTS = 1024, 384, 1536, 40


def main() -> None:
    """Measures each way in processes of their own, in turn; or, with `--way`, is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(measured(args.way, args.sentences)))
        return
    every: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.encoder", f"--way={way}"]
            command.append(f"--sentences={args.sentences}")
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for name, figures in json.loads(done.stdout.splitlines()[-1]).items():
                every.setdefault(f"{way}, {name}", []).append(figures)
    results = {name: _summary(rounds) for name, rounds in every.items()}
    data = f"{args.sentences} docstring sentences as token rows"
    record = {"benchmark": "encoder", "data": data, "rounds": args.rounds, "results": results}
    header = ["way, budget", "tokens/s", "spread", "tokens/CPU s", "padding", "limit"]
    measure.report(record, header, [_row(name, result) for name, result in results.items()])


def _summary(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = ("tokens_per_second", "tokens_per_cpu_second", "padding", "share_of_limit")
    figures = {name: measure.Figure.of([one[name] for one in rounds]) for name in names}
    summary = {name: round(figure.median, 4) for name, figure in figures.items()}
    return summary | {"spread": round(figures["tokens_per_second"].spread, 3)}


def _row(name: str, result: dict[str, float]) -> list[str]:
    return [
        name,
        f"{result['tokens_per_second']:.0f}",
        f"{result['spread']:.2f}",
        f"{result['tokens_per_cpu_second']:.0f}",
        f"{result['padding']:.1%}",
        f"{result['share_of_limit']:.0%}",
    ]


def measured(way: str, count: int) -> dict[str, dict[str, float]]:
    """Returns the figures of one way by budget; the process's threads are set for good."""
    import tensorflow as tf

    cores = available_cores()
    if way == "all cores a batch":
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.constant(0)  # starts TensorFlow, after which the encoder leaves its threads alone
    encoder = Encoder(resolve_model("minilm"), threads=cores if way == "a batch a core" else 1)
    ids, splits = encoder.tokenizer.encode_flat(english_sentences(count))
    special = encoder.tokenizer.cls_id, encoder.tokenizer.sep_id
    rows = build_rows(ids, splits, encoder.bundle.max_seq_length, *special)
    products = product_flops()
    figures = {}
    for budget in BUDGETS:
        encoder.embed_rows(rows.input_ids, rows.row_splits, batch_tokens=budget)  # first shapes
        wall, cpu = time.perf_counter(), time.process_time()
        done = encoder.embed_rows(rows.input_ids, rows.row_splits, batch_tokens=budget)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        figures[f"{budget} tokens"] = {
            "tokens_per_second": done.tokens / wall,
            "tokens_per_cpu_second": done.tokens / cpu,
            "padding": 1 - done.tokens / done.padded_tokens,
            "share_of_limit": done.tokens * token_flops(encoder.bundle.config) / cpu / products,
        }
    return figures


def token_flops(config: BertConfig) -> float:
    """Returns the operations of the weight products for one token; attention comes on top."""
    layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    return 2.0 * layer * config.num_hidden_layers


def product_flops() -> float:
    """Returns the operations a CPU second of the encoder's two largest products, best of five."""
    import tensorflow as tf

    x, inner = tf.random.normal([_ROWS, _HIDDEN]), tf.random.normal([_ROWS, _INNER])
    up, down = tf.random.normal([_HIDDEN, _INNER]), tf.random.normal([_INNER, _HIDDEN])

    def work() -> float:
        start = time.process_time()
        for _ in range(_PRODUCTS):
            last = tf.matmul(x, up), tf.matmul(inner, down)
        np.asarray(last[0]), np.asarray(last[1])
        return 2 * _PRODUCTS * 2 * _ROWS * _HIDDEN * _INNER / (time.process_time() - start)

    return max(work() for _ in range(5))


if __name__ == "__main__":
    main()
