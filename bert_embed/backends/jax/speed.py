"""The speed of a model on a TPU that follows from what its compiler said of others."""

import json
import math
import re
from dataclasses import dataclass
from importlib.resources import files

from bert_embed.models.encoder import EncoderConfig

_TABLE = "compiled.json"  # as `benchmarks.compiled` keeps it
_NAME = re.compile(r"([^,]+), (\d+) x (\d+), (\w+), (\w+)")  # of a model with all its layers


@dataclass(frozen=True)
class CompiledSpeed:
    """Estimated by the compiler, not measured: neither transfers nor launches are counted."""

    tokens_per_second: float  # of one chip, in full rows
    like: str  # the model that was compiled


def compiled_precisions(chip: str) -> list[str]:
    """Returns the precisions in which a compiler gave times for a chip; none for GPUs."""
    return sorted({precision for precision, *_ in _entries(chip)})


def compiled_speed(config: EncoderConfig, precision: str, chip: str) -> CompiledSpeed | None:
    """Returns what a chip would do at the rate of the most similar program, None without one.

    That is the one with the most similar number of operations a token, of its fastest shape.
    """
    rates: dict[str, tuple[float, float]] = {}
    for computed, model, length, tokens, operations, seconds in _entries(chip):
        wanted = operations_of_token(config, length)
        if computed == precision and wanted:
            distance = abs(math.log(operations / tokens / wanted))
            nearest, speed = rates.get(model, (distance, 0.0))
            found = operations / seconds / wanted
            rates[model] = (distance, found) if found > speed else (nearest, speed)
    if not rates:
        return None
    model = min(rates, key=lambda name: rates[name][0])
    return CompiledSpeed(rates[model][1], model)


def operations_of_token(config: EncoderConfig, length: int) -> int:
    """Returns the floating-point operations of products for a token in a row of `length` tokens.

    Two for each weight of a layer's kernels, and for each number of scores and weighted values.
    """
    layers = (
        math.prod(shape)
        for name, shape in config.shapes().items()
        if name.endswith("/kernel") and "layer" in name
    )
    attention = 2 * length * config.hidden_size * config.num_hidden_layers
    return 2 * (sum(layers) + attention) if config.num_hidden_layers else 0


def _entries(chip: str) -> list[tuple[str, str, int, int, float, float]]:
    """Precision, model, row length, tokens, operations and seconds of each program of a chip."""
    table = json.loads(files(__package__).joinpath(_TABLE).read_text("utf-8"))
    found = []
    for name, said in table.items():
        if (parts := _NAME.fullmatch(name)) and parts[5] == chip and "milliseconds" in said:
            model, rows, length, precision = parts[1], int(parts[2]), int(parts[3]), parts[4]
            figures = 1e12 * said["TFLOP"], said["milliseconds"] / 1e3
            found.append((precision, model, length, rows * length, *figures))
    return found
