"""Where our encoder's time goes in float32: `python -m benchmarks.encoder_profile [--rounds 5]`.

One core, rows of real sentences in batches of 512 tokens. oneDNN tells of each of its primitives
what it is and how long it took (ONEDNN_VERBOSE), which takes a little time, too; what the processor
spent beside them is TensorFlow's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter

from benchmarks import measure
from benchmarks.corpus import english_sentences
from benchmarks.encoder import product_flops, token_flops
from bert.encoder import Encoder
from bert.resolve import resolve_model
from bert.rows import build_rows

_BUDGET, _BEGIN, _END = 512, "profile begins", "profile ends"
_KINDS = {
    "matmul": "attention: scores, mixing",
    "softmax": "attention: softmax",
    "reorder": "attention: heads to the front and back",
    "layer_normalization": "layer norms",
}
_PRODUCTS, _GELU, _REST = "weight products", "weight product with GELU", "TensorFlow, the rest"


def main() -> None:
    """Runs the profiled process some rounds and prints medians; or, with `--inside`, is it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", action="store_true")
    args = parser.parse_args()
    if args.inside:
        run_encoder(args.sentences)
        return
    rounds = [profile(args.sentences) for _ in range(args.rounds)]
    spent = {
        name: statistics.median(one[name] for one in rounds)
        for name in sorted(rounds[0], key=lambda name: -rounds[0][name])
    }
    whole, limit = spent.pop("CPU"), spent.pop("limit")
    record = {
        "benchmark": "encoder_profile",
        "data": f"{args.sentences} docstring sentences as token rows, one core",
        "rounds": args.rounds,
        "microseconds_a_token": {name: round(value, 2) for name, value in spent.items()},
        "limit_microseconds_a_token": round(limit, 2),
    }
    rows = [[name, f"{value:.1f}", f"{value / whole:.1%}"] for name, value in spent.items()]
    rows.append(["all of it", f"{whole:.1f}", "100%"])
    rows.append(["large products alone would take", f"{limit:.1f}", f"{limit / whole:.1%}"])
    measure.report(record, ["what", "microseconds a token", "share"], rows)


def profile(sentences: int) -> dict[str, float]:
    """Microseconds a token of each kind of work, "CPU" of all, "limit" of products alone."""
    command = [sys.executable, "-m", "benchmarks.encoder_profile", "--inside"]
    done = subprocess.run(
        [*command, f"--sentences={sentences}"],
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    told = [line.split(",") for line in lines[lines.index(_BEGIN) : lines.index(_END)]]
    figures = json.loads(lines[-1])
    spent: Counter[str] = Counter()
    for words in told:
        if words[1:4] == ["v1", "primitive", "exec"]:
            spent[_kind(words)] += float(words[-1]) * 1e3
    spent[_REST] = figures["cpu"] * 1e6 - spent.total()
    each = {name: value / figures["tokens"] for name, value in spent.items()}
    return {
        **each,
        "CPU": figures["cpu"] * 1e6 / figures["tokens"],
        "limit": figures["flops"] / figures["products"] * 1e6,
    }


def _kind(words: list[str]) -> str:
    if words[5] != "inner_product":
        return _KINDS.get(words[5], words[5])
    return _GELU if any("gelu" in word for word in words) else _PRODUCTS


def run_encoder(sentences: int) -> None:
    """Embeds once for the shapes, then once more between the marks."""
    encoder = Encoder(resolve_model("minilm"), threads=1)
    ids, splits = encoder.tokenizer.encode_flat(english_sentences(sentences))
    special = encoder.tokenizer.cls_id, encoder.tokenizer.sep_id
    rows = build_rows(ids, splits, encoder.bundle.max_seq_length, *special)
    arrays = rows.input_ids, rows.row_splits
    products = product_flops()
    encoder.embed_rows(*arrays, batch_tokens=_BUDGET)
    print(_BEGIN, flush=True)
    started = time.process_time()
    done = encoder.embed_rows(*arrays, batch_tokens=_BUDGET)
    cpu = time.process_time() - started
    print(_END, flush=True)
    flops = token_flops(encoder.bundle.config)
    print(json.dumps({"cpu": cpu, "tokens": done.tokens, "flops": flops, "products": products}))


if __name__ == "__main__":
    main()
