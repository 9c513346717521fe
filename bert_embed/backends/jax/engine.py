"""JaxEngine: runs models on TPUs and NVIDIA GPUs, on all chips of this machine at once."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_embed.backends.host import ProgramEngine
from bert_embed.backends.jax import local_chips
from bert_embed.backends.jax.cache import ProgramCache
from bert_embed.backends.jax.kernels import OPTIONS, has_kernels
from bert_embed.backends.jax.packing import PackedRows, most_texts, placed
from bert_embed.backends.jax.program import as_written, program, program_weights
from bert_embed.backends.protocol import PaddedRows, Shape
from bert_embed.backends.runner import DEVICE_BATCH_TOKENS, BrokenModelError
from bert_embed.base.arrays import places
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.settings import OutputSpec, VectorSpec

_ROWS = "rows"  # the axis of the mesh: each chip has as many rows of a batch


class JaxEngine(ProgramEngine):
    """Runs each batch as one program, whose rows all chips share; calls may overlap."""

    device: AbstractContextManager = nullcontext()  # JAX keeps the order of programs itself

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str,
        threads: int = 1,
    ) -> None:
        """Copies the weights to each chip; `at_once` says the threads."""
        tensors = load_tensors(bundle)
        super().__init__(bundle, special_ids, tensors)
        self._chips = local_chips(device)
        self._cache = ProgramCache(bundle)
        mesh = Mesh(np.array(self._chips), (_ROWS,))
        self._by_row = NamedSharding(mesh, PartitionSpec(_ROWS))
        dtype = jax.numpy.dtype(precision)
        joined = has_kernels(bundle.config, dtype, self._chips)
        self._options = OPTIONS if device == "gpu" else None
        weights = program_weights(bundle, tensors, dtype, joined)
        self._weights = jax.device_put(weights, NamedSharding(mesh, PartitionSpec()))

    def batching(self, batch_tokens: int | None, longest: int) -> PackedRows:
        """See `protocol.Engine`, and `check_process`."""
        self.check_process()
        count = len(self._chips)
        budget = DEVICE_BATCH_TOKENS * count if batch_tokens is None else batch_tokens
        return PackedRows(budget, longest, count)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "Programs":
        """See `protocol.Engine`."""
        wanted, bundle = self.wanted(spec, output_spec, prompt_tokens), self._bundle
        by_row = self._by_row

        def compiled(exact: bool) -> Any:
            function = partial(program, wanted, bundle.heads, bundle.token_dense, exact=exact)
            function = on_all_chips(function, by_row)
            function.__name__ = self._cache.name
            jitted = jax.jit(
                function, out_shardings=as_written(by_row), compiler_options=self._options
            )
            return partial(jitted, self._weights)

        return Programs(compiled(False), compiled(True), by_row, self._cache.share)


def on_all_chips(function: Callable[..., Any], by_row: NamedSharding) -> Any:
    """Returns a function of weights, which each chip has, and of a batch whose rows they share.

    Each chip computes its rows by itself; a kernel of our own XLA could not divide.
    """
    return jax.shard_map(
        function,
        mesh=by_row.mesh,
        in_specs=(PartitionSpec(), *[by_row.spec] * 4),
        out_specs=by_row.spec,
        check_vma=False,
    )


class Programs:
    """A function of packed rows as a `bert_embed.backends.protocol.Graph`."""

    def __init__(
        self, function: Any, exact: Any, by_row: NamedSharding, compiled: Callable[[], object]
    ) -> None:
        """Takes what to call after a program was compiled, which is at the first of its shape.

        `exact` computes what `function` could not, and is compiled only if that happens.
        """
        self.function, self._exact = function, exact
        self.by_row, self._compiled = by_row, compiled
        self._shapes: set[Shape] = set()
        self._fitting: dict[int, int] = {}  # the rows that fit in memory, by their tokens

    def __call__(self, rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
        """See `protocol.Graph`: a batch that does not fit in memory runs in parts of fewer rows.

        MemoryError: nor does a row a chip. BrokenModelError: a chip failed.
        """
        count, length = shape
        if count <= self._fitting.get(length, count):
            try:
                return self._whole(rows, shape)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise BrokenModelError(_failure(error, self.by_row.mesh.devices)) from error
            # Not in the except clause, whose traceback holds the memory of what failed.
            fewer = count // 2 // self.by_row.mesh.size * self.by_row.mesh.size
            self._fitting[length] = min(fewer, self._fitting.get(length, fewer))
        if not (fewer := self._fitting[length]):
            raise MemoryError(f"a row of {length} tokens does not fit in the memory of a chip")
        row, *_ = placed(rows.mask.sum(axis=1), shape)
        outputs: dict[str, np.ndarray] = {}
        for part in np.split(np.arange(len(row)), np.searchsorted(row, range(fewer, count, fewer))):
            for name, values in self(rows.some(part), (fewer, length)).items() if len(part) else ():
                whole = outputs.setdefault(
                    name, np.empty((len(row), *values.shape[1:]), values.dtype)
                )
                whole[part] = values
        return outputs

    def _whole(self, rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
        outputs = self._run(self.function, rows, shape, *placed(rows.mask.sum(axis=1), shape))
        if shape not in self._shapes:
            self._shapes.add(shape)
            self._compiled()
        broken = np.flatnonzero(~_unspoiled(outputs, len(rows.mask)))
        # In a product with NaN a weight of 0 is NaN, too: each has a row of its own now, and those
        # that broke beside another one are whole, as are those that broke in a TPU's softmax.
        for start in range(0, len(broken), shape[0]):
            alone = broken[start : start + shape[0]]
            nothing = np.zeros(len(alone), np.int64)
            each = np.arange(len(alone)), nothing, nothing
            again = self._run(self._exact, rows.some(alone), shape, *each)
            for name, values in again.items():
                outputs[name][alone] = values
        return outputs

    def _run(
        self,
        function: Any,
        texts: PaddedRows,
        shape: Shape,
        row: np.ndarray,
        slot: np.ndarray,
        start: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Runs texts, each in a row, as one of the texts of that row, from its first token on."""
        mask, length = texts.mask, shape[1]
        inside, tokens = mask > 0, mask.sum(axis=1)
        at = places(row * length + start, tokens)
        lengths = np.zeros((shape[0], most_texts(length)), np.int32)
        lengths[row, slot] = tokens
        place = row * lengths.shape[1] + slot

        def packed(values: np.ndarray) -> np.ndarray:
            flat = np.zeros(shape[0] * length, np.int32)
            flat[at] = values[inside]
            return flat.reshape(shape)

        unseen = None if texts.seen is mask else packed(1 - texts.seen)
        batch = packed(texts.input_ids), packed(texts.type_ids), unseen, lengths
        found = function(*jax.device_put(batch, self.by_row))
        in_parts = {
            name: _LongestFirst(lengths, place, self.by_row.mesh.size)
            for name, values in found["texts"].items()
            if isinstance(values, tuple)
        }
        for name, longest_first in in_parts.items():
            found["texts"][name] = longest_first.with_texts(found["texts"][name])
        found, outputs = jax.device_get(found), {}
        for name, values in found["texts"].items():
            outputs[name] = in_parts[name].texts(values) if name in in_parts else values[place]
        for name, values in found["tokens"].items():
            outputs[name] = np.zeros((*mask.shape, values.shape[-1]), np.float32)
            outputs[name][inside] = values.reshape(-1, values.shape[-1])[at]
        return outputs


