"""What `benchmarks.engines` runs: the engines, their exported models and the token rows."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences
from benchmarks.peers import minilm_folder, peer_environment, peer_python
from benchmarks.sides.engine import OURS

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_GROUP = 4096  # tokens
_CALIBRATION = 6000  # sentences that calibrated models choose from
_FOLDER = FOLDER / "engines"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Engine:
    """What runs an engine, which of the exported files it reads, and its precision."""

    backend: str
    file: str
    precision: str


ENGINES = {
    "float32": {
        OURS: Engine(OURS, "", "float32"),
        "ONNX Runtime, fused": Engine("onnxruntime", "fused.onnx", "float32"),
        "OpenVINO": Engine("openvino", "plain.xml", "float32"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2", "float32"),
        "LiteRT": Engine("litert", "float32.tflite", "float32"),
        "sentence-transformers, torch": Engine("torch", "", "float32"),
    },
    "int8": {
        OURS: Engine(OURS, "", "int8"),
        "ONNX Runtime, dynamic": Engine("onnxruntime", "int8.onnx", "int8"),
        "OpenVINO, dynamic": Engine("openvino", "weights.xml", "int8"),
        "OpenVINO, calibrated": Engine("openvino", "int8.xml", "int8"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2", "int8"),
    },
}


class EngineProcess:
    """A process of `benchmarks.sides.engine` that answers questions, one at a time."""

    def __init__(self, engine: Engine, models: Path, rows: Path) -> None:
        ours = engine.backend == OURS
        model = models / engine.file if engine.file else minilm_folder()
        command = [sys.executable if ours else peer_python(), "-m", "benchmarks.sides.engine"]
        flags = ["--engine", engine.backend, "--precision", engine.precision]
        self._process = subprocess.Popen(
            [*command, *flags, "--model", str(model), "--rows", str(rows)],
            env=(dict(os.environ) if ours else peer_environment()) | _ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: object) -> dict:
        """Returns the answer to a question of `benchmarks.sides.engine`.

        Raises:
            RuntimeError: The process ended; what it said of it stands on standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def row_file(sentences: int, every: int) -> Path:
    """Returns the file of token rows, sorted by length, of every so manieth group of 4,096 tokens.

    The rows of each group stay together, so that padding is that of the whole.
    """
    path = (_FOLDER / f"rows-{sentences}-{every}.npz").absolute()
    if path.exists():
        return path
    from bert.resolve import resolve_model
    from bert.rows import build_rows

    bundle = resolve_model("minilm")
    tokenizer = bundle.load_tokenizer()
    flat, splits = tokenizer.encode_flat(english_sentences(sentences))
    rows = build_rows(flat, splits, bundle.max_seq_length, tokenizer.cls_id, tokenizer.sep_id)
    lengths = np.diff(rows.row_splits)
    order = np.argsort(-lengths, kind="stable")
    group = np.cumsum(lengths[order]) // _GROUP
    chosen = order[group % every == every // 2]
    ids = [rows.input_ids[rows.row_splits[row] : rows.row_splits[row + 1]] for row in chosen]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, input_ids=np.concatenate(ids), row_splits=np.cumsum([0, *map(len, ids)]))
    return path


def exported() -> Path:
    """Returns the folder of the exported models, which is filled once (a minute)."""
    rows = row_file(_CALIBRATION, 1)
    recipe = [*sorted((_HERE / "sides").glob("export_*.py")), _HERE / "requirements.txt"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in recipe)).hexdigest()[:12]
    folder = (_FOLDER / f"models-{digest}").absolute()
    last = folder / "float32.tflite"
    if not last.exists():
        print("exporting the model for every engine", flush=True)
        flags = ["--model", minilm_folder(), "--output"]
        command = [peer_python(), "-m", "benchmarks.sides.export_engines", *flags, folder]
        measure.run([*command, "--rows", rows], peer_environment())
        measure.run([sys.executable, "-m", "benchmarks.sides.export_litert", *flags, last])
    return folder


def vectors_of(process: EngineProcess, name: str, budget: int) -> tuple[np.ndarray, dict]:
    """Returns the vectors of all rows, float32 `[rows, hidden]`, and what computing them took."""
    file = (_FOLDER / f"{name}.npy").absolute()
    taken = process.ask(vectors=budget, file=str(file))
    return np.load(file), taken
