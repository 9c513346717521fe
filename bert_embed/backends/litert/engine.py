"""LiteRTEngine: runs models on processors in float32 or int8, without TensorFlow."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from bert_embed.backends.batches import CPU_BATCH_TOKENS, AnyShape
from bert_embed.backends.pooling import combine_layers, counted_tokens, pool
from bert_embed.backends.protocol import Graph
from bert_embed.backends.runner import renew_after_fork
from bert_embed.bundle.bundle import LITERT, Bundle
from bert_embed.settings import OutputSpec, VectorSpec

# A run has one, and a caller compares two.
_HIGHEST_LAYERS = 2
_Cut = tuple[int, bool]  # the highest layer, and whether with heads that are apart


class LiteRTEngine:
    """Runs a bundle's file for LiteRT with XNNPACK's kernels, each batch on one core.

    Batches hold rows of equal length: XNNPACK's softmax sums padded rows in another order, and a
    vector must have the same bits whatever its neighbours are.
    """

    at_once: int | None = None
    device: AbstractContextManager = nullcontext()  # models do not wait for each other

    def __init__(
        self, bundle: Bundle, special_ids: tuple[int, int], precision: str, threads: int = 1
    ) -> None:
        """Checks the model's file, which is loaded at the first call of `graph`."""
        bundle.verify_files([LITERT[precision]])
        self.config, self.special_ids, self.heads = bundle.config, special_ids, bundle.heads
        self._apart = {*bundle.heads_apart}
        self._file = Path(bundle.path, LITERT[precision])
        # One thread maps the file, which then is in memory once for all processes of a machine;
        # several share a copy, because each interpreter would map the file anew.
        self._shared = threads > 1
        # By the highest layer, and whether with heads that are apart, the latest last: what models
        # are read from, and those that no thread uses now.
        self._contents: dict[_Cut, bytes | None] = {}
        self._idle: dict[_Cut, list[LiteRTModel]] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Keeps what was idle; the models of the other process's threads are not lent again."""
        self._lock = threading.Lock()

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        return AnyShape(CPU_BATCH_TOKENS if batch_tokens is None else batch_tokens, equal=True)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Graph:
        return partial(self._run, spec, output_spec, prompt_tokens)

    def _run(
        self,
        spec: VectorSpec,
        output_spec: OutputSpec,
        prompt_tokens: int,
        input_ids: np.ndarray,
        mask: np.ndarray,
        type_ids: np.ndarray,
    ) -> dict[str, np.ndarray]:
        layers = spec.layer_numbers(self.config) if output_spec.sentences else ()
        token_layers = spec.token_layer_numbers(self.config) if output_spec.tokens else ()
        last = self.config.num_hidden_layers
        if output_spec.sentences and not mask.all():
            raise ValueError(
                "pooling counts every token of a row, padding and unseen ones included"
            )
        outputs = {}
        used = {*layers, *token_layers, *([last] if output_spec.heads else [])}
        with self.model(max(used), not self._apart.isdisjoint(output_spec.heads)) as model:
            states = model.states(input_ids, type_ids, used, mask)
            if output_spec.sentences and spec.pooling == "pooler":
                outputs["sentences"] = model.call("pooler", states[layers[0]][:, 0])
            for kind in output_spec.heads:
                output = model.call(kind, states[last])
                per_token = self.heads[kind].per_token
                outputs[kind] = output.reshape(*input_ids.shape, -1) if per_token else output
        if output_spec.tokens:
            combined = combine_layers([states[n] for n in token_layers], spec.layer_combine)
            outputs["tokens"] = np.concatenate(combined, axis=-1)
        if output_spec.sentences and spec.pooling != "pooler":
            counted = counted_tokens(input_ids, self.special_ids, spec, prompt_tokens)
            combined = combine_layers([states[n] for n in layers], spec.layer_combine)
            pooled = [pool(layer, counted, spec.poolings) for layer in combined]
            outputs["sentences"] = np.concatenate(pooled, axis=1)
        return outputs

    def dense(self, vectors: np.ndarray) -> np.ndarray:
        # Every model has these modules, whatever its highest layer.
        cut = next(iter(tuple(self._idle)), (self.config.num_hidden_layers, False))
        with self.model(*cut) as model:
            return model.call("dense", vectors)

    @contextmanager
    def model(self, highest: int, apart: bool = False) -> Iterator["LiteRTModel"]:
        """Lends the model up to its layer `highest` to one thread, with heads that are apart."""
        cut = highest, apart
        with self._lock:
            if cut not in self._contents:
                self._contents[cut] = self._content(cut)
            idle = self._idle.setdefault(cut, [])
            self._forget_others(cut)
            model, content = idle.pop() if idle else None, self._contents[cut]
        model = model or LiteRTModel(self._file, content)
        try:
            yield model
        finally:
            idle.append(model)

    def _forget_others(self, cut: _Cut) -> None:
        """Forgets all but the latest highest layers: each thread holds their weights anew."""
        self._contents[cut] = self._contents.pop(cut)
        for old in list(self._contents)[:-_HIGHEST_LAYERS]:
            del self._contents[old], self._idle[old]

    def _content(self, cut: _Cut) -> bytes | None:
        """Returns the model up to a layer; None for the file as it is."""
        highest, apart = cut
        if highest == self.config.num_hidden_layers and not apart:
            return self._file.read_bytes() if self._shared else None
        from bert_embed.backends.litert.file import cut_model  # imports LiteRT's schema: 0.2 s

        return cut_model(self._file, highest + 1, apart)


