"""Runs `verify`, `card` and `report`, which are about finished outputs."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import yaml

from bert_embed.base.errors import counted
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import TSNE, CardOptions, ReportOptions, VerifyOptions
from bert_embed.pipeline.report.content import pooled
from bert_embed.pipeline.report.page import write_page
from bert_embed.pipeline.report.sample import Run, check_projection, lacks_tsne
from bert_embed.pipeline.run.output import lies_in, record_of_run
from bert_embed.pipeline.run.summary import failure_lines
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.names import DELETED, kinds_of, vectors_of
from bert_embed.results.outputs import files_of, later_outputs, open_outputs, output_folders
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.file_info import is_glob
from bert_embed.storage.files import absolute, is_remote, join, open_raw, write_bytes
from bert_embed.transforms.output_check import output_problems
from bert_embed.transforms.output_folder import (
    CARD,
    CARD_BEGINS,
    EXAMPLES,
    OutputFolder,
    is_foreign,
    parse_name,
)

_PAGE = b"<!doctype html>"  # how the files begin that a report may replace


def run_verify(options: VerifyOptions) -> int:
    """Runs `verify DIR`, with `--repair` a job too; FAILED if a file is not as its run wrote it."""
    folder, record = read_folder(options.output)
    problems = list(output_problems(folder, record))
    say(*(f"{folder.path}: {problem}" for problem in problems))
    if problems and options.repair:
        from bert_embed.pipeline.embedding import repair  # Beam, which a check alone does without

        if (code := repair(folder, record, problems, options)) == ExitCode.INTERRUPTED:
            return code
        folder, record = read_folder(options.output)
        problems = list(output_problems(folder, record))
        say(*(f"{folder.path}: not repaired: {problem}" for problem in problems))
    if problems:
        advice = "" if options.repair else "; --repair computes missing and damaged parts again"
        warn(f"error: {counted(len(problems), 'problem')} in {folder.path}{advice}")
        return ExitCode.FAILED
    files, size = record.written("files"), record.written("bytes")
    say(f"{folder.path}: {counted(files, 'file')}, {counted(size, 'byte')}, all as written")
    say(*(f"{folder.path}: {line}" for line in failure_lines(folder.path, record)))
    return ExitCode.DONE


def read_folder(output: str) -> tuple[OutputFolder, RunRecord]:
    """The folder of a run, and its record; InputError if it is no output, or damaged."""
    record = record_of_run(output, advice=None)
    return OutputFolder(absolute(output)), record


def run_card(options: CardOptions) -> int:
    """Runs `card DIR`; UsageError without complete runs, or where README.md is somebody else's."""
    folders = output_folders(options.output)
    runs = [Run(*read_folder(folder)) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if not run.record.is_done or run.record.vectors is None:
            raise UsageError(f"{folder} is not the output of a complete run of `embed`")
    check_together(folders, runs[0].record.settings)
    for run in runs:  # none that lost files is described as it was written
        for kind in kinds_of(run.record.settings):
            files_of(run.place, run.record, kind, partial=False)
    top = absolute(options.output)
    is_run = top.rstrip("/") == runs[0].place.rstrip("/")
    if is_glob(options.output) and not is_run and not os.path.isdir(options.output):
        raise UsageError(f"{options.output} is a glob: give the folder that is to have the card")
    place = join(top, CARD)
    if is_foreign(top, CARD):
        raise UsageError(
            f"{place} is not one that `card` wrote; give it another name, then run `card` again"
        )
    above = "" if is_run else "*/"
    parsed = filter(
        None, map(parse_name, (name for run in runs for name in run.folder.data_files()))
    )
    record = pooled(runs)
    endings: dict[str, set[str]] = {}
    for name in parsed:
        endings.setdefault(name.kind, set()).add(name.ending)
    kinds = endings.keys() - {EXAMPLES, DELETED, "rejected"}
    globs = {
        kind if len(endings[kind]) == 1 else f"{kind}_{ending[1:]}": f"{above}{kind}/*{ending}"
        for kind in record.numbers.written
        if kind in kinds
        for ending in sorted(endings[kind])
    }
    title = os.path.basename(top.rstrip("/"))
    write_bytes(place, _card(record, title, globs, runs).encode())
    say(f"wrote {place}")
    return ExitCode.DONE


def _card(record: RunRecord, title: str, globs: Mapping[str, str], runs: Sequence[Run]) -> str:
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
    folders = ", ".join(dict.fromkeys(f"`{glob.split('/')[-2]}/`" for glob in globs.values()))
    about = f"BERT embeddings in {folders}" if globs else "No embeddings: no text had any"
    about += "; `run.json` has everything about the run."
    if len(runs) > 1:
        about = about.replace("`run.json`", f"in each of {len(runs)} folders `run.json`")
    if any(run.record.input.skip_existing for run in runs) and globs:
        about += (
            " The files have every version of a document: an output replaces documents of those "
            "that it continues, and its `deleted/` lists what is gone. `bert_embed.read` gives the "
            "newest."
        )
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


def check_together(folders: list[str], vectors: Mapping[str, Any]) -> None:
    """Refuses outputs of other vectors than the first one's, and two copies of one run."""
    later_outputs(open_outputs(folders, kinds_of(vectors)[0]))


def run_report(options: ReportOptions) -> int:
    """Runs `report DIR...`."""
    check_projection(options.projection)
    folders = [absolute(folder) for folder in output_folders(options.folders)]
    if options.output is None and len(folders) > 1:
        raise UsageError(f"--output FILE is missing, {len(folders)} outputs have one report")
    for folder in folders:
        check_place(options.output, folder)
    records = [record_of_run(folder) for folder in folders]
    if records[0].vectors is not None:
        check_together(folders, records[0].vectors)
    runs = [
        Run(OutputFolder(folder), record) for folder, record in zip(folders, records, strict=True)
    ]
    texts_of = None if options.no_texts else partial(sample_texts, runs, tell=warn)
    place = options.output and absolute(options.output)
    projection = options.projection or (None if lacks_tsne() else TSNE)
    written = write_page(runs, place, projection, texts_of)
    say(f"wrote {written}")
    return ExitCode.DONE


def check_place(file: str | None, run: str) -> None:
    """Refuses a file for a page that lies among those of a run, or is there and is no page."""
    if file is None:
        return
    folder = os.path.dirname(absolute(file))
    if not is_remote(file) and not os.path.isdir(folder):
        raise UsageError(f"--output {file} cannot be written: there is no folder {folder}")
    if os.path.isdir(file):
        raise UsageError(f"--output {file} is a folder; give a file")
    with suppress(FileNotFoundError), open_raw(absolute(file)) as page:
        if page.read(len(_PAGE)).lower() != _PAGE:
            raise UsageError(f"--output {file} is there and is no page; give another name")
    if lies_in(folder, run) and not lies_in(run, folder):
        raise UsageError(f"--output {file} lies among the files of the run; give another folder")
