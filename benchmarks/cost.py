"""The readme's tables: texts a second beside other tools, and what a million texts cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure import table_lines

# Of a machine, in dollars. No vendor's: clouds change theirs and do not sell by processor, so it is
# one that is easily multiplied.
PRICE_PER_HOUR = 0.1
_TOOLS = {
    "bert-embed": "ours",
    "with `--precision int8`": "ours, int8",
    "sentence-transformers": "sentence-transformers encode",
    "Beam's MLTransform": "Beam MLTransform",
}
_TEXTS = {
    "end_to_end": "sentences of 12 words",
    "end_to_end_passages": "passages of some 230 tokens",
}
# The names under which clouds rent a processor, by what it says of itself.
_RENTED = {
    "AMD EPYC (cpu family 25, model 1)": "AMD EPYC 7003 (Google's c2d, AWS's m6a)",
    "AMD EPYC (cpu family 25, model 17)": "AMD EPYC 9004 (Google's c3d, AWS's m7a)",
    "AMD EPYC (cpu family 26, model 2)": "AMD EPYC 9005 (Google's c4d, AWS's m8a)",
    "Intel(R) Xeon(R) Processor (cpu family 6, model 167)": (
        "Intel Xeon with AMX (as Google's c3, AWS's m7i)"
    ),
}
_MILLION = 1_000_000


def cost(processors: Sequence[Mapping[str, Any]], price_per_hour: float = PRICE_PER_HOUR) -> str:
    """Returns both tables of all processors that clouds rent and whole runs were measured on."""
    speed = [["machine", "texts a second", *_TOOLS]]
    bills = [[f"at {price_per_hour:.2f} dollars an hour", *_million()]]
    for results in processors:
        rates = list(_rates(results))
        speed += [[machine, texts, *(f"{r:,.0f}" for r in row)] for machine, texts, row in rates]
        if rates:
            ours = (rate for _, _, row in rates for rate in row[:2])
            bills.append([rates[0][0], *(_bill(rate, price_per_hour) for rate in ours)])
    return "\n".join([*table_lines(speed), "", *table_lines(bills)])


def _million() -> Iterator[str]:
    for texts in _TEXTS.values():
        yield f"a million {texts.split(' of ')[0]}"
        yield "int8"


def _rates(results: Mapping[str, Any]) -> Iterator[tuple[str, str, list[float]]]:
    """Yields the machine, the texts, and the texts a second of each tool at its best batch size."""
    if not results.keys() >= _TEXTS.keys():
        return
    machine = results["end_to_end"]["machine"]
    if machine["processor"] not in _RENTED:
        return
    name = f"{machine['cores']} cores of {_RENTED[machine['processor']]}"
    for benchmark, texts in _TEXTS.items():
        best: dict[str, float] = {}
        for side, result in results[benchmark]["results"].items():
            tool = side.partition(", batches of")[0]
            best[tool] = max(best.get(tool, 0), result["sentences_per_second"])
        yield name, texts, [best[tool] for tool in _TOOLS.values()]


def _bill(rate: float, price_per_hour: float) -> str:
    hours = _MILLION / rate / 3600
    return f"{hours:.2f} hours, {hours * price_per_hour:.2f} dollars"
