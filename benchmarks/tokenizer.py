"""Tokens a CPU second of our tokenizers beside those of other libraries, on one core.

All sides get the same texts in the same calls of 2,000 Python strings. A first run over `warm`
texts is not counted, as a worker has read texts before; each round's texts are new to all sides, so
that nothing is looked up that was only just computed. Seconds are of processor time.

`tokenizer`: BERT's own WordPiece beside tensorflow_text.FastBertTokenizer and Hugging Face
tokenizers, which end with flat NumPy ids (Hugging Face: with its own lists). Ids of these differ
from the reference on some texts; ours do not. English: docstrings of the pinned dependencies, as
they are and with a tenth of the words replaced by random letters; 96 languages: Django's messages.

`json_tokenizer`: `JsonTokenizer` beside the library that it calls. The vocabularies of byte-level
BPE and Unigram have 30,000 entries and are trained on the texts; WordPiece's is that of MiniLM,
read as if it were not BERT's. The share is that of the seconds of tokenizing in a whole run of
`embed`, of a random encoder with the shape of multilingual-e5-small.
"""

import json
import os
import random
import string
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences, multilingual_texts, write_lines
from benchmarks.peers import minilm_folder, peer
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.tokenizer import Tokenizer

OURS = "ours"
_CALL = 2000  # texts a call: the blocks of the pipeline hold thousands
_SEED = 20250803
_ENTRIES, _RUN_TEXTS = 30_000, 1000

Side = Callable[[int, int, bool], tuple[float, int]]  # first, last text, offsets: seconds, tokens
_COLUMNS = {
    "texts, side": "{name}",
    "M tokens/s": "{millions:.2f}",
    "spread": "{spread:.2f}",
    "ours is": "{ours_is:.2f} x",
}


def tokenizer(name: str, rounds: int = 5, warm: int = 20_000, texts: int = 8_000) -> None:
    """Measures BERT's tokenizer; `texts` are those of a round."""
    import tensorflow as tf

    measure.one_core()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    count = warm + rounds * texts
    results: dict[str, dict[str, dict[str, float]]] = {}
    for data, lines in {
        "English": english_sentences(count),
        "a tenth unseen": with_unseen_words(english_sentences(count)),
        "96 languages": multilingual_texts(count),
    }.items():
        path = write_lines(FOLDER / f"tokenizer/{data.replace(' ', '-')}.txt", lines)
        for offsets in (False, True):
            vocab = minilm_folder() / "vocab.txt"  # caches are empty at first
            sides = {
                OURS: _ours(lines, vocab),
                "FastBertTokenizer": _fast_bert(lines, vocab),
                "Hugging Face tokenizers": _hugging_face(path),
            }
            results[_title(data, offsets)] = _measured(sides, offsets, warm, texts, rounds)
    record = {
        "benchmark": name,
        "data": f"{rounds} rounds of {texts} new texts each, after {warm} others",
        "results": results,
    }
    measure.report(record, _COLUMNS, _flat(results))


def json_tokenizer(name: str, rounds: int = 3, texts: int = 8_000) -> None:
    """Measures the tokenizers of a tokenizer.json; `texts` are those of a round."""
    import tokenizers

    measure.one_core()
    load = os.getloadavg()[0]
    lines = english_sentences((rounds + 1) * texts)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for pieces, file in tokenizer_files(lines).items():
        for offsets in (False, True):
            sides = {OURS: _json(file, lines), "library": _library(file, lines)}
            results[_title(pieces, offsets)] = _measured(sides, offsets, texts, texts, rounds)
        if pieces == "Unigram":
            results[_title(pieces, False)][OURS]["share"] = _share(file, lines[:_RUN_TEXTS])
    record = {
        "benchmark": name,
        "data": f"{rounds} rounds of {texts} new sentences, after as many others",
        "load": round(load, 2),
        "tokenizers": tokenizers.__version__,
    }
    measure.report(record, {**_COLUMNS, "share of a run": "{share:.2%}"}, _flat(results))


def _title(data: str, offsets: bool) -> str:
    return f"{data}, {'offsets' if offsets else 'ids'}"


def _flat(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        f"{title}, {side}": {**one, "millions": one["tokens_per_second"] / 1e6}
        for title, sides in results.items()
        for side, one in sides.items()
    }


def with_unseen_words(texts: Sequence[str]) -> list[str]:
    """Returns texts in which every tenth word, about, is one of 3 to 12 random letters."""
    draw = random.Random(_SEED)

    def word() -> str:
        return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(3, 12)))

    return [
        " ".join(word() if draw.random() < 0.1 else known for known in text.split(" "))
        for text in texts
    ]


