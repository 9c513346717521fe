"""JaxEngine: runs packed rows on this machine's chips; keeps programs, here and for others."""

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import zstandard
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_embed.backends.host import ProgramEngine
from bert_embed.backends.jax import local_chips
from bert_embed.backends.jax.kernels import OPTIONS, has_kernels
from bert_embed.backends.jax.packing import PackedRows, most_texts, placed, usual_tokens
from bert_embed.backends.jax.program import as_written, program, program_weights
from bert_embed.backends.protocol import PaddedRows, Shape
from bert_embed.backends.runner import BrokenModelError
from bert_embed.base.arrays import places
from bert_embed.base.errors import InputError
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.bundle.cache import cache_folder
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.storage.files import join, make_folder, names_in, read_bytes, write_unsynced

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
        self._device, self._chips = device, local_chips(device)
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
        if batch_tokens is None:
            batch_tokens = usual_tokens(self._device, longest) * count
        return PackedRows(batch_tokens, longest, count)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> "ChipPrograms":
        """See `protocol.Engine`."""
        wanted, bundle = self.wanted(spec, output_spec, head), self._bundle
        by_row = self._by_row

        def compiled(exact: bool) -> Any:
            settings = wanted, bundle.heads, bundle.token_dense
            # To copy them costs a GPU less than to fetch all; what it costs a TPU, nobody measured.
            in_parts = self._device != "tpu"
            function: Any = partial(program, *settings, exact=exact, in_parts=in_parts)
            function = on_all_chips(function, by_row)
            function.__name__ = self._cache.name
            jitted = jax.jit(
                function, out_shardings=as_written(by_row), compiler_options=self._options
            )
            return partial(jitted, self._weights)

        return ChipPrograms(compiled(False), compiled(True), by_row, self._cache.share)


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


