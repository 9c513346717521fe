"""Defines Ops, the operations that an encoder's graph is written in."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol


class Ops(Protocol):
    """Adds operations to a graph, in which weights are known by their names.

    Values are float32 `[tokens, width]`, the tokens of all rows of the batch, if nothing else is
    said. Each backend has values of its own type.
    """

    def gather(self, table: str, ids: Any) -> Any:
        """Returns the rows of a table, `[batch, length, width]`, for int32 `[batch, length]`."""

    def first_rows(self, table: str) -> Any:
        """Returns as many rows of a table as a row of the batch has tokens, `[length, width]`."""

    def flat(self, x: Any) -> Any:
        """Returns `[tokens, width]` of `[batch, length, width]`."""

    def add(self, x: Any, y: Any) -> Any:
        """Returns `x + y`; either may have fewer dimensions, or one row for all."""

    def multiply(self, x: Any, y: Any) -> Any:
        """Returns `x * y` of the same shape."""

    def activated(self, x: Any, activation: str) -> Any:
        """Returns "gelu" (with erf), "gelu_new" (with tanh), "relu", "silu", "tanh" or "log1p"."""

    def norm(self, x: Any, name: str) -> Any:
        """Returns rows of mean 0 and variance 1, times gamma; plus beta, if there is one."""

    def product(self, x: Any, name: str) -> Any:
        """Returns `x @ kernel`; plus bias, if there is one."""

    def by_distance(self, table: str) -> Any:
        """Returns what is added to the scores of two tokens by their distance.

        The table is `[heads, 2 * positions - 1]`, or has one row for all heads; its columns are the
        places of the second token minus the first, from `1 - positions` on.
        """

    def attention(
        self, x: Any, layer: str, added: Any = None, rotation: tuple[Any, Any] | None = None
    ) -> Any:
        """Mixes the tokens of each row by a layer's products "query", "key" and "value".

        Its norms "query_norm" and "key_norm", if any, are of all heads' numbers together. `added`,
        from `by_distance`, is added to the scores. `rotation` are factors of queries and keys, and
        of these with the halves of each head exchanged, `[length, head width]` each.
        """

    def against(self, x: Any, table: str, bias: str | None, block: int) -> Iterator[Any]:
        """Yields the products of `x` with the rows of a table, plus their bias: `block` at most."""

    def over_tokens(self, x: Any, pooling: Literal["max", "sum", "mean", "first"]) -> Any:
        """Returns `[rows, width]` of `[tokens, width]`; padding does not count."""

    def joined(self, parts: list[Any]) -> Any:
        """Returns values side by side."""
