"""The readme's table: how many times faster ours is than each peer, on every processor measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure import table_lines

_TOKENIZERS = ("English", "a tenth unseen", "96 languages")
_PEERS = {
    "Beam's MLTransform with sentence-transformers": "Beam MLTransform",
    "Beam's RunInference, padded to 128": "Beam RunInference",
    "sentence-transformers' `encode`": "sentence-transformers encode",
}
_ENGINES = ("OpenVINO", "CTranslate2", "ONNX Runtime", "sentence-transformers, torch")
_WHAT = {
    "end_to_end": "sentences, text file to Parquet, {}",
    "end_to_end_passages": "passages of some 230 tokens, text file to Parquet, {}",
    "engines": "the encoder alone, one core, float32",
    "engines_passages": "the encoder alone, one core, float32, passages",
    "engines_int8": "the encoder alone, one core, both in int8",
    "engines_int8_passages": "the encoder alone, one core, both in int8, passages",
}


def headline(processors: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table, with a column for each processor's results."""
    columns = [dict(_ratios(results)) for results in processors]
    rows = dict.fromkeys(row for column in columns for row in column)
    header = ["what", "compared with", *map(_about, processors)]
    cells = ([*row, *(_cell(column.get(row)) for column in columns)] for row in rows)
    return "\n".join(table_lines([header, *cells]))


def _about(results: Mapping[str, Any]) -> str:
    machine = next(iter(results.values()))["machine"]
    return f"{machine['processor']}, {' '.join(machine['instructions'])}"


def _cell(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f} x"


def _ratios(results: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    """Yields what is compared with which peer, and how many times faster ours is."""
    for name, what in _WHAT.items():
        sides = results.get(name, {}).get("results", {})
        if name.startswith("engines"):
            ratios = {side: each["ours_is"] for side, each in sides.items()}
            yield from _against(what, dict(zip(_ENGINES, _ENGINES, strict=True)), ratios)
            continue
        for precision, ours in {"float32": "ours", "int8": "ours, int8"}.items():
            ratios = {side: each["ours_is"][ours] for side, each in sides.items()}
            yield from _against(what.format(precision), _PEERS, ratios)
    if "host_path" in results:
        row = ("everything but the model, one core", "Beam row by row")
        yield row, results["host_path"]["ratio"]
    for text in _TOKENIZERS:
        texts = results.get("tokenizer", {}).get("results", {})
        for side, each in texts.get(f"{text}, ids", {}).items():
            if side != "ours":
                yield (f"tokenizer, one core, {text}", side), each["ours_is"]


def _against(
    what: str, peers: Mapping[str, str], ratios: Mapping[str, float]
) -> Iterable[tuple[tuple[str, str], float]]:
    """Yields the ratio to each peer at its best, of the sides whose names begin with the peer's."""
    for peer, begin in peers.items():
        if found := [ratio for side, ratio in ratios.items() if side.startswith(begin)]:
            yield (what, peer), min(found)