def _measured(
    sides: Mapping[str, Side], offsets: bool, warm: int, size: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Returns the figures of each side; a rate is our number of tokens over the side's seconds."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work(0, warm, offsets)
    for turn in range(rounds):
        first = warm + turn * size
        spent = {name: work(first, first + size, offsets) for name, work in sides.items()}
        for name, (seconds, _) in spent.items():
            rates[name].append(spent[OURS][1] / seconds)
        print(f"round {turn + 1} of {rounds}", flush=True)
    figures = {name: measure.Figure.of(values) for name, values in rates.items()}
    return {
        name: {
            "tokens_per_second": round(figure.median),
            "spread": round(figure.spread, 3),
            "ours_is": round(figures[OURS].median / figure.median, 3),
        }
        for name, figure in figures.items()
    }


def _timed(texts: Sequence[str], call: Callable[[Sequence[str], bool], int]) -> Side:
    """A side in this process; `call` returns the tokens of some texts."""

    def work(first: int, last: int, offsets: bool) -> tuple[float, int]:
        start = time.process_time()
        calls = range(first, last, _CALL)
        tokens = sum(call(texts[at : min(at + _CALL, last)], offsets) for at in calls)
        return time.process_time() - start, tokens

    return work


def _ours(texts: Sequence[str], vocab: Path) -> Side:
    made = Tokenizer(vocab)

    def call(part: Sequence[str], offsets: bool) -> int:
        return len(made.encode_with_offsets(part).ids if offsets else made.encode_flat(part)[0])

    return _timed(texts, call)


def _fast_bert(texts: Sequence[str], vocab: Path) -> Side:
    import tensorflow as tf
    import tensorflow_text as tf_text

    entries = vocab.read_text(encoding="utf-8").split()
    made = tf_text.FastBertTokenizer(
        entries, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
    )

    def call(part: Sequence[str], offsets: bool) -> int:
        if not offsets:
            return len(made.tokenize(tf.constant(part)).flat_values.numpy())
        ids, starts, stops = made.tokenize_with_offsets(tf.constant(part))
        starts.flat_values.numpy(), stops.flat_values.numpy()
        return len(ids.flat_values.numpy())

    return _timed(texts, call)


def _hugging_face(path: Path) -> Side:
    file = minilm_folder() / "tokenizer.json"
    child = peer("huggingface_tokenizers", "--texts", path, "--tokenizer", file, "--call", _CALL)
    return lambda first, last, offsets: child.ask([first, last, offsets])


def _json(file: Path, texts: Sequence[str]) -> Side:
    made = JsonTokenizer(file.read_text("utf-8"))
    return _timed(texts, lambda part, offsets: len(made.tokenize_texts(part, offsets).ids))


def _library(file: Path, texts: Sequence[str]) -> Side:
    from benchmarks.sides.huggingface_tokenizers import counting

    return _timed(texts, counting(str(file)))


def tokenizer_files(texts: Sequence[str]) -> dict[str, Path]:
    """Returns the tokenizer.json of each kind; those that are trained are trained once."""
    from tokenizers import pre_tokenizers

    from tests.support.models.json_tokenizers import byte_level, unigram

    folder = FOLDER / "json_tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.json" for name in ("Unigram", "BPE")}
    trained = {
        "Unigram": lambda: unigram(texts, _ENTRIES, pre_tokenizers.Metaspace()),
        "BPE": lambda: byte_level(texts, _ENTRIES),
    }
    for name, file in files.items():
        if not file.exists():
            trained[name]().save(str(file))
    return files | {"WordPiece": minilm_folder() / "tokenizer.json"}


def _share(file: Path, texts: Sequence[str]) -> float:
    """Returns the share of tokenizing in the seconds of all stages of a run on this core."""
    from bert_embed.pipeline.cli import main as command_line
    from tests.support.models.tiny import write_tiny_huggingface

    with tempfile.TemporaryDirectory() as folder:
        entries = json.loads(file.read_text("utf-8"))["model"]["vocab"]
        model = Path(folder, "model")
        write_tiny_huggingface(
            model, layers=12, hidden=384, heads=12, positions=512, vocab=[row[0] for row in entries]
        )
        (model / "vocab.txt").unlink()
        (model / "tokenizer.json").write_text(file.read_text("utf-8"), "utf-8")
        (model / "tokenizer_config.json").write_text("{}")
        source, output = write_lines(Path(folder, "in.txt"), texts), Path(folder, "out")
        if command_line(["embed", f"--input={source}", f"--output={output}", f"--model={model}"]):
            raise RuntimeError("the run failed")
        seconds = json.loads((output / "run.json").read_text())["stage_seconds"]
    return seconds["tokenize"] / sum(seconds.values())
