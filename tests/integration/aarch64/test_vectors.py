"""The wheel and its base on aarch64 Linux, emulated: vectors as on this processor."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.integration.aarch64.machine import FOLDER
from tests.support.command import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine is one"),
]
TEXTS = [
    "The bank of the river was steep.",
    "make an object callable",
    "¿Dónde está la biblioteca? 図書館はどこですか",
    "A call calls a callable object with a possibly empty series of arguments. " * 6,
]
NEAR = 2e-5  # float32
# Of int8: one rounding of an activation that falls the other way moves a number by a step of int8,
# and with it what follows. Two x86 processors differ by 0.9995.
COSINE = 0.998
ENCODE = """
import json, platform, sys
import numpy as np
import bert_embed

def encode(precision):
    return bert_embed.load("minilm", precision=precision).encode(json.loads(sys.argv[2]))

made = {precision: encode(precision) for precision in ("float32", "int8")}
np.savez(sys.argv[1], **made, machine=platform.machine())
"""


def run_both(folder: Path, *words: object) -> list[Path]:
    """Runs Python on the emulated machine and on this one, in a folder of each."""
    folders = []
    for name, python in (("aarch64", FOLDER / "python"), ("here", sys.executable)):
        here = folder / name
        here.mkdir()
        source = "" if name == "aarch64" else str(ROOT / "src")
        done = subprocess.run(
            ["env", *([f"PYTHONPATH={source}"] if source else []), python, *map(str, words)],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        folders.append(here)
    return folders


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """What the encoder gave there and here."""
    folder = tmp_path_factory.mktemp("encoded")
    folders = run_both(folder, "-c", ENCODE, "made.npz", json.dumps(TEXTS))
    return [dict(np.load(each / "made.npz")) for each in folders]


def test_the_encoder_gives_the_vectors_of_this_processor(encoded):
    there, here = encoded
    assert str(there["machine"]) == "aarch64"
    assert np.abs(there["float32"] - here["float32"]).max() < NEAR


def test_int8_is_as_near_to_float32_as_here(encoded):
    there, here = encoded
    assert cosines(there["int8"], here["int8"]).min() > COSINE
    assert cosines(there["int8"], there["float32"]).min() > COSINE
    assert cosines(there["int8"], there["float32"]).max() < 1 - NEAR  # it is int8


def cosines(one, other):
    return (one * other).sum(axis=1)  # both have unit length


def test_embed_writes_the_rows_of_this_processor(tmp_path):
    source = tmp_path / "in.jsonl"
    rows = [json.dumps({"id": f"text {n}", "text": text}) for n, text in enumerate(TEXTS)]
    source.write_text("\n".join(rows), "utf-8")
    words = ["-m", "bert_embed", "embed", "--input", source, "--output", "out"]
    tables = [pq.read_table(each / "out" / "embeddings") for each in run_both(tmp_path, *words)]
    there, here = (table.sort_by("id") for table in tables)
    assert there.schema == here.schema
    assert there.drop(["embedding"]).equals(here.drop(["embedding"]))
    assert there["id"].to_pylist() == [f"text {n}" for n in range(len(TEXTS))]
    vectors = [np.stack(table["embedding"].to_numpy()) for table in (there, here)]
    assert np.abs(vectors[0] - vectors[1]).max() < NEAR
