"""The readme's table: how many times faster ours is than its peers, on every processor measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure import table_lines

_PEERS = {
    "Beam's MLTransform": "Beam MLTransform",
    "sentence-transformers' `encode`": "sentence-transformers encode",
}
_PRECISIONS = {"float32": "ours", "int8": "ours, int8"}
_LESS = ("int8", "bfloat16")  # what the names of sides end with that round more than float32
_WAYS = ("whole", "steady")
_BACKENDS = {
    "float32": "float32",
    "int8": "int8, theirs in int8 or bfloat16",
}
_WHOLE = {
    "end_to_end": "sentences, text file to Parquet",
    "end_to_end_passages": "passages of some 230 tokens, text file to Parquet",
}
_ENGINES = {
    "engines": "the encoder alone, float32",
    "engines_passages": "the encoder alone, float32, passages",
    "engines_int8": "the encoder alone, both in int8",
    "engines_int8_passages": "the encoder alone, both in int8, passages",
}
_REFERENCES = ("ours", "our graph in TensorFlow")


def headline(processors: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table, with a column for each processor that has results for it."""
    processors = [results for results in processors if any(_cells(results))]
    columns = [dict(_cells(results)) for results in processors]
    rows = dict.fromkeys(row for column in columns for row in column)
    header = ["what", "compared with", *map(_about, processors)]
    cells = ([*row, *(column.get(row, "") for column in columns)] for row in rows)
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


def speeds(
    record: Mapping[str, Any], precision: str, cores: int
) -> dict[str, list[tuple[float, str]]]:
    """Returns the texts a second of ours and of the fastest backend, with its name, by texts.

    A process a core is taken to be as fast as the one on one core that was measured.
    """
    found: dict[str, list[tuple[float, str]]] = {"": [], "sentence-transformers": []}
    for texts in record["counts"]:
        ours = record["results"][f"{texts}, {_PRECISIONS[precision]}"]
        found[""].append((cores * ours["texts_per_second"], ""))
        rates = (
            (cores * side["texts_per_second"], f" ({name})")
            for name, side in backends(record, texts, precision)
        )
        found["sentence-transformers"].append(max(rates))
    return found


def _about(results: Mapping[str, Any]) -> str:
    machine = next(iter(results.values()))["machine"]
    instructions = machine.get("instructions", ())
    return ", ".join([machine["processor"], *instructions[-1:]])


def _cells(results: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields what is compared with what, and the ratio to each peer at its best."""
    for texts, count in results.get("backends", {}).get("counts", {}).items():
        for precision, ours in _PRECISIONS.items():
            peers = backends(results["backends"], texts, precision)
            best = (min((side[way][ours], name) for name, side in peers) for way in _WAYS)
            what = f"{count:,} {texts}, {_BACKENDS[precision]}: whole job, then steady, CPU time"
            row = (what, "sentence-transformers, its fastest backend")
            yield row, ", ".join(f"{ratio:.2f} x ({name})" for ratio, name in best)
    for name, what in _WHOLE.items():
        if name not in results:
            continue
        sides = _sides(results, name)
        for precision, ours in _PRECISIONS.items():
            best = [
                min(result["ours_is"][ours] for side, result in sides if side.startswith(peer))
                for peer in _PEERS.values()
            ]
            row = (f"{what}, {precision}", " and ".join(_PEERS))
            yield row, " and ".join(f"{ratio:.2f} x" for ratio in best)
    for name, what in _ENGINES.items():
        ratios = [(result["ours_is"], side) for side, result in _sides(results, name)]
        peers = [result for result in ratios if result[1] not in _REFERENCES]
        if peers:
            ratio, peer = min(peers)
            yield (what, "the fastest of four engines"), f"{ratio:.2f} x ({peer})"
    for text, sides in _sides(results, "tokenizer"):
        if text.endswith(", ids"):
            ratio, peer = min(
                (result["ours_is"], side) for side, result in sides.items() if side != "ours"
            )
            row = (f"tokenizer, {text.removesuffix(', ids')}", "the faster of two tokenizers")
            yield row, f"{ratio:.2f} x ({peer})"


def _sides(results: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return list(results.get(name, {}).get("results", {}).items())
