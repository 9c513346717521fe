"""LiteRTEngine: runs models on processors in float32 or int8, without TensorFlow."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import LITERT
from bert_embed.engines.allocator import return_large_blocks
from bert_embed.engines.batches import CPU_BATCH_TOKENS, AnyShape
from bert_embed.engines.pooling import combine_layers, counted_tokens, pool, unit_length
from bert_embed.quiet import without_notes
from bert_embed.specs import OutputSpec, VectorSpec

# A run has one, and a caller compares two.
_HIGHEST_LAYERS = 2


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
        """Checks the model's file, which is loaded at the first call of `graph`.

        Args:
            bundle: The model.
            special_ids: Ids of [CLS] and [SEP].
            precision: "float32" or "int8".
            threads: How many threads will compute at once. One maps the file, which then is in
                memory once for all processes of a machine; several share a copy of their own,
                because each interpreter would map the file anew.

        Raises:
            InputError: The file is damaged.
        """
        return_large_blocks()
        bundle.verify_files([LITERT[precision]])
        self.config, self.special_ids = bundle.config, special_ids
        self._file = Path(bundle.path, LITERT[precision])
        self._shared = threads > 1
        # By the highest layer, the latest last: what models are read from, and those that no thread
        # uses now.
        self._contents: dict[int, bytes | None] = {}
        self._idle: dict[int, list[LiteRTModel]] = {}
        self._lock = threading.Lock()

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        """See `bert_embed.engines.protocol.Engine`."""
        return AnyShape(CPU_BATCH_TOKENS if batch_tokens is None else batch_tokens, equal=True)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "_Graph":
        """See `bert_embed.engines.protocol.Engine`."""
        return _Graph(self, spec, output_spec, prompt_tokens)

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert_embed.engines.protocol.Engine`."""
        layers = np.split(pooled, pooled.shape[1] // spec.pooled_width(self.config), axis=1)
        if spec.dense:
            # Every model has these modules, whatever its highest layer.
            highest = next(iter(tuple(self._idle)), self.config.num_hidden_layers)
            with self.model(highest) as model:
                layers = [model.call("dense", layer) for layer in layers]
        layers = [layer[:, : spec.dim] for layer in layers]
        return np.concatenate([unit_length(each) if spec.normalize else each for each in layers], 1)

    @contextmanager
    def model(self, highest: int) -> Iterator["LiteRTModel"]:
        """Lends the model up to its layer `highest` to one thread."""
        with self._lock:
            if highest not in self._contents:
                self._contents[highest] = self._content(highest)
            idle = self._idle.setdefault(highest, [])
            self._forget_others(highest)
            model, content = idle.pop() if idle else None, self._contents[highest]
        model = model or LiteRTModel(self._file, content)
        try:
            yield model
        finally:
            idle.append(model)

    def _forget_others(self, highest: int) -> None:
        """Forgets all but the latest highest layers: each holds the weights anew, for each thread.

        A thread that computes with one of them keeps its model until it is done.
        """
        self._contents[highest] = self._contents.pop(highest)
        for old in list(self._contents)[:-_HIGHEST_LAYERS]:
            del self._contents[old], self._idle[old]

    def _content(self, highest: int) -> bytes | None:
        """Returns the model up to a layer; None for the file as it is."""
        if highest == self.config.num_hidden_layers:
            return self._file.read_bytes() if self._shared else None
        from bert_embed.graph.litert_file import cut_model  # imports LiteRT's schema: 0.2 s

        return cut_model(self._file, highest + 1)


class _Graph:
    """Computes one kind of output."""

    def __init__(
        self, engine: LiteRTEngine, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int
    ) -> None:
        self._engine, self._spec, self._output_spec = engine, spec, output_spec
        self._prompt_tokens, config = prompt_tokens, engine.config
        self._layers = spec.layer_numbers(config) if output_spec.sentences else ()
        self._token_layers = spec.token_layer_numbers(config) if output_spec.tokens else ()
        one = np.ones((1, 1), np.int32)
        self.widths = {name: each.shape[-1] for name, each in self(one, one, one * 0).items()}

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        outputs = {}
        spec = self._spec
        with self._engine.model(max(self._layers + self._token_layers)) as model:
            states = model.states(input_ids, type_ids, {*self._layers, *self._token_layers})
            if self._output_spec.sentences and spec.pooling == "pooler":
                pooled = model.call("pooler", states[self._layers[0]][:, 0])
        if self._output_spec.tokens:
            layers = combine_layers([states[n] for n in self._token_layers], spec.layer_combine)
            outputs["tokens"] = np.concatenate([each[:, :, : spec.dim] for each in layers], axis=-1)
        if not self._output_spec.sentences:
            return outputs
        if spec.pooling != "pooler":
            rest = self._engine.special_ids, spec, self._prompt_tokens
            counted = counted_tokens(input_ids, *rest)
            layers = combine_layers([states[n] for n in self._layers], spec.layer_combine)
            pooled = np.concatenate([pool(each, counted, spec.pooling) for each in layers], axis=1)
        finished = self._output_spec.finished
        outputs["sentences"] = self._engine.finish(spec, pooled) if finished else pooled
        return outputs


class LiteRTModel:
    """A model in LiteRT, for one thread at a time; from `content`, else from the file."""

    def __init__(self, file: Path, content: bytes | None) -> None:
        with without_notes():  # it prints a line about XNNPACK
            self._interpreter = Interpreter(None if content else str(file), content, num_threads=1)
            self._interpreter.allocate_tensors()
        self._shape: tuple[int, ...] = ()
        runner = self._interpreter.get_signature_runner("hidden_states")
        self._inputs, self._outputs = (
            {name: each["index"] for name, each in details.items()}
            for details in (runner.get_input_details(), runner.get_output_details())
        )

    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int]
    ) -> dict[int, np.ndarray]:
        """Returns float32 `[batch, length, hidden]` for each of the layers."""
        interpreter, shape = self._interpreter, input_ids.shape
        if shape != self._shape:
            self._shape = ()  # until all inputs are resized
            for place in self._inputs.values():
                interpreter.resize_tensor_input(place, shape)
            interpreter.allocate_tensors()
            self._shape = shape
        interpreter.set_tensor(self._inputs["input_ids"], input_ids)
        interpreter.set_tensor(self._inputs["type_ids"], type_ids)
        interpreter.invoke()
        found = {layer: self._outputs[f"layer_{layer}"] for layer in layers}
        return {
            layer: interpreter.get_tensor(place).reshape(*shape, -1)
            for layer, place in found.items()
        }

    def call(self, signature: str, x: np.ndarray) -> np.ndarray:
        """Returns what the pooler or the Dense modules make of float32 `[rows, width]`."""
        runner = self._interpreter.get_signature_runner(signature)
        return runner(x=np.ascontiguousarray(x))["y"]
