"""Our encoder with the packaged model, in one of its precisions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert.encoder import Encoder


def load_ours(precision: str, threads: int) -> "Encoder":
    """Returns the encoder; float32 is what it has unless told otherwise."""
    from bert.encoder import Encoder
    from bert.resolve import resolve_model

    settings: dict[str, Any] = {} if precision == "float32" else {"precision": precision}
    return Encoder(resolve_model("minilm"), threads=threads, **settings)
