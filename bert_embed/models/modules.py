"""What sentence-transformers puts behind an encoder: layers and norms, of vectors or tokens.

A kind of module is a class with `in_features`, `out_features`, `shapes` and `graph`, and a row of
`MODULES`: every backend then computes it, by its own `Ops`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import Ops, Sizes, norm_shapes, product_shapes

DENSE_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid", "silu")
# What names of tensors begin with: of modules behind the pooling, and before it.
POOLED, OF_TOKENS = "dense", "token_dense"
_TORCH_EPSILON = 1e-5  # of torch.nn.LayerNorm


@dataclass(frozen=True)
class DenseModule(Sizes):
    """A layer over vectors: `activation(x @ kernel + bias)`, plus the input if it is `residual`."""

    kind: ClassVar[str] = "dense"
    seldom: ClassVar[tuple[str, ...]] = ("residual",)

    in_features: int
    out_features: int
    activation: str = "tanh"  # one of `DENSE_ACTIVATIONS`; "gelu" is the exact form, with erf
    bias: bool = True
    residual: bool = False  # by a product of its own where it has another width

    def __post_init__(self) -> None:
        self._check_positive("in_features", "out_features")
        self._check_known("activation", DENSE_ACTIVATIONS)
        self._check_switches()

    def __str__(self) -> str:
        residual = " residual" if self.residual else ""
        return f"{self.in_features}x{self.out_features} {self.activation}{residual}"

    def shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each tensor of the module of this name."""
        size = self.in_features, self.out_features
        shapes = product_shapes({name: size}, self.bias)
        if self.residual and self.in_features != self.out_features:
            shapes |= product_shapes({f"{name}/residual": size}, bias=False)
        return shapes

    def graph(self, ops: Ops, x: Any, name: str) -> Any:
        """Adds the module of this name, on `[rows, in_features]`."""
        y = ops.product(x, name)
        y = y if self.activation == "identity" else ops.activated(y, self.activation)
        if not self.residual:
            return y
        same = self.in_features == self.out_features
        return ops.add(y, x if same else ops.product(x, f"{name}/residual"))


@dataclass(frozen=True)
class LayerNormModule(Sizes):
    """Vectors of mean 0 and variance 1, times gamma, plus beta."""

    kind: ClassVar[str] = "layer_norm"

    in_features: int

    def __post_init__(self) -> None:
        self._check_positive("in_features")

    def __str__(self) -> str:
        return f"norm of {self.in_features}"

    @property
    def out_features(self) -> int:
        """As many as come in."""
        return self.in_features

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields and the kind, which a Dense module's do not name."""
        return {"kind": self.kind, **super().to_dict()}

    def shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """As `DenseModule.shapes`."""
        return norm_shapes({name: self.in_features})

    def graph(self, ops: Ops, x: Any, name: str) -> Any:
        """As `DenseModule.graph`."""
        return ops.norm(x, name, _TORCH_EPSILON)


Module = DenseModule | LayerNormModule
MODULES: Mapping[str, type[Module]] = {one.kind: one for one in (DenseModule, LayerNormModule)}


def module_from_dict(values: Mapping[str, Any]) -> Module:
    """Builds what `to_dict` of a module returned."""
    fields = dict(values)
    kind = fields.pop("kind", DenseModule.kind)
    if kind not in MODULES:
        raise InputError(f"kind must be one of {', '.join(MODULES)}, got {kind!r}")
    return MODULES[kind].from_dict(fields)


def module_shapes(modules: Sequence[Module], prefix: str = POOLED) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor of modules by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, module in enumerate(modules):
        shapes |= module.shapes(f"{prefix}/{number}")
    return shapes


def modules_graph(modules: Sequence[Module], ops: Ops, x: Any, prefix: str = POOLED) -> Any:
    """Adds modules in their order, on `[rows, width]`."""
    for number, module in enumerate(modules):
        x = module.graph(ops, x, f"{prefix}/{number}")
    return x
