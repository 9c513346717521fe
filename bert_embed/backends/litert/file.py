"""Writes models in LiteRT's file format: a header with the operations, then the weights."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from bert_embed.storage.local import opened

_ALIGNMENT = 64  # bytes; weights are mapped into memory and used where they are
_IDENTIFIER, _VERSION = b"TFL3", 3  # of the format
_TYPES = {"float32": "FLOAT32", "int32": "INT32", "int8": "INT8"}


class ModelFile:
    """A model under construction: one graph or several."""

    def __init__(self) -> None:
        # Tensors without a value have buffer 0.
        self._model = schema.ModelT(_VERSION, [], [], buffers=[schema.BufferT()], signatureDefs=[])
        self._arrays: list[np.ndarray] = []
        self._places: list[tuple[int, int]] = []  # of each buffer: its array, and the first byte
        self._named: dict[str, int] = {}
        self._operators: dict[tuple[str, int], int] = {}
        self._apart: list[int] = []

    def graph(self, name: str, apart: bool = False) -> "FileGraph":
        """Adds a graph, which LiteRT calls as the signature of this name.

        One `apart` is in a second header behind the weights, which `cut_model` reads: LiteRT makes
        a copy of a table of words for each graph that multiplies by it, used or not.
        """
        graph = schema.SubGraphT([], [], [], [], name)
        if apart:
            self._apart.append(len(self._model.subgraphs))
        signature = schema.SignatureDefT([], [], name, len(self._model.subgraphs))
        self._model.subgraphs.append(graph)
        self._model.signatureDefs.append(signature)
        return FileGraph(self, graph, signature)

    def operator(self, name: str, version: int) -> int:
        """Returns the number in this file of one of LiteRT's operators."""
        if (name, version) not in self._operators:
            self._operators[name, version] = len(self._operators)
            code = getattr(schema.BuiltinOperator, name)
            # The first field is for old readers, and holds at most 127.
            self._model.operatorCodes.append(
                schema.OperatorCodeT(min(code, 127), version=version, builtinCode=code)
            )
        return self._operators[name, version]

    def buffer(self, array: np.ndarray, key: str = "") -> int:
        """Adds weights and returns the number of their buffer; those of one key are there once."""
        if key in self._named:
            return self._named[key]
        self._arrays.append(np.ascontiguousarray(array))
        number = self._add_buffer(len(self._arrays) - 1, 0, array.nbytes)
        if key:
            self._named[key] = number
        return number

    def part(self, buffer: int, start: int, size: int) -> int:
        """Returns the number of a buffer that is a part of another one, in bytes."""
        array, begin = self._places[buffer - 1]
        if start % _ALIGNMENT:
            raise RuntimeError(f"a part of a buffer begins at {start}, not at {_ALIGNMENT} bytes")
        return self._add_buffer(array, begin + start, size)

    def _add_buffer(self, array: int, start: int, size: int) -> int:
        self._places.append((array, start))
        self._model.buffers.append(schema.BufferT(offset=_ALIGNMENT, size=size))
        return len(self._places)

    def write(self, path: Path) -> None:
        """Writes the file."""
        start = place = _aligned(len(_packed(self._model)))  # the same length whatever the offsets
        first = _without(self._model, self._apart)
        begins = []
        for array in self._arrays:
            begins.append(place)
            place += _aligned(array.nbytes)
        for buffer, (number, begin) in zip(self._model.buffers[1:], self._places, strict=True):
            buffer.offset = begins[number] + begin
        with open(path, "wb") as file:
            file.write(_packed(first).ljust(start, b"\0"))
            for array in self._arrays:
                file.write(array.tobytes().ljust(_aligned(array.nbytes), b"\0"))
            if self._apart:
                file.write(_packed(self._model))


