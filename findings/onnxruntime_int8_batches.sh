#!/usr/bin/env bash
# ONNX Runtime 1.31.1: a model that `quantize_dynamic` made, with weights by channel.
#
# One would guess that "dynamic" finds a scale for each row of a batch as it comes, and that `per_channel=True` keeps rows
# apart, so that what a text gets does not depend on the texts beside it.
#
# Seen: one scale is found for all numbers of the batch. A row alone has a cosine of over 0.999 with float32; beside a row
# that is a hundred times as large, below 0.95.
#
# Why: the graph gets DynamicQuantizeLinear, whose scale is of the whole tensor; per_channel is about weights alone.
#
# For users of int8 embeddings: the vector of a document changes with the batch that it falls into, and so when a job is
# repeated with other batches or workers. Batches of one row, or `MatMulNBits` with weights of 8 bits, are free of it.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

WIDTH = 384
draw = np.random.default_rng(0)
weights = draw.standard_normal((WIDTH, WIDTH), np.float32)
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy")
product = helper.make_node("MatMul", ["x", "w"], ["y"])
graph = helper.make_graph([product], "product", [x], [y], [numpy_helper.from_array(weights, "w")])
opsets = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "float32.onnx")
quantize_dynamic("float32.onnx", "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)

session = onnxruntime.InferenceSession("int8.onnx", providers=["CPUExecutionProvider"])
row = draw.standard_normal((1, WIDTH), np.float32)
large = 100 * draw.standard_normal((1, WIDTH), np.float32)
wanted = (row @ weights)[0]


def cosine(found):
    return float(found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted))


alone = cosine(session.run(None, {"x": row})[0][0])
beside = cosine(session.run(None, {"x": np.concatenate([row, large])})[0][0])
print(f"cosine with float32: alone {alone:.5f}, beside a large row {beside:.5f}")
sys.exit(not (alone > 0.999 and beside < 0.95))
PROGRAM
