"""LiteRTEngine: runs models on processors in float32 or int8, without TensorFlow."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from bert_embed.backends.host import HostEngine
from bert_embed.backends.litert import FILES
from bert_embed.base.threads import renew_after_fork
from bert_embed.bundle.bundle import Bundle
from bert_embed.storage.local import opened

# A run has one, and a caller compares two.
_HIGHEST_LAYERS = 2
_Cut = tuple[int, bool]  # the highest layer, and whether with heads that are apart


class LiteRTEngine(HostEngine):
    """Runs a bundle's file for LiteRT with XNNPACK's kernels, each batch on one core.

    XNNPACK's softmax would sum padded rows in another order than others.
    """

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        """Checks the model's file, which is loaded at the first call of `graph`."""
        bundle.verify_files([FILES[precision]])
        super().__init__(bundle, special_ids)
        self._apart = {*bundle.heads_apart}
        self._per_token = bundle.per_token
        self._file = Path(bundle.path, FILES[precision])
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

    def modules(self, vectors: np.ndarray) -> np.ndarray:
        # Every model has them, whatever its highest layer.
        cut = next(iter(tuple(self._idle)), (self.config.num_hidden_layers, False))
        with self._lent(cut) as model:
            return model.call("modules", vectors)

    def model(
        self, highest: int, heads: Sequence[str] = ()
    ) -> AbstractContextManager["LiteRTModel"]:
        return self._lent((highest, not self._apart.isdisjoint(heads)))

    @contextmanager
    def _lent(self, cut: _Cut) -> Iterator["LiteRTModel"]:
        with self._lock:
            if cut not in self._contents:
                self._contents[cut] = self._content(cut)
            idle = self._idle.setdefault(cut, [])
            # All but the latest highest layers are forgotten: each thread holds their weights anew.
            self._contents[cut] = self._contents.pop(cut)
            for old in list(self._contents)[:-_HIGHEST_LAYERS]:
                del self._contents[old], self._idle[old]
            model, content = idle.pop() if idle else None, self._contents[cut]
        model = model or LiteRTModel(self._file, content, self._per_token)
        try:
            yield model
        finally:
            idle.append(model)

    def _content(self, cut: _Cut) -> bytes | None:
        """Returns the model up to a layer; None for the file as it is."""
        highest, apart = cut
        if highest == self.config.num_hidden_layers and not apart:
            if not self._shared:
                return None
            with opened(self._file) as file:
                return file.read()
        from bert_embed.backends.litert.file import cut_model  # imports LiteRT's schema: 0.2 s

        return cut_model(self._file, highest + 1, apart)


class LiteRTModel:
    """A model in LiteRT, for one thread at a time; from `content`, else from the file."""

    def __init__(self, file: Path, content: bytes | None, per_token: Sequence[str] = ()) -> None:
        """Keeps the kinds of heads that give something `per_token`."""
        self._per_token = per_token
        self._interpreter = Interpreter(None if content else str(file), content, num_threads=1)
        self._interpreter.allocate_tensors()
        self._shape: tuple[int, ...] = ()
        runner = self._interpreter.get_signature_runner("hidden_states")
        self._inputs, self._outputs = (
            {name: detail["index"] for name, detail in details.items()}
            for details in (runner.get_input_details(), runner.get_output_details())
        )

    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> dict[int, np.ndarray]:
        """See `Model.states`; few models take a mask."""
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
            interpreter.set_tensor(self._inputs["mask"], mask)
        elif not mask.all():
            raise ValueError("this model lets every token see all of its row, padding included")
        interpreter.invoke()
        return {
            layer: interpreter.get_tensor(self._outputs[f"layer_{layer}"]).reshape(*shape, -1)
            for layer in layers
        }

    def call(self, signature: str, x: np.ndarray) -> np.ndarray:
        runner = self._interpreter.get_signature_runner(signature)
        y = runner(x=np.ascontiguousarray(x))["y"]
        return y.reshape(*x.shape[:2], -1) if signature in self._per_token else y
