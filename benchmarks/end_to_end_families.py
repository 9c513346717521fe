"""From a text file to vectors, for the shapes of families that are not MiniLM's.

`python -m benchmarks.end_to_end_families [--rounds 3]`: as `benchmarks.end_to_end`, ours beside
sentence-transformers' `encode` in float32, with its best size of batch and its default. The
encoders are those of `benchmarks.families`, with random weights and mean pooling; the tokenizers
those of `benchmarks.json_tokenizer`, of the kind that the family has, so that rows are as long as
with real ones.
"""

import argparse
import json
import shutil
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.corpus import FOLDER, TEXTS, english_sentences, write_lines
from benchmarks.end_to_end import ENCODE, OURS, agreement, embed, every_side, figures, startup
from benchmarks.families import exported
from benchmarks.json_tokenizer import tokenizer_files

# The tokenizer of each model, how many texts it embeds, so that each takes as long, and how many
# its start-up run. The report of 100 to 2,000 texts has a map, which takes seconds: both runs make
# one, or none does.
_MODELS = {
    "XLM-R-small": ("Unigram", 2400, 64),
    "ModernBERT-base": ("BPE", 200, 128),
    "Nomic-base": ("WordPiece", 200, 128),
}
_OURS = OURS["float32"]
_SIDES = (*OURS.values(), ENCODE, f"{ENCODE}, batches of 8")
_LONGEST = 512  # tokens
_HEADER = ("model", "side", "texts/s", "spread", "CPU s per 1,000", "start-up s", "peak MiB")


def main() -> None:
    """Measures the models in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, help="of each model, in the place of its number")
    args = parser.parse_args()
    results, table = {}, []
    for name, (tokenizer, texts, few) in _MODELS.items():
        results[name] = _measured(name, tokenizer, (args.texts or texts, few), args.rounds)
        for side, result in results[name]["sides"].items():
            row = [f"{result['sentences_per_second']:.1f}", f"{result['spread']:.2f}"]
            row += [f"{result['cpu_seconds_per_1000']:.1f}", f"{result['startup_seconds']:.1f}"]
            table.append([name, side, *row, str(result["peak_mib"]), f"{result['ours_is']:.2f} x"])
    record = {
        "benchmark": "end_to_end_families",
        "data": "sentences of docstrings; random weights",
        "rounds": args.rounds,
        "results": results,
    }
    measure.report(record, (*_HEADER, "ours is"), table)


def _measured(name: str, tokenizer: str, counts: tuple[int, int], rounds: int) -> dict:
    """Returns the figures of each side with one model, and how far the vectors agree."""
    count, few = counts
    work = FOLDER / "end_to_end_families" / name
    model = _model(name, tokenizer, work / "model").absolute()
    sentences = TEXTS["sentences"]
    whole, small = (
        write_lines(work / f"{lines}.txt", sentences(lines)).absolute()
        for lines in (count + few, few)
    )
    texts = dict.fromkeys(_SIDES, whole)
    for side in OURS.values():
        embed(side, small, model)  # imports the model
    spent = measure.in_turn(every_side(texts, small, partial(embed, folder=model)), rounds)
    sides = {side: figures(spent[side], spent[startup(side)], count) for side in _SIDES}
    for result in sides.values():
        ratio = sides[_OURS]["sentences_per_second"] / result["sentences_per_second"]
        result["ours_is"] = round(ratio, 3)
    cosines = agreement(texts, _OURS)
    return {"texts": count, "startup_texts": few, "smallest_cosine": cosines, "sides": sides}


def _model(name: str, tokenizer: str, folder: Path) -> Path:
    """Writes the model of a family with a tokenizer that divides words, and mean pooling."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(exported(name) / "model", folder)
    (folder / "vocab.txt").unlink()
    file = tokenizer_files(english_sentences(32_000))[tokenizer]
    shutil.copy(file, folder / "tokenizer.json")
    special = json.loads(file.read_text("utf-8"))["added_tokens"]
    names = {entry["content"].strip("<>[]").lower(): entry["content"] for entry in special}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _LONGEST,
        "pad_token": names["pad"],
        "mask_token": names["mask"],
        "unk_token": names["unk"],
        "cls_token": names.get("s", names.get("cls")),
        "sep_token": names.get("/s", names.get("sep")),
    }
    config = json.loads((folder / "config.json").read_text("utf-8"))
    ids = {entry["content"]: entry["id"] for entry in special}
    config["pad_token_id"] = ids[names["pad"]]
    pooling = {
        "word_embedding_dimension": config.get("hidden_size", config.get("n_embd")),
        "pooling_mode_mean_tokens": True,
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "pool", "type": "sentence_transformers.models.Pooling"},
    ]
    files = {
        "config.json": config,
        "tokenizer_config.json": settings,
        "sentence_bert_config.json": {"max_seq_length": _LONGEST},
        "modules.json": modules,
        "pool/config.json": pooling,
    }
    for path, values in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
