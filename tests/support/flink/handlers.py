"""A model handler that fails on purpose, and tells which process computed which block."""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.blocks import EmbeddingBlock, TokenBlock
from bert_embed.transforms.infer import BlockModelHandler
from tests.support.engines import WatchedEngine, load_watched

if TYPE_CHECKING:
    from bert_embed.bundle.bundle import Bundle
    from bert_embed.model import Embedder


@dataclass(frozen=True)
class Faults:
    """What goes wrong in the workers of a job.

    Attributes:
        trace: Folder for what each worker computed; "" keeps none.
        pace: Seconds that every block takes longer.
        words: What the model does on a batch that holds a word: `raise`, `hang`, or `die`, which
            kills its process.
        most_rows: Rows of a batch from which on the model is out of memory; 0 never is.
    """

    trace: str = ""
    pace: float = 0.0
    words: dict[str, str] = field(default_factory=dict)
    most_rows: int = 0


class FaultyHandler(BlockModelHandler):
    """The run's own handler, with faults."""

    def __init__(self, faults: Faults, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, load_engine=partial(load_faulty, faults), **named)
        self._faults = faults

    def run_inference(
        self, batch: TokenBlock, model: "Embedder", inference_args: dict[str, Any] | None = None
    ) -> list[EmbeddingBlock]:
        self._note("begin", batch)
        time.sleep(self._faults.pace)
        embedded = super().run_inference(batch, model, inference_args)
        self._note("end", batch)
        return embedded

    def _note(self, what: str, batch: TokenBlock) -> None:
        if not self._faults.trace:
            return
        part = batch.part
        row = {"what": what, "block": part.block, "part": part.number, "pid": os.getpid()}
        row |= {"ancestors": ancestors(os.getpid()), "time": time.time()}
        with open(Path(self._faults.trace) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def load_faulty(faults: Faults, bundle: "Bundle", *rest: Any) -> WatchedEngine:
    """The engine, failing on batches of too many rows, and on those that hold certain tokens."""
    tokenizer = load_tokenizer(bundle)
    ids = {tokenizer.encode(word)[1]: do for word, do in faults.words.items()}

    def fail(input_ids: np.ndarray) -> None:
        if faults.most_rows and len(input_ids) > faults.most_rows:
            raise MemoryError
        for token, do in ids.items():
            if token in input_ids:
                _fail(do)

    return load_watched(fail, bundle, *rest)


def _fail(do: str) -> None:
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "hang":
        time.sleep(3600)
    raise ArithmeticError(do)


def ancestors(pid: int) -> list[int]:
    """Ids of the process that started a process, of the one that started that one, and so on."""
    found: list[int] = []
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
        except FileNotFoundError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found