class ChipPrograms:
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
        rows: PaddedRows,
        shape: Shape,
        row: np.ndarray,
        slot: np.ndarray,
        start: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Runs texts, each in a row, as one of the texts of that row, from its first token on."""
        mask, length = rows.mask, shape[1]
        inside, tokens = mask > 0, mask.sum(axis=1)
        at = places(row * length + start, tokens)
        lengths = np.zeros((shape[0], most_texts(length)), np.int32)
        lengths[row, slot] = tokens

        def packed(values: np.ndarray) -> np.ndarray:
            flat = np.zeros(shape[0] * length, np.int32)
            flat[at] = values[inside]
            return flat.reshape(shape)

        unseen = None if rows.seen is mask else packed(1 - rows.seen)
        batch = packed(rows.input_ids), packed(rows.type_ids), unseen, lengths
        found = function(*jax.device_put(batch, self.by_row))
        places_of = {"texts": _ChipSlots(row, slot, shape[0])}
        if found["largest"]:
            places_of["largest"] = _longest_first(lengths, row, slot, self.by_row.mesh.size)
        for group, texts in places_of.items():
            found[group] = {name: texts.needed(parts) for name, parts in found[group].items()}
        found = jax.device_get(found)
        outputs: dict[str, np.ndarray] = {}
        for group, texts in places_of.items():
            outputs |= {name: texts.found(parts) for name, parts in found[group].items()}
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


class _ChipSlots:
    """Where texts are in the parts of a program's output, each of which has some of each group."""

    def __init__(self, group: np.ndarray, number: np.ndarray, groups: int) -> None:
        """Takes, int `[texts]` each, the group of a text, and its number there in all parts."""
        self._group, self._number, self._groups = group, number, groups

    def needed(self, parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Returns the parts that have texts: most places of a batch have none."""
        starts = np.cumsum([0, *(len(part) // self._groups for part in parts[:-1])])
        return parts[: np.searchsorted(starts, self._number.max(), side="right")]

    def found(self, parts: tuple[np.ndarray, ...]) -> np.ndarray:
        """Returns float32 `[texts, width]`."""
        found = np.empty((len(self._number), parts[0].shape[1]), np.float32)
        start = 0
        for part in parts:
            count = len(part) // self._groups
            here = np.flatnonzero((start <= self._number) & (self._number < start + count))
            found[here] = part[self._group[here] * count + self._number[here] - start]
            start += count
        return found


def _longest_first(
    lengths: np.ndarray, row: np.ndarray, slot: np.ndarray, chips: int
) -> _ChipSlots:
    """Returns the places of texts among int32 `[rows, texts]` lengths, whose rows chips share.

    See `program.parts_of_places`.
    """
    order = np.argsort(-lengths.reshape(chips, -1), axis=1, kind="stable")
    chip, of_chip = np.divmod(row * lengths.shape[1] + slot, order.shape[1])
    return _ChipSlots(chip, np.argsort(order, axis=1)[chip, of_chip], chips)


def _unspoiled(outputs: Mapping[str, np.ndarray], texts: int) -> np.ndarray:
    """bool `[texts]`: whether nothing broke these.

    What spoils a token spoils all of its numbers, so that one is looked at: whether all are finite
    is for `bert_embed.backends.runner` to say.
    """
    unspoiled = np.ones(texts, bool)
    for values in outputs.values():
        unspoiled &= np.isfinite(values[..., 0] if values.ndim > 2 else values).all(axis=-1)
    return unspoiled


_LOG = logging.getLogger(__name__)
_SUFFIX = "-cache"  # of a program, as JAX names its files
_AT_ONCE = 4  # files: each is held in memory


class ProgramCache:
    """Where JAX finds the programs of a model, by all that decides them, versions and chips too.

    It keeps them in a folder of this machine. `Bundle.programs`, if there is one, gives those that
    other workers compiled, and gets those that this one did; files appear there as a whole.

    Attributes:
        name: Of the function to compile. JAX's names of files begin with it: by it those of models
            of other sizes are left alone.
    """

    def __init__(self, bundle: Bundle) -> None:
        sizes = json.dumps(bundle.config.to_dict(), sort_keys=True)
        self.name = f"program_{hashlib.sha256(sizes.encode()).hexdigest()[:12]}"
        self._shared, self._lock = bundle.programs, threading.Lock()
        self._known: set[str] = set()  # names of whole files in the shared folder
        self._folder = _folder()
        if (folder := self._folder) is not None:
            # What a process wrote that was killed JAX would neither read nor replace.
            for name in self._names(os.listdir(folder)):
                data = read_bytes(str(folder / name))
                if data is not None and not _is_whole(data):
                    (folder / name).unlink(missing_ok=True)
            self._fetch(folder)

    def share(self) -> None:
        """Copies programs that were compiled on this machine to where other workers find them."""
        if self._folder is None or not self._shared:
            return
        with self._lock, self._tolerating():
            for name in self._names(os.listdir(self._folder)):
                data = b"" if name in self._known else read_bytes(join(str(self._folder), name))
                if data and _is_whole(data):  # else another process still writes it
                    make_folder(self._shared)
                    write_unsynced(join(self._shared, name), data)
                    self._known.add(name)

    def _fetch(self, folder: Path) -> None:
        if not self._shared:
            return
        here = set(os.listdir(folder))

        def fetch(name: str) -> None:
            data = None if name in here else read_bytes(join(self._shared, name))
            if name in here or (data and _is_whole(data)):
                self._known.add(name)  # others are written anew
            if name in self._known and data:
                write_unsynced(str(folder / name), data)

        with self._tolerating():
            for _ in in_parallel(fetch, self._names(names_in(self._shared)), _AT_ONCE):
                pass

    def _names(self, names: list[str]) -> list[str]:
        start = f"jit_{self.name}-"
        return sorted(name for name in names if name.startswith(start) and name.endswith(_SUFFIX))

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Warns once where the shared folder cannot be used; each worker compiles for itself."""
        try:
            yield
        except (OSError, InputError) as error:
            _LOG.warning("compiled programs are not shared with other workers: %s", error)
            self._shared = ""


def _folder() -> Path | None:
    """The folder in which JAX keeps programs for us; None where the user chose another one.

    JAX reads the setting at its first program of the process, and we set it before ours.
    """
    chosen = jax.config.jax_compilation_cache_dir
    try:
        folder = cache_folder() / "jax"
        if chosen is None:
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, InputError) as error:
        _LOG.warning("compiled programs are not kept on this machine: %s", error)
        return None
    if chosen is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        # A worker compiles few programs, and each second counts for all that start later.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        # Else this folder's path is part of what a program is named after.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    return folder if chosen in (None, str(folder)) else None


def _is_whole(data: bytes) -> bool:
    """Whether a file of JAX's cache, which it writes in place, is complete."""
    with suppress(zstandard.ZstdError):
        return bool(zstandard.decompress(data))
    return False