class LiteRTModel:
    """A model in LiteRT, for one thread at a time; from `content`, else from the file."""

    def __init__(self, file: Path, content: bytes | None) -> None:
        self._interpreter = Interpreter(None if content else str(file), content, num_threads=1)
        self._interpreter.allocate_tensors()
        self._shape: tuple[int, ...] = ()
        runner = self._interpreter.get_signature_runner("hidden_states")
        self._inputs, self._outputs = (
            {name: detail["index"] for name, detail in details.items()}
            for details in (runner.get_input_details(), runner.get_output_details())
        )

    def states(
        self,
        input_ids: np.ndarray,
        type_ids: np.ndarray,
        layers: set[int],
        mask: np.ndarray | None = None,
    ) -> dict[int, np.ndarray]:
        """Returns float32 `[batch, length, hidden]` for each of the layers.

        `mask`, which few models take, is 0 for tokens that no token sees; None is all 1.
        """
        interpreter, shape = self._interpreter, input_ids.shape
        if shape != self._shape:
            self._shape = ()  # until all inputs are resized
            for place in self._inputs.values():
                interpreter.resize_tensor_input(place, shape)
            interpreter.allocate_tensors()
            self._shape = shape
        interpreter.set_tensor(self._inputs["input_ids"], input_ids)
        interpreter.set_tensor(self._inputs["type_ids"], type_ids)
        if "mask" in self._inputs:
            seen = np.ones(shape, np.int32) if mask is None else mask
            interpreter.set_tensor(self._inputs["mask"], seen)
        elif mask is not None and not mask.all():
            raise ValueError("this model lets every token see all of its row, padding included")
        interpreter.invoke()
        return {
            layer: interpreter.get_tensor(self._outputs[f"layer_{layer}"]).reshape(*shape, -1)
            for layer in layers
        }

    def call(self, signature: str, x: np.ndarray) -> np.ndarray:
        """Returns what pooler or Dense modules make of `[rows, width]`, a head of states."""
        runner = self._interpreter.get_signature_runner(signature)
        return runner(x=np.ascontiguousarray(x))["y"]


class DenseModules:
    """The Dense modules of a bundle in float32. Several threads may call it."""

    def __init__(self, bundle: Bundle) -> None:
        # Without XNNPACK, which would pack the encoder's weights anew.
        kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        file = str(Path(bundle.path, LITERT["float32"]))
        self._interpreter = Interpreter(file, num_threads=1, experimental_op_resolver_type=kind)
        self._lock = threading.Lock()

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Returns float32 `[rows, out_features]` of float32 `[rows, in_features]`."""
        with self._lock:
            runner = self._interpreter.get_signature_runner("dense")
            return runner(x=np.ascontiguousarray(vectors))["y"]
