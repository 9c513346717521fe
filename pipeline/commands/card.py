"""Writes a dataset card beside the vectors of a run: README.md as the Hugging Face Hub reads it."""

import json
import os
from collections.abc import Mapping
from typing import Any

import yaml

from bert_embed.base.errors import counted
from bert_embed.pipeline.commands.verify import read_folder
from bert_embed.pipeline.console import say
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.options.commands import CardOptions
from bert_embed.pipeline.report.content import pooled
from bert_embed.pipeline.report.sample import Run
from bert_embed.results.names import DELETED, kinds_of, vectors_of
from bert_embed.results.read import open_outputs, output_folders
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.file_info import is_glob
from bert_embed.storage.files import absolute, join, write_bytes
from bert_embed.transforms.output_folder import CARD, CARD_BEGINS, EXAMPLES, is_foreign, parse_name


def run_card(options: CardOptions) -> int:
    """Runs `card DIR`; UsageError without complete runs, or where README.md is somebody else's."""
    with usage_errors():
        folders = output_folders(options.output)
        runs = [Run(*read_folder(folder)) for folder in folders]
        for folder, run in zip(folders, runs, strict=True):
            if not run.record.is_done or run.record.vectors is None:
                raise UsageError(f"{folder} is not the output of a complete run of `embed`")
        open_outputs(folders, kinds_of(runs[0].record.settings)[0])  # refuses other vectors
    top = absolute(options.output)
    if is_glob(options.output) and not os.path.isdir(options.output):
        raise UsageError(f"{options.output} is a glob: give the folder that is to have the card")
    place = join(top, CARD)
    if is_foreign(top, CARD):
        raise UsageError(
            f"{place} is not one that `card` wrote; give it another name, then run `card` again"
        )
    above = "" if top.rstrip("/") == runs[0].place.rstrip("/") else "*/"
    parsed = filter(
        None, map(parse_name, (name for run in runs for name in run.folder.data_files()))
    )
    globs = {name.kind: f"{above}{name.kind}/*{name.ending}" for name in parsed}
    kinds = globs.keys() - {EXAMPLES, DELETED, "rejected"}
    record = pooled(runs)
    globs = {kind: globs[kind] for kind in record.numbers.written if kind in kinds}
    title = os.path.basename(top.rstrip("/"))
    write_bytes(place, _card(record, title, globs).encode())
    say(f"wrote {place}")
    return ExitCode.DONE


def _card(record: RunRecord, title: str, globs: Mapping[str, str]) -> str:
    """What the vectors are and how many, and which files of each folder a reader opens."""
    vectors, result = record.settings, record.numbers
    counts = result.counts
    front = {
        "pretty_name": title,
        "tags": ["embeddings", "bert"],
        "configs": [{"config_name": kind, "data_files": glob} for kind, glob in globs.items()],
    }
    rows = {
        "documents": f"{counts.embedded:,} of {counted(counts.records, 'record')}",
        "rejected": f"{counts.rejected:,}",
        "cut at the model's length": f"{counts.truncated:,}",
        "tokens": f"{result.tokens:,}",
        **(_dense(vectors) if "dense" in vectors_of(vectors) else {}),
        **{kind: _head(head) for kind, head in vectors.get("heads", {}).items()},
        "number type": vectors["output_dtype"],
        "model": f"{record.model.source}, fingerprint {vectors['model']}",
        "prompt": json.dumps(vectors["prompt"]),
        "computed in": vectors["precision"],
        "made": f"{record.ended}, by bert-embed on apache-beam {record.versions['apache-beam']}",
    }
    if "query_prompt" in vectors:
        rows["prompt of queries"] = json.dumps(vectors["query_prompt"], ensure_ascii=False)
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    front_matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    folders = ", ".join(f"`{kind}/`" for kind in globs)
    about = f"BERT embeddings in {folders}; `run.json` has everything about the run."
    return f"{CARD_BEGINS}{front_matter}---\n\n# {title}\n\n{about}\n\n| | |\n|---|---|\n{table}\n"


def _dense(vectors: Mapping[str, Any]) -> dict[str, str]:
    return {
        "numbers of a vector": " x ".join(map(str, vectors["shape"] or vectors["token_shape"])),
        "layers": f"{', '.join(map(str, vectors['layers']))}, {vectors['layer_combine']}",
        "pooling": vectors["pooling"],
        "length 1": "yes" if vectors["normalize"] else "no",
    }


def _head(head: Mapping[str, Any]) -> str:
    """What a run says of a head, in words."""
    said = {name: value for name, value in head.items() if value not in (None, 0)}
    texts = (", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in said.values())
    return "; ".join(f"{name} {text}" for name, text in zip(said, texts, strict=True))
