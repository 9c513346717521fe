"""The shuffle of a BigQuery table's rows to blocks: bytes and CPU over ever more blocks.

`python -m benchmarks.table_shuffle [--rounds 3]`, without any server: rows of 50 and of 500 bytes
as Storage Read gives them, of tables of 10,000 to 1,000,000 blocks of 1 MiB. One batch of rows is
dealt out; some groups are split into blocks as if sixteen such batches had been.
"""

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks import measure
from bert_embed.transforms.bigquery.client import TableName
from bert_embed.transforms.bigquery.read import (
    TableRequest,
    deal_out,
    joined_batches,
    split_group,
)
from bert_embed.transforms.read.columns import Columns

_BLOCK_BYTES = 1 << 20
_PAGE_ROWS = 10_000
_BATCHES, _GROUPS = 16, 40  # of which groups are split


def main() -> None:
    """Runs all cases and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    measure.one_core()
    cases = {
        f"{size} bytes, {blocks} blocks": case(size, blocks, rounds)
        for size in (50, 500)
        for blocks in (10_000, 100_000, 1_000_000)
    }
    record = {"benchmark": "table_shuffle", "data": "random ids and texts", "cases": cases}
    header = ["a row, a table", "rows a batch", "shuffled a byte", "deal µs a row"]
    header += ["split µs a row"]
    measure.report(record, header, [[name, *map(str, one.values())] for name, one in cases.items()])


def case(size: int, blocks: int, rounds: int) -> dict[str, float]:
    """Deals a batch of rows of texts of `size` bytes out; medians of some rounds."""
    table = TableName("my-project", "d", "t")
    request = TableRequest(table, 0.0, 0, blocks * _BLOCK_BYTES, "my-project", Columns(id="id"))
    request = request.divided(_BLOCK_BYTES)
    rows = next(joined_batches(pages(size)))
    text_bytes = rows.num_rows * size
    dealt, split = [], []
    for _ in range(rounds):
        started = time.process_time()
        pieces = list(deal_out(rows, request))
        dealt.append((time.process_time() - started) / rows.num_rows)
        count, started = 0, time.process_time()
        for _, piece in pieces[:_GROUPS]:
            count += sum(one.num_rows for one in split_group([piece] * _BATCHES, request).values())
        split.append((time.process_time() - started) / count)
    return {
        "rows": rows.num_rows,
        "inflation": round(sum(len(piece) for _, piece in pieces) / text_bytes, 2),
        "deal": round(statistics.median(dealt) * 1e6, 2),
        "split": round(statistics.median(split) * 1e6, 2),
    }


def pages(size: int) -> Iterator[pa.RecordBatch]:
    """Endless pages of rows of an id and a text of `size` bytes."""
    random = np.random.default_rng(0)
    while True:
        ids = [f"{number:012x}" for number in random.integers(0, 1 << 48, _PAGE_ROWS)]
        letters = random.integers(97, 123, _PAGE_ROWS * size, dtype=np.uint8).tobytes().decode()
        texts = [letters[at : at + size] for at in range(0, len(letters), size)]
        yield pa.record_batch({"id": ids, "text": texts})


if __name__ == "__main__":
    main()
