#!/usr/bin/env bash
# TensorFlow 2.21.0: `tf.math.l2_normalize` of zero, tiny and float16 vectors.
#
# One would guess zeros for a zero vector and length 1 for any other, in each number type.
#
# Seen: a zero vector of float16 gives NaN (its epsilon of 1e-12 is 0 there), of float32 and bfloat16 zeros; 384
# numbers of 20 in float16 give zeros, because the sum of squares is infinite; four numbers of 1e-7 in float32 get
# length 0.2, because epsilon bounds the sum of squares, not the length.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0
cd "$folder"
venv/bin/python - <<'PROGRAM'
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf


def length(numbers, name):
    unit = tf.math.l2_normalize(tf.constant(numbers, name), -1)
    return str(round(float(np.linalg.norm(tf.cast(unit, tf.float64).numpy())), 2))


seen = [(name, length([0.0] * 4, name)) for name in ("float16", "bfloat16", "float32")]
seen += [(f"384 times 20, {name}", length([20.0] * 384, name)) for name in ("float16", "float32")]
seen += [("4 times 1e-7, float32", length([1e-7] * 4, "float32"))]
expected = [
    ("float16", "nan"),
    ("bfloat16", "0.0"),
    ("float32", "0.0"),
    ("384 times 20, float16", "0.0"),
    ("384 times 20, float32", "1.0"),
    ("4 times 1e-7, float32", "0.2"),
]

print(*seen, sep="\n")
sys.exit(seen != expected)
PROGRAM
