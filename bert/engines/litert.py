"""LiteRTEngine: products in int8 on processors, without TensorFlow in the process."""

import queue
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from bert.bundle.bundle import Bundle
from bert.engines.batches import CPU_BATCH_TOKENS, AnyShape
from bert.engines.litert_convert import Request, litert_file
from bert.quiet import without_notes
from bert.specs import OutputSpec, VectorSpec


class LiteRTEngine:
    """Runs a converted model with XNNPACK's kernels, each batch on one core.

    Batches hold rows of equal length: XNNPACK's softmax sums padded rows in another order, and a
    vector must have the same bits whatever its neighbours are.
    """

    at_once: int | None = None
    device: AbstractContextManager = nullcontext()  # models do not wait for each other

    def __init__(self, bundle: Bundle, special_ids: tuple[int, int]) -> None:
        """Keeps the model, which is converted at the first call of `graph`.

        Args:
            bundle: The model.
            special_ids: Ids of [CLS] and [SEP].
        """
        self._bundle, self._special = bundle, special_ids
        self._finishers: dict[VectorSpec, _Graph] = {}
        self._lock = threading.Lock()

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        """See `bert.engines.protocol.Engine`."""
        return AnyShape(CPU_BATCH_TOKENS if batch_tokens is None else batch_tokens, equal=True)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "_Graph":
        """See `bert.engines.protocol.Engine`.

        Raises:
            InputError: The model's files are damaged, or the cache cannot be written.
        """
        return self._graph_of(Request(spec, output_spec, prompt_tokens, self._special))

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert.engines.protocol.Engine`."""
        with self._lock:
            if spec not in self._finishers:
                self._finishers[spec] = self._graph_of(Request(spec, None, 0, self._special))
        return self._finishers[spec].run({"pooled": pooled})["sentences"]

    def _graph_of(self, request: Request) -> "_Graph":
        return _Graph(litert_file(self._bundle, request))


class _Graph:
    """Interpreters of one model; each serves one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._idle: queue.LifoQueue[_Loaded] = queue.LifoQueue()
        first = _Loaded.of(file)
        self.widths = first.widths
        self._idle.put(first)

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        return self.run({"input_ids": input_ids, "type_ids": type_ids})

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs one batch, in an interpreter that no other thread uses at the same time."""
        try:
            loaded = self._idle.get_nowait()
        except queue.Empty:
            loaded = _Loaded.of(self._file)
        try:
            return loaded.run(inputs)
        finally:
            self._idle.put(loaded)


@dataclass
class _Loaded:
    interpreter: Interpreter
    inputs: dict[str, int]
    outputs: dict[str, int]
    widths: dict[str, int]
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, file: Path) -> "_Loaded":
        with without_notes():  # it prints a line about XNNPACK
            interpreter = Interpreter(str(file), num_threads=1)
            interpreter.allocate_tensors()
        runner = interpreter.get_signature_runner()
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        return cls(
            interpreter,
            {name: details["index"] for name, details in inputs.items()},
            {name: details["index"] for name, details in outputs.items()},
            {name: int(details["shape_signature"][-1]) for name, details in outputs.items()},
        )

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        shape = next(iter(inputs.values())).shape
        if shape != self.shape:
            self.shape = ()  # until all inputs are resized
            for place in self.inputs.values():
                self.interpreter.resize_tensor_input(place, shape)
            self.interpreter.allocate_tensors()
            self.shape = shape
        for name, place in self.inputs.items():
            self.interpreter.set_tensor(place, inputs[name])
        self.interpreter.invoke()
        return {name: self.interpreter.get_tensor(at) for name, at in self.outputs.items()}