class FileGraph:
    """A graph under construction, whose tensors are numbers."""

    def __init__(self, file: ModelFile, graph: Any, signature: Any) -> None:
        self._file, self._graph, self._signature = file, graph, signature

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> int:
        """Adds an input; -1 in `shape` is any size."""
        tensor = self._tensor(dtype, shape)
        self._graph.inputs.append(tensor)
        self._signature.inputs.append(schema.TensorMapT(name, tensor))
        return tensor

    def output(self, name: str, tensor: int) -> None:
        """Makes a tensor an output."""
        self._graph.outputs.append(tensor)
        self._signature.outputs.append(schema.TensorMapT(name, tensor))

    def width(self, tensor: int) -> int:
        """Returns the last dimension of a tensor."""
        return int(self._graph.tensors[tensor].shapeSignature[-1])

    def constant(self, array: np.ndarray, scales: np.ndarray | None = None, key: str = "") -> int:
        """Adds weights; int8 ones count times `scales`, one for all or one for each row.

        Those of one key, in any graph of the file, are in the file once.
        """
        buffer = self._file.buffer(array, key)
        return self._tensor(array.dtype.name, array.shape, scales, buffer)

    def row_blocks(
        self, array: np.ndarray, scales: np.ndarray | None, key: str, rows: int
    ) -> Iterator[int]:
        """Yields a constant for each block of rows of a table, which is in the file once."""
        buffer = self._file.buffer(array, key)
        size = array.nbytes // len(array)
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            part = self._file.part(buffer, start * size, block.nbytes)
            of_block = None if scales is None else scales[start : start + rows]
            yield self._tensor(array.dtype.name, block.shape, of_block, part)

    def numbers(self, *values: int) -> int:
        """Adds an int32 constant `[values]`, such as axes or a shape."""
        return self.constant(np.array(values, np.int32))

    def add(
        self,
        operator: str,
        *inputs: int,
        options: Any = None,
        version: int = 1,
        outputs: int = 1,
        shape: Sequence[int] | None = None,
        dtype: str = "float32",
        scales: np.ndarray | None = None,
    ) -> Any:
        """Adds an operation, and returns its output, or a list of several.

        `options` are an object of `schema`. Types other than float32 may need a later `version`.
        `shape` is that of the outputs, -1 for any size, None for that of the first input: XNNPACK
        leaves out operations on values of unknown rank. `scales` are theirs, if they are int8.
        """
        if shape is None:
            shape = self._graph.tensors[inputs[0]].shapeSignature
        made = [self._tensor(dtype, shape, scales) for _ in range(outputs)]
        kind = type(options).__name__.removesuffix("T") if options else "NONE"
        self._graph.operators.append(
            schema.OperatorT(
                self._file.operator(operator, version),
                list(inputs),
                made,
                getattr(schema.BuiltinOptions, kind),
                options,
            )
        )
        return made[0] if outputs == 1 else made

    def _tensor(
        self, dtype: str, shape: Sequence[int], scales: np.ndarray | None = None, buffer: int = 0
    ) -> int:
        tensor = schema.TensorT([abs(size) for size in shape], buffer=buffer)
        tensor.type, tensor.shapeSignature = getattr(schema.TensorType, _TYPES[dtype]), list(shape)
        if scales is not None:
            zeros = np.zeros(len(scales), np.int64)
            tensor.quantization = schema.QuantizationParametersT(scale=scales, zeroPoint=zeros)
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1


def cut_model(path: str | Path, outputs: int, apart: bool = False) -> bytes:
    """Returns a model whose first graph ends as soon as its first outputs are computed.

    It has the graphs that are `apart` only if that is said.
    """
    with opened(path) as file:
        data = file.read()
    model = schema.ModelT.InitFromPackedBuf(data[_whole_header(data) :] if apart else data)
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    last = graph.outputs[outputs - 1]
    needed = next(n for n, one in enumerate(graph.operators, 1) if last in one.outputs)
    graph.outputs, graph.operators = graph.outputs[:outputs], graph.operators[:needed]
    signature.outputs = signature.outputs[:outputs]
    start = min(buffer.offset for buffer in model.buffers[1:])
    return _packed(model).ljust(start, b"\0") + data[start:]


def _without(model: Any, numbers: Sequence[int]) -> Any:
    """Returns a model without some of its graphs; all weights stay where they are."""
    staying = [number for number in range(len(model.subgraphs)) if number not in numbers]
    signatures = [
        schema.SignatureDefT(one.inputs, one.outputs, one.signatureKey, staying.index(number))
        for number, one in enumerate(model.signatureDefs)
        if number in staying
    ]
    graphs = [model.subgraphs[number] for number in staying]
    return schema.ModelT(
        _VERSION, model.operatorCodes, graphs, buffers=model.buffers, signatureDefs=signatures
    )


def _whole_header(data: Any) -> int:
    """Returns where the header with all graphs begins: behind the weights, if there is a second."""
    model = schema.Model.GetRootAs(data)
    buffers = map(model.Buffers, range(1, model.BuffersLength()))
    end = max(_aligned(buffer.Offset() + buffer.Size()) for buffer in buffers)
    return end if end < len(data) else 0


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
