"""The readme's table: what a million documents take on each processor measured, in dollars."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.headline import speeds
from benchmarks.measure import table_lines

# Of a machine, in dollars. No vendor's: clouds change theirs and do not sell by processor, so it is
# one that is easily multiplied.
PRICE_PER_HOUR = 0.1
_PRECISIONS = {
    "float32": ("ours", "engines_passages"),
    "int8": ("ours, int8", "engines_int8_passages"),
}
_TEXTS = {
    "end_to_end": "a million sentences of 12 words",
    "end_to_end_passages": "a million passages of some 230 tokens",
}
_MILLION = 1_000_000


def cost(processors: Sequence[Mapping[str, Any]], price_per_hour: float = PRICE_PER_HOUR) -> str:
    """Returns the table of all processors on which whole runs of MiniLM were measured."""
    rows = [row for results in processors for row in _rows(results, price_per_hour)]
    header = ["machine", "", "tokens/s of a core, encoder alone", *_TEXTS.values()]
    return "\n".join(
        [f"At {price_per_hour:.2f} dollars an hour:", "", *table_lines([header, *rows])]
    )


def _rows(results: Mapping[str, Any], price_per_hour: float) -> Iterator[list[str]]:
    """Yields ours and, where its backends were measured, sentence-transformers at its fastest."""
    if not results.keys() >= _TEXTS.keys():
        return
    for precision, (side, encoder) in _PRECISIONS.items():
        tokens = results[encoder]["results"]["ours"]["tokens_per_second"]
        record = results.get("backends", results["end_to_end"])
        cores = results["end_to_end"]["machine"]["cores"]
        if "backends" in results:
            rates = speeds(record, precision, cores)
        else:
            ours = (results[text]["results"][side]["sentences_per_second"] for text in _TEXTS)
            rates = {"": [(rate, "") for rate in ours]}
        machine = record["machine"]
        name = f"{cores} cores of {machine['processor']}, {machine['date']}"
        for tool, cells in rates.items():
            taken = [(_MILLION / rate / 3600, backend) for rate, backend in cells]
            what = f"{precision}, {tool}" if tool else precision
            yield [
                *(name, what, "" if tool else f"{tokens:,}"),
                *(
                    f"{hours:.2f} hours, {hours * price_per_hour:.3f} dollars{backend}"
                    for hours, backend in taken
                ),
            ]
