"""Writes a dataset card and Croissant metadata beside the vectors of a run."""

import argparse
import json
import os

import pyarrow.parquet as pq

from bert_embed.pipeline.commands.verify import read_folder
from bert_embed.pipeline.console import say
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.outputs.card import card, croissant
from bert_embed.results import vector_files
from bert_embed.storage.files import join, write_bytes
from bert_embed.transforms.descriptions import CARD, CROISSANT, is_foreign
from bert_embed.transforms.output_folder import EXAMPLES, parse_name


def run_card(given: argparse.Namespace) -> int:
    """Runs `card DIR`.

    Args:
        given: As `parse_card` gives it.

    Raises:
        UsageError: The folder is not the output of a complete run of `embed`, or holds a README.md
            or croissant.json of somebody else.
        InputError: A file of vectors is damaged.
    """
    folder, record = read_folder(given.output)
    if not record.is_done or record.vectors is None:
        raise UsageError(f"{given.output} is not the output of a complete run of `embed`")
    for place in (CARD, CROISSANT):
        if is_foreign(folder.path, place):
            raise UsageError(
                f"{join(folder.path, place)} is not one that `card` wrote; give it another name, "
                "then run `card` again"
            )
    name = given.name or os.path.basename(folder.path.rstrip("/"))
    parsed = filter(None, map(parse_name, folder.data_files()))
    files = {each.kind: f"{each.kind}/*{each.ending}" for each in parsed}
    others = (EXAMPLES, "rejected", "removed")
    files = {kind: files[kind] for kind in record.numbers.written if kind in files.keys() - others}
    schemas = {}
    for granularity in record.vectors["granularity"]:
        for path in vector_files(folder.path, granularity):
            if path.suffix == ".parquet":
                schemas[path.parent.name] = pq.read_schema(path)
            break
    described = croissant(record, name, files, schemas)
    for place, text in (
        (CARD, card(record, name, files)),
        (CROISSANT, json.dumps(described, indent=2) + "\n"),
    ):
        write_bytes(join(folder.path, place), text.encode())
    say(f"wrote {join(folder.path, CARD)} and {CROISSANT}")
    return ExitCode.DONE
