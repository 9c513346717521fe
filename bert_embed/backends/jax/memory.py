"""Says how much memory of a chip a model needs at least, without one."""

import math
from collections.abc import Sequence

from bert_embed.backends.jax.packing import PackedRows
from bert_embed.backends.runner import DEVICE_BATCH_TOKENS
from bert_embed.base.errors import SettingError, shown_bytes
from bert_embed.bundle.bundle import Bundle

_USED = 0.95  # share of a chip's memory that programs get


def chip_bytes(bundle: Bundle, precision: str, batch_tokens: int | None, longest: int) -> int:
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
    shapes = PackedRows(batch_tokens or DEVICE_BATCH_TOKENS, longest).shapes
    return weights + max(
        rows * length * (4 * config.num_attention_heads * length + size * config.intermediate_size)
        for rows, length in shapes
    )


def check_fits(
    bundle: Bundle,
    precision: str,
    batch_tokens: int | None,
    longest: int,
    chip: str,
    memory: Sequence[int],
) -> None:
    """Checks that a model fits in the memory of each chip, in bytes; SettingError if it cannot.

    `batch_tokens` are those of all chips together, None for as many as an engine takes; `chip` is
    what messages call one.
    """
    of_chip = None if batch_tokens is None else -(-batch_tokens // len(memory))
    needed, has = chip_bytes(bundle, precision, of_chip, longest), min(memory)
    if needed > _USED * has:
        raise SettingError(
            "batch_tokens",
            f"{batch_tokens or DEVICE_BATCH_TOKENS * len(memory)} does not fit: this model and "
            f"texts of up to {longest:,} tokens take at least {shown_bytes(needed)} a chip, and "
            f"{chip} has {shown_bytes(has)}; give fewer, or a smaller max_seq_length",
            "max_seq_length",
        )
