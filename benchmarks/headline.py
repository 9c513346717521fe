"""How many times faster ours is than its peers, by processor: a table of docs/performance.md."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure import table_lines

_PEERS = {"MLTransform": "Beam MLTransform", "`encode`": "sentence-transformers encode"}
_PRECISIONS = {"float32": "ours", "int8": "ours, int8"}
_LESS = ("int8", "bfloat16")  # what the names of sides end with that round more than float32
_WAYS = ("whole", "steady")
_WHOLE = {
    "end_to_end": "sentences",
    "end_to_end_passages": "passages",
}
_ENGINES = {
    "engines": "encoder alone, float32",
    "engines_passages": "encoder alone, float32, passages",
    "engines_int8": "encoder alone, int8",
    "engines_int8_passages": "encoder alone, int8, passages",
}
_REFERENCES = ("ours", "our graph in TensorFlow")


def headline(processors: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table, with a column for each processor that has results for it."""
    processors = [results for results in processors if any(_cells(results))]
    columns = [dict(_cells(results)) for results in processors]
    rows = dict.fromkeys(row for column in sorted(columns, key=len, reverse=True) for row in column)
    header = ["what", *map(_about, processors)]
    cells = ([row, *(column.get(row, "") for column in columns)] for row in rows)
    return "\n".join(table_lines([header, *cells]))


def backends(
    record: Mapping[str, Any], texts: str, precision: str
) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the sides of sentence-transformers in float32, or those that round more.

    Args:
        record: Of `benchmarks.backends`.
        texts: What was embedded.
        precision: `float32`, or `int8` for those that round more.
    """
    sides = (
        (name.removeprefix(f"{texts}, "), side)
        for name, side in record["results"].items()
        if name.startswith(f"{texts}, ")
    )
    return [
        (name, side)
        for name, side in sides
        if not name.startswith("ours") and name.endswith(_LESS) == (precision != "float32")
    ]


def _about(results: Mapping[str, Any]) -> str:
    machine = next(iter(results.values()))["machine"]
    instructions = machine.get("instructions", ())
    processor = machine["processor"].replace("(cpu family", "(family")
    return ", ".join([processor, *instructions[-1:]])


def _cells(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what is compared, and the ratio to each peer at its best, with the peer's name."""
    for name, what in _WHOLE.items():
        if name not in results:
            continue
        sides = _sides(results, name)
        for precision, ours in _PRECISIONS.items():
            best = (
                (min(r["ours_is"][ours] for side, r in sides if side.startswith(peer)), name)
                for name, peer in _PEERS.items()
            )
            yield (
                f"{what}, {precision}",
                ", ".join(f"{ratio:.2f} ({name})" for ratio, name in best),
            )
    for name, what in _ENGINES.items():
        ratios = [(result["ours_is"], side) for side, result in _sides(results, name)]
        peers = [result for result in ratios if result[1] not in _REFERENCES]
        if peers:
            ratio, peer = min(peers)
            yield what, f"{ratio:.2f} ({peer})"
    for text, sides in _sides(results, "tokenizer"):
        if text.endswith(", ids"):
            ratio, peer = min(
                (result["ours_is"], side) for side, result in sides.items() if side != "ours"
            )
            yield f"tokenizer, {text.removesuffix(', ids')}", f"{ratio:.2f} ({peer})"
    for texts, count in results.get("backends", {}).get("counts", {}).items():
        for precision, ours in _PRECISIONS.items():
            others = backends(results["backends"], texts, precision)
            least = (min((side[way][ours], name) for name, side in others) for way in _WAYS)
            both = ", ".join(f"{ratio:.2f} ({name})" for ratio, name in least)
            yield f"{count:,} {texts}, {precision}", both


def _sides(results: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return list(results.get(name, {}).get("results", {}).items())
