#!/usr/bin/env bash
# safetensors 0.8.0: `safetensors.numpy.save` of an array that is not contiguous.
#
# One would guess that the array's values are saved, or that it is refused as `safetensors.torch.save` refuses it;
# the docstring asks for contiguous arrays.
#
# Seen: the bytes from the array's first address on are saved, without a word: a transposed matrix comes back with
# its numbers in other places, and every second number of a vector comes back as its first half.
#
# For writers: `numpy.ascontiguousarray` first.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet safetensors==0.8.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
from safetensors.numpy import load, save

matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
vector = np.arange(6, dtype=np.float32)
arrays = {"whole": matrix, "transposed": matrix.T, "every second": vector[::2]}
arrays["a copy"] = np.ascontiguousarray(matrix.T)
seen = [(name, np.array_equal(load(save({"x": array}))["x"], array)) for name, array in arrays.items()]
expected = [("whole", True), ("transposed", False), ("every second", False), ("a copy", True)]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
