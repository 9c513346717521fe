"""What a large corpus needs: `python -m benchmarks.scale_cost [--documents N] [--tokens T] [...]`.

Prints the tables of docs/scale.md. Rates of processors are those that were measured (README.md,
benchmarks/README.md); nothing was measured on T4, L4 and v5e, whose rates are the makers' peaks
times a share that is assumed and can be set. Prices are not known here: give what you pay with
`--price NAME=USD_AN_HOUR`, such as `--price 'vCPU, float32=0.05'`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_FLOAT32, _INT8 = 5861.0, 14987.0  # tokens a second of one core, MiniLM; benchmarks/README.md
_HOST = 163_000 * 21.0  # tokens a processor second of all but the model; sentences of 21 tokens
_PEAKS = {"T4, float16": 65e12, "L4, bfloat16": 121e12, "v5e chip, bfloat16": 197e12}  # the makers'
_FILLING = 0.09  # of what XLA's shapes compute is filling; docs/accelerators.md
_BYTES_A_TOKEN = 3.7  # of English text
_ROW_BYTES = 32  # id, counts and hash beside a vector
_REPORT_BYTES = 700
_BLOCK, _DEVICE_BLOCK = 1 << 20, 4 << 20
_REPORTS_LISTED, _FILES_LOADED = 1000, 10_000  # a page of a listing; a load job of ours


@dataclass(frozen=True)
class Model:
    """A BERT's size.

    Attributes:
        layers: How many.
        hidden: Width of a hidden state; the layer between is four times as wide.
    """

    layers: int
    hidden: int

    def operations(self, length: float) -> float:
        """Floating-point operations a token, of a text of so many tokens.

        >>> round(Model(6, 384).operations(64) / 1e6, 1)
        21.8
        """
        weights = 12 * self.hidden**2  # four square ones, two of four times their size
        return self.layers * (2 * weights + 4 * length * self.hidden)


MODELS = {"MiniLM-L6": Model(6, 384), "bert-base": Model(12, 768)}


def rates(model: Model, tokens: float, share: float) -> dict[str, float]:
    """Tokens a second of one of each kind: measured for MiniLM's processors, else by operations."""
    slower = MODELS["MiniLM-L6"].operations(tokens) / model.operations(tokens)
    found = {"vCPU, float32": _FLOAT32 * slower, "vCPU, int8": _INT8 * slower}
    for name, peak in _PEAKS.items():
        found[name] = peak * share * (1 - _FILLING) / model.operations(tokens)
    return found


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=float, default=1e10)
    parser.add_argument("--tokens", type=float, default=64.0, help="of a document")
    parser.add_argument("--hours", type=float, default=24.0, help="it may take")
    parser.add_argument("--share", type=float, default=0.2, help="of a device's peak, assumed")
    parser.add_argument("--price", action="append", default=[], metavar="NAME=USD_AN_HOUR")
    args = parser.parse_args()
    prices = {name: float(usd) for name, _, usd in (each.rpartition("=") for each in args.price)}
    unknown = sorted(set(prices) - set(rates(MODELS["MiniLM-L6"], args.tokens, args.share)))
    if unknown:
        parser.error(f"--price: nothing is called {unknown[0]}")
    print(f"{args.documents:,.0f} documents of {args.tokens:g} tokens, share {args.share:g}\n")
    for name, model in MODELS.items():
        print_table(
            [name, "tokens/s of one", "hours of one", f"how many for {args.hours:g} h", "USD"],
            [
                machine_row(kind, rate, args.documents * args.tokens, args.hours, prices.get(kind))
                for kind, rate in rates(model, args.tokens, args.share).items()
            ],
        )
    print_table(["what", "how much"], amounts(args.documents, args.tokens))


def machine_row(
    kind: str, rate: float, tokens: float, hours: float, price: float | None
) -> list[str]:
    """Hours of one, how many for so many hours, what they cost if that is known."""
    host = (
        1 / _HOST if kind.startswith("vCPU") else 0.0
    )  # beside a device, the host's own cores do it
    alone = tokens * (1 / rate + host) / 3600
    usd = "hours by price" if price is None else f"{price * alone:,.0f}"
    return [kind, f"{rate:,.0f}", f"{alone:,.0f}", f"{alone / hours:,.0f}", usd]


def amounts(documents: float, tokens: float) -> list[list[str]]:
    """What is read, written and listed."""
    text = documents * tokens * _BYTES_A_TOKEN
    blocks, fewer = text / _BLOCK, text / _DEVICE_BLOCK
    row = 4 * MODELS["MiniLM-L6"].hidden + _ROW_BYTES
    return [
        ["text", f"{text / 1e12:,.1f} TB"],
        ["vectors of 384 float32", f"{documents * row / 1e12:,.1f} TB"],
        ["vectors of 384 int8", f"{documents * (row / 4 + _ROW_BYTES) / 1e12:,.1f} TB"],
        ["blocks, and files, of 1 MiB of text", f"{blocks:,.0f}"],
        ["blocks, and files, of 4 MiB (devices)", f"{fewer:,.0f}"],
        ["reports", f"{blocks * _REPORT_BYTES / 1e9:,.1f} GB"],
        ["pages of a listing of reports", f"{blocks / _REPORTS_LISTED:,.0f}"],
        ["load jobs of BigQuery", f"{blocks / _FILES_LOADED:,.0f}"],
        ["processor hours of all but the model", f"{documents * tokens / _HOST / 3600:,.0f}"],
    ]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of Markdown."""
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
    print()


if __name__ == "__main__":
    main()
