"""From a text file to vectors: ours beside Beam's ways, sentence-transformers and transformers.

Same texts, weights and cores; every side is a process of its own, from the text file to Parquet.
Ours has its defaults, the others also the batch sizes that suit them. Start-up (imports, the model,
the first batches) is on no side: each runs on the first few texts too, and what that took is taken
off the seconds and the texts. The side that pads to 128 has a quarter of the sentences, and no
passages. Our pipeline runs with a model that costs nothing, too: what it takes beside the encoder.

Encoders of families have random weights and mean pooling, and tokenizers of the kind that the
family has, so that rows are as long as with real ones. Those of kinds are all-MiniLM-L6-v2 with
random heads (`benchmarks.sides.kinds_models`); ours then runs once with each other way to store
vectors, for the bytes on disk.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bert_embed
from benchmarks import growth, measure
from benchmarks.corpus import FOLDER, TEXTS, english_sentences, numbered, write_lines
from benchmarks.engines import exported_family
from benchmarks.peers import minilm_folder, peer_environment, peer_python, peer_versions
from benchmarks.tokenizer import tokenizer_files
from bert_embed.backends import openvino
from bert_embed.base import environment

OURS = {"ours": "float32", "ours, int8": "int8"}
if not environment.flags().isdisjoint(openvino.BACKEND.instructions["bfloat16"]):
    OURS |= {"ours, bfloat16": "bfloat16"}
_OURS = "ours"
ENCODE = "sentence-transformers encode"
_NULL = "ours, without a model"
_WORK = FOLDER / "end_to_end"
_LONGEST = 512  # tokens of a row of a family

Sides = Mapping[str, tuple[str, ...]]  # the module of each side and its flags


def _batches(side: str, kind: str, sizes: tuple[int, ...]) -> Sides:
    return {f"{side}, batches of {n}": ("encode_kinds", kind, f"--batch={n}") for n in sizes}


_MLTRANSFORM: Sides = {
    "Beam MLTransform": ("mltransform",),
    "Beam MLTransform, batches of 1,024": ("mltransform", "--batch=1024"),
}
_PADDED: Sides = {"Beam RunInference, padded to 128": ("beam_rows",)}
_SLOW = {*_PADDED}  # a quarter of the texts is enough for what is that much slower
_ENCODE: Sides = {ENCODE: ("encode_kinds", "dense"), **_batches(ENCODE, "dense", (8, 128))}


@dataclass(frozen=True)
class Case:
    """A model and a corpus, and who embeds it.

    Attributes:
        texts: One of `TEXTS`.
        count: How many.
        small: How many of them the start-up run takes.
        peers: By name.
        kind: Of the vectors.
        family: Of the encoder, "" for all-MiniLM-L6-v2, and which tokenizer it has.
        ours: The sides of ours.
        null: Texts that our pipeline embeds without a model, and those of its start-up run.
        stored: Flags of other ways to store the vectors.
    """

    texts: str
    count: int
    small: int
    peers: Sides
    kind: str = "dense"
    family: tuple[str, str] | None = None
    ours: tuple[str, ...] = (*OURS,)
    null: tuple[int, int] | None = None
    stored: Mapping[str, str] = field(default_factory=dict)


# The report of 100 to 2,000 texts has a map, which takes seconds: both runs make one, or none does.
_FAMILIES = {
    "XLM-R-small": ("Unigram", 2464, 64),
    "ModernBERT-base": ("BPE", 328, 128),
    "Nomic-base": ("WordPiece", 328, 128),
}
_KINDS: dict[str, tuple[str, Mapping[str, str]]] = {
    "sparse": ("SparseEncoder", {"float32, --top_k 128": "--top_k=128"}),
    "multi": (
        "MultiVectorEncoder",
        {"float16": "--output_dtype=float16", "int8": "--output_dtype=int8"},
    ),
    "scores": ("transformers pipeline", {}),
}
CASES: dict[str, dict[str, Case]] = {
    "end_to_end": {
        "": Case(
            *("sentences", 8000, 256, {**_MLTRANSFORM, **_PADDED, **_ENCODE}),
            null=(200_000, 1000),
        )
    },
    "end_to_end_passages": {
        "": Case("passages", 1500, 64, {**_MLTRANSFORM, **_ENCODE}, null=(20_000, 1000))
    },
    "end_to_end_families": {
        name: Case(
            "sentences",
            count,
            small,
            {ENCODE: _ENCODE[ENCODE], **_batches(ENCODE, "dense", (8,))},
            family=(name, tokenizer),
        )
        for name, (tokenizer, count, small) in _FAMILIES.items()
    },
    "end_to_end_kinds": {
        f"{texts}, {kind}": Case(
            *(texts, count, small, _batches(peer, kind, (8, 32, 128))),
            kind=kind,
            ours=(_OURS,),
            stored=stored,
        )
        for texts, count, small in (("sentences", 2064, 64), ("passages", 320, 20))
        for kind, (peer, stored) in _KINDS.items()
    },
}
_FIGURES = {
    "spread": "{spread:.2f}",
    "CPU s per 1,000": "{cpu_seconds_per_1000:.2f}",
    "beside the encoder": "{overhead:.2%}",
    "start-up s": "{startup_seconds:.1f}",
    "peak MiB": "{peak_mib}",
    "tokens or entries": "{tokens_or_entries:g}",
    "bytes a text": "{bytes:,}",
    "smallest cosine": "{cosine:.6f}",
    "largest difference": "{difference:.1e}",
    "ours is": "{ours_is[ours]:.2f} x",
    "ours, int8 is": "{ours_is[ours, int8]:.2f} x",
    "ours, bfloat16 is": "{ours_is[ours, bfloat16]:.2f} x",
}
_ONLY = {  # columns of some benchmarks only
    "beside the encoder": ("end_to_end", "end_to_end_passages"),
    **dict.fromkeys(
        ("ours, int8 is", "ours, bfloat16 is"),
        ("end_to_end", "end_to_end_passages", "end_to_end_families"),
    ),
    "smallest cosine": ("end_to_end", "end_to_end_passages", "end_to_end_families"),
    **dict.fromkeys(
        ("tokens or entries", "bytes a text", "largest difference"), ("end_to_end_kinds",)
    ),
}


def end_to_end(
    name: str, count: int | None = None, small: int | None = None, rounds: int = 3
) -> None:
    """Measures the sides of each case in turn; `count` and `small` in the place of the cases'."""
    results: dict[str, dict[str, Any]] = {}
    for title, case in CASES[name].items():
        measured = _measured(case, count or case.count, small or case.small, rounds)
        results |= {f"{title}, {side}" if title else side: one for side, one in measured.items()}
    record = {
        "benchmark": name,
        "data": "; ".join(
            f"{title + ': ' if title else ''}{count or case.count} {case.texts} of docstrings, "
            f"{small or case.small} of them as start-up"
            for title, case in CASES[name].items()
        ),
        "rounds": rounds,
        "peers": peer_versions("sentence-transformers", "transformers", "torch"),
    }
    figures = {title: form for title, form in _FIGURES.items() if name in _ONLY.get(title, (name,))}
    columns = {"side": "{name}", "texts/s": "{sentences_per_second:.1f}", **figures}
    measure.report(record, columns, results)


