"""What is known of chips without one: the memory a model needs there, and how fast it would be.

Its speed follows from that of others there: of TPUs their compiler said it, of an H100 a clock.
"""

import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files

from bert_embed.backends.jax.packing import PackedRows, usual_tokens
from bert_embed.base.errors import SettingError, shown_bytes
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.encoder import EncoderConfig

_USED = 0.95  # share of a chip's memory that programs get
_ESTIMATED = "compiled.json"  # as `benchmarks.compiled` keeps it
_MEASURED = {"h100": "h100.json"}  # by chips, what a clock said there
_NAME = re.compile(r"([^,]+), (\d+) x (\d+), (\w+), (\w+)")  # of a model with all its layers


def chip_speed(config: EncoderConfig, precision: str, chip: str) -> tuple[float, bool] | None:
    """Returns a chip's tokens a second at the rate of the most similar program, None without one.

    That is the one with the most similar number of operations a token, of its fastest shape, in
    full rows; neither transfers nor what the host does are counted. Also whether a clock said it:
    else the compiler estimates it, without launches.
    """
    rates: dict[str, tuple[float, float]] = {}
    for computed, model, length, tokens, operations, seconds in _entries(chip):
        wanted = operations_of_token(config, length)
        if computed == precision and wanted:
            distance = abs(math.log(operations / tokens / wanted))
            nearest, speed = rates.get(model, (distance, 0.0))
            found = operations / seconds / wanted
            rates[model] = (distance, found) if found > speed else (nearest, speed)
    return (min(rates.values(), key=lambda one: one[0])[1], chip in _MEASURED) if rates else None


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
    name = _MEASURED.get(chip, _ESTIMATED)
    table = json.loads(files(__package__).joinpath(name).read_text("utf-8"))
    found = []
    for name, said in table.get("programs", table).items():
        if (parts := _NAME.fullmatch(name)) and parts[5] == chip and "milliseconds" in said:
            model, rows, length, precision = parts[1], int(parts[2]), int(parts[3]), parts[4]
            figures = 1e12 * said["TFLOP"], said["milliseconds"] / 1e3
            found.append((precision, model, length, rows * length, *figures))
    return found


def chip_bytes(bundle: Bundle, precision: str, batch_tokens: int, longest: int) -> int:
    """Returns the bytes that weights and the largest program take, at least.

    Attention's scores, float32 `[rows, heads, length, length]`, and what is between two products,
    `[tokens, intermediate size]`: a compiler keeps both of one layer at a time, if it fuses all
    else. `batch_tokens` are those of a chip; rows have at most `longest` tokens.
    """
    config, size = bundle.config, 4 if precision == "float32" else 2
    weights = sum(
        math.prod(shape) * (size if name.endswith(("/kernel", "/bias")) else 4)
        for name, shape in bundle.tensor_shapes().items()
        if name not in bundle.unread
    )
    shapes = PackedRows(batch_tokens, longest).shapes
    return weights + max(
        rows * length * (4 * config.num_attention_heads * length + size * config.intermediate_size)
        for rows, length in shapes
    )


def check_fits(
    bundle: Bundle,
    precision: str,
    batch_tokens: int | None,
    longest: int,
    device: str,
    chip: str,
    memory: Sequence[int],
) -> None:
    """Checks that a model fits in the memory of each chip, in bytes; SettingError if it cannot.

    `batch_tokens` are those of all chips together, None for as many as an engine takes; `chip` is
    what messages call one.
    """
    if batch_tokens is None:
        batch_tokens = usual_tokens(device, longest) * len(memory)
    needed = chip_bytes(bundle, precision, -(-batch_tokens // len(memory)), longest)
    has = min(memory)
    if needed > _USED * has:
        raise SettingError(
            "batch_tokens",
            f"{batch_tokens} does not fit: this model and texts of up to {longest:,} tokens take "
            f"at least {shown_bytes(needed)} a chip, and {chip} has {shown_bytes(has)}; give "
            "fewer, or a smaller max_seq_length",
            "max_seq_length",
        )
