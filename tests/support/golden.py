"""Finished outputs that are kept in tests/data/golden, with the model and the texts they came from.

Later versions read and continue them. `python -m tests.support.golden` makes them again, which is
right only when the format of an output changes: what people have is then not read either.
"""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np

from bert_embed.pipeline.cli import main
from tests.support.command import parts_of
from tests.support.models.tiny import WORDS, write_tiny_huggingface

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "golden"
MODEL, TEXTS = GOLDEN / "model", GOLDEN / "texts.jsonl"
# The fingerprint of a run has the path, the size and the time of each file that it reads.
PLACE = Path("/tmp/bert_embed_golden")
_TIME = 1_700_000_000
_DOCUMENTS = 20
_CUT = ["--block_bytes=1000", "--report=false"]
PART_DOCS = 4
RUNS = {
    "parquet": ["--granularity=sentence,word", "--extra_columns=tag", "--normalize", *_CUT],
    "jsonl": ["--output_format=jsonl", "--chunk=tokens:16", *_CUT],
    "tfrecord": ["--output_format=tfrecord", "--output_dtype=float16", "--layers=-2", *_CUT],
}


def flags(name: str, model: str) -> list[str]:
    """The flags of a run but for --output, with its texts where they were when it was made."""
    PLACE.mkdir(exist_ok=True)
    with suppress(PermissionError):  # another user of this machine made it, and did the same
        PLACE.chmod(0o777)
    copy = PLACE / f".{os.getpid()}"
    shutil.copyfile(TEXTS, copy)
    os.utime(copy, (_TIME, _TIME))
    copy.rename(PLACE / TEXTS.name)  # whole at any moment for other tests
    return [f"--input={PLACE / TEXTS.name}", f"--model={model}", *RUNS[name]]


def _write() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_tiny_huggingface(MODEL, layers=2, hidden=16, heads=2, seed=27)
    draw = np.random.default_rng(27)
    with TEXTS.open("w", encoding="utf-8") as file:
        for number in range(_DOCUMENTS):
            text = " ".join(draw.choice(WORDS, draw.integers(3, 30)))
            row = {"id": f"doc {number}", "text": text, "tag": f"t{number % 3}"}
            file.write(json.dumps(row) + "\n")
    # Records name their folders, so these are none of the machine that writes them.
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(MODEL, PLACE / "model")
    assert main(["model", "import", str(PLACE / "model"), str(PLACE / "bundle")]) == 0
    for name in RUNS:
        output = PLACE / name
        with parts_of(PART_DOCS):
            assert main(["embed", f"--output={output}", *flags(name, str(PLACE / "bundle"))]) == 0
        shutil.copytree(output, GOLDEN / name)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    _write()