def _failure(error: Exception, chips: np.ndarray) -> str:
    """Says which chips failed, those that an error names or some of all, and XLA's word for how."""
    said, names = str(error), {chip.id: str(chip) for chip in chips.flat}
    numbers = re.findall(r"\b(?:device|ordinal|core|chip)\W+(\d+)", said, re.IGNORECASE)
    named = [names[int(number)] for number in numbers if int(number) in names] or names.values()
    return f"{' or '.join(dict.fromkeys(named))} failed: {said.partition(':')[0]:.60}"


class _LongestFirst:
    """Where texts are in the parts of a sparse head's output; see `program.parts_of_places`."""

    def __init__(self, lengths: np.ndarray, place: np.ndarray, chips: int) -> None:
        """Takes the places of texts among int32 `[rows, texts]` lengths, whose rows chips share."""
        order = np.argsort(-lengths.reshape(chips, -1), axis=1, kind="stable")
        self._chip, of_chip = np.divmod(place, order.shape[1])
        self._number, self._chips = np.argsort(order, axis=1)[self._chip, of_chip], chips

    def with_texts(self, parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Returns the parts that the host needs: most places of a batch hold no text."""
        starts = np.cumsum([0, *(len(part) // self._chips for part in parts[:-1])])
        return parts[: np.searchsorted(starts, self._number.max(), side="right")]

    def texts(self, parts: tuple[np.ndarray, ...]) -> np.ndarray:
        """Returns float32 `[texts, width]`."""
        found = np.empty((len(self._number), parts[0].shape[1]), np.float32)
        start = 0
        for part in parts:
            rows = part.reshape(self._chips, -1, part.shape[1])
            here = (start <= self._number) & (self._number < start + rows.shape[1])
            found[here] = rows[self._chip[here], self._number[here] - start]
            start += rows.shape[1]
        return found


def _unspoiled(outputs: Mapping[str, np.ndarray], texts: int) -> np.ndarray:
    """bool `[texts]`: whether nothing broke these.

    What spoils a token spoils all of its numbers, so that one is looked at: whether all are finite
    is for `bert_embed.backends.runner` to say.
    """
    unspoiled = np.ones(texts, bool)
    for values in outputs.values():
        unspoiled &= np.isfinite(values[..., 0] if values.ndim > 2 else values).all(axis=-1)
    return unspoiled