def _measured(case: Case, count: int, small: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Returns the figures of each side, and how far its vectors are from ours."""
    work = _WORK / "-".join([case.texts, case.kind, *(case.family or ())])
    model = _model(case, work)
    files = {
        lines: write_lines(work / f"{lines}.txt", TEXTS[case.texts](lines)).absolute()
        for lines in {count, count // 4, small}
    }
    texts = {
        name: files[count // 4 if name in _SLOW else count] for name in (*case.ours, *case.peers)
    }
    options = () if case.kind == "dense" else (f"--vectors={case.kind}",)
    run = partial(embed, folder=model, peers=case.peers, options=options)
    if model:
        for name in case.ours:
            run(name, files[small])  # imports the model
    sides: dict[str, Callable[[], measure.Spent]] = {}
    for name, text in texts.items():
        sides |= {name: partial(run, name, text)}
        sides |= {_startup(name): partial(run, name, files[small])}
    if case.null:
        lines = files[count].read_text(encoding="utf-8").splitlines()
        for name, number in zip((_NULL, _startup(_NULL)), case.null, strict=True):
            file = write_lines(work / f"null/{number}.txt", numbered(lines, number))
            sides[name] = partial(growth.embed, file)
    spent = measure.in_turn(sides, rounds)
    results: dict[str, dict[str, Any]] = {
        name: _figures(spent, name, int(text.stem) - small) for name, text in texts.items()
    }
    for name, result in results.items():
        rates = {side: results[side]["sentences_per_second"] for side in case.ours}
        result["ours_is"] = {
            side: round(rate / result["sentences_per_second"], 3) for side, rate in rates.items()
        }
        if name != _OURS:
            result |= apart(case.kind, name, texts)
    if case.null:
        null = _figures(spent, _NULL, case.null[0] - case.null[1])["cpu_seconds_per_1000"]
        for name in case.ours:
            spent_whole = results[name]["cpu_seconds_per_1000"]
            results[name]["overhead"] = round(null / (spent_whole - null), 4)
    if case.kind != "dense":
        results[_OURS] |= _stored(case.kind, files[count])
    for title, flag in case.stored.items():
        run(_OURS, files[count], options=(*options, flag))
        results[f"{_OURS}, {title}"] = _stored(case.kind, files[count])
    return results


def _startup(name: str) -> str:
    return f"{name}, start-up"


def embed(
    name: str,
    text: Path,
    folder: Path | None,
    peers: Sides,
    options: tuple[str, ...],
    python: Path | None = None,
) -> measure.Spent:
    """Embeds a file with one side into a fresh output and returns what the process took.

    Args:
        name: Of the side.
        text: The file.
        folder: Of the model; None is MiniLM, as each side has it.
        peers: The sides that are not ours.
        options: More flags of ours.
        python: Of the environment of those sides; None for the peers'.
    """
    output = _output_of(name, text)
    shutil.rmtree(output, ignore_errors=True)
    if name in OURS:
        command = [sys.executable, "-m", "bert_embed", "embed", "--input", text, "--output", output]
        flags = [f"--model={folder or 'minilm'}", "--runner=FnApiRunner", *options]
        return measure.run([*command, *flags, f"--precision={OURS[name]}"])
    output.mkdir(parents=True)
    module, *more = peers[name]
    flags = [f"benchmarks.sides.{module}", *more, f"--input={text}", f"--output={output}/vectors"]
    if name in _PADDED:  # TensorFlow is not in the environment of the peers
        return measure.run([sys.executable, "-m", *flags])
    command = [python or peer_python(), "-m", *flags, "--model", folder or minilm_folder()]
    return measure.run(command, peer_environment())


def _output_of(name: str, text: Path) -> Path:
    return (text.parent / f"{name.replace(' ', '_')}-{text.stem}").absolute()


def _figures(spent: dict[str, list[measure.Spent]], name: str, count: int) -> dict[str, Any]:
    """Returns the medians of a side over its rounds, start-up taken off rate and CPU time."""
    pairs = [whole - start for whole, start in zip(spent[name], spent[_startup(name)], strict=True)]
    rate = measure.Figure.of(count / pair.wall for pair in pairs)
    whole, startup = measure.summary(spent[name]), measure.summary(spent[_startup(name)])
    return {
        "sentences_per_second": round(rate.median, 1),
        "spread": round(rate.spread, 3),
        "cpu_seconds_per_1000": round(
            measure.Figure.of(1000 * pair.cpu / count for pair in pairs).median, 3
        ),
        "startup_seconds": round(startup["wall_s"], 2),
        "peak_mib": round(whole["peak_mib"]),
    }


def apart(kind: str, name: str, texts: Mapping[str, Path]) -> dict[str, float]:
    """Returns how far a side's vectors are from ours, of every text that it was given.

    Raises:
        RuntimeError: It did not write every text.
    """
    lines = texts[name].read_text(encoding="utf-8").splitlines()
    if kind == "dense":
        theirs, ours = _vectors(name, texts[name]), _vectors(_OURS, texts[_OURS])
        if theirs.keys() != set(lines):
            raise RuntimeError(f"{name} wrote {len(theirs)} of {len(lines)} texts")
        return {"cosine": round(min(_cosine(theirs[line], ours[line]) for line in lines), 6)}
    table = pq.read_table(_output_of(name, texts[name]) / "vectors.parquet")
    if table["id"].to_pylist() != lines:
        raise RuntimeError(f"{name} wrote {len(table)} of {len(lines)} texts")
    ours_table = pq.read_table(_output_of(_OURS, texts[_OURS]) / kind)
    return {"difference": difference(kind, ours_table, table)}


@cache
def _vectors(name: str, text: Path) -> dict[str, np.ndarray]:
    if name in OURS:
        lines = text.read_text(encoding="utf-8").splitlines()
        return dict(zip(lines, bert_embed.read(_output_of(name, text))[1], strict=True))
    table = pq.read_table(_output_of(name, text))
    flat = table.column(1).combine_chunks().flatten().to_numpy()
    return dict(zip(table.column(0).to_pylist(), flat.reshape(len(table), -1), strict=True))


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def difference(kind: str, ours: pa.Table, theirs: pa.Table) -> float:
    """Returns the largest difference of a number of ours from theirs, over all texts.

    An entry of a sparse vector that one side alone has counts with its whole weight.

    Raises:
        RuntimeError: A text has not the same number of multi-vectors on both sides.
    """
    if kind == "sparse":
        apart = 0.0
        names = ("indices", "values")
        columns = (table[name].to_numpy() for table in (ours, theirs) for name in names)
        for indices, values, their_indices, their_values in zip(*columns, strict=True):
            weights = np.zeros(1 + max((0, *indices, *their_indices)), np.float32)
            weights[indices] = values
            weights[their_indices] -= their_values
            apart = max(apart, float(np.abs(weights).max()))
        return apart
    if kind == "multi":
        sides = [table["embedding"].combine_chunks() for table in (ours, theirs)]
        if len({tuple(side.value_lengths().to_pylist()) for side in sides}) > 1:
            raise RuntimeError("the sides have not the same number of vectors of each text")
        pairs = [tuple(side.flatten().flatten().to_numpy() for side in sides)]
    else:
        labels = theirs.column_names[1:]
        pairs = [(ours[label].to_numpy(), theirs[label].to_numpy()) for label in labels]
    return max(float(np.abs(left - right).max()) for left, right in pairs)


def _stored(kind: str, text: Path) -> dict[str, float]:
    """Returns the bytes of a text in the files of ours, and its tokens or entries, the median."""
    folder = _output_of(_OURS, text) / kind
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    table = pq.read_table(folder)
    lists = {"sparse": "indices", "multi": "embedding"}
    lengths = pc.list_value_length(table[lists[kind]]).to_numpy() if kind in lists else [1]
    return {"bytes": round(size / len(table)), "tokens_or_entries": float(np.median(lengths))}


def _model(case: Case, work: Path) -> Path | None:
    """Returns the folder of a case's model, made anew; None is MiniLM, which each side has."""
    folder = (work / "model").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    if case.kind != "dense":
        # The sparse one suits the length of these texts.
        sample = write_lines(work / "sample.txt", TEXTS[case.texts](32)).absolute()
        command = [peer_python(), "-m", "benchmarks.sides.kinds_models", "--input", sample]
        command += ["--output", folder, "--model", minilm_folder()]
        measure.run(command, peer_environment())
        return folder / case.kind
    if case.family is None:
        return None
    family, tokenizer = case.family
    shutil.copytree(exported_family(family) / "model", folder)
    (folder / "vocab.txt").unlink()
    file = tokenizer_files(english_sentences(32_000))[tokenizer]
    shutil.copy(file, folder / "tokenizer.json")
    special = json.loads(file.read_text("utf-8"))["added_tokens"]
    names = {entry["content"].strip("<>[]").lower(): entry["content"] for entry in special}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["pad_token_id"] = {entry["content"]: entry["id"] for entry in special}[names["pad"]]
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "pool", "type": "sentence_transformers.models.Pooling"},
    ]
    files = {
        "config.json": config,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _LONGEST,
            **{f"{name}_token": names[name] for name in ("pad", "mask", "unk")},
            "cls_token": names.get("s", names.get("cls")),
            "sep_token": names.get("/s", names.get("sep")),
        },
        "sentence_bert_config.json": {"max_seq_length": _LONGEST},
        "modules.json": modules,
        "pool/config.json": {
            "word_embedding_dimension": config.get("hidden_size", config.get("n_embd")),
            "pooling_mode_mean_tokens": True,
        },
    }
    for path, values in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    return folder
