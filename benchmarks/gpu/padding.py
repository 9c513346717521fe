"""How much of a batch of a fixed shape is filling: `python -m benchmarks.gpu.padding`.

Rows of all docstring sentences as the packaged model takes them, shuffled, in blocks of text as the
pipeline cuts them, against batches as long as their longest row. Numbers alone; nothing is timed.
"""

import argparse

import numpy as np

from benchmarks import measure
from benchmarks.corpus import every_sentence
from bert_embed.bundle.find import resolve_model
from bert_embed.engines.batches import AnyShape
from bert_embed.engines.fixed_shapes import FixedShapes
from bert_embed.engines.protocol import Batching
from bert_embed.graph.load import load_tokenizer

_BATCH_TOKENS = 16384
_BLOCKS = (256 << 10, 1 << 20, 4 << 20)  # bytes of text; the last where --device gpu asks for it


def main() -> None:
    """Prints the table and the JSON line."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    bundle = resolve_model("minilm")
    sentences = every_sentence()
    lengths = np.diff(load_tokenizer(bundle).encode_flat(sentences)[1]) + 2
    lengths = np.minimum(lengths, bundle.max_seq_length)
    size = sum(len(sentence.encode()) + 1 for sentence in sentences) / len(sentences)
    ladder = FixedShapes(_BATCH_TOKENS, bundle.max_seq_length)
    ways = {"fixed shapes": ladder, "any shape": AnyShape(_BATCH_TOKENS)}
    results = {
        f"{block >> 10} KiB": {
            name: round(padding(way, lengths, round(block / size)), 4) for name, way in ways.items()
        }
        for block in _BLOCKS
    }
    record = {
        "benchmark": "padding",
        "data": f"rows of {len(sentences)} docstring sentences, {_BATCH_TOKENS} tokens a batch",
        "shapes": len(ladder.shapes),
        "mean_tokens": round(float(lengths.mean()), 1),
        "results": results,
    }
    rows = [[block, *(f"{share:.1%}" for share in one.values())] for block, one in results.items()]
    measure.report(record, ["block of text", *ways], rows)


def padding(way: Batching, lengths: np.ndarray, rows: int) -> float:
    """Returns the share of filling in a block of so many rows, of whatever sentences."""
    block = np.random.default_rng(0).choice(lengths, rows)
    shapes = [way.shape(len(batch), int(block[batch[0]])) for batch in way.plan(block)]
    return 1 - block.sum() / sum(count * length for count, length in shapes)


if __name__ == "__main__":
    main()
