"""Describes a finished run for people and for catalogues: a dataset card, and Croissant.

The card is README.md as the Hugging Face Hub reads it, with `configs` in its front matter.
croissant.json follows https://docs.mlcommons.org/croissant/docs/croissant-spec.html, version 1.0.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import yaml

from bert_embed.run_record import RunRecord
from bert_embed.storage.plurals import counted
from bert_embed.transforms.descriptions import ABOUT, CARD_BEGINS

_PREFIX = "http://mlcommons.org/croissant/"
_TERMS = ("column", "extract", "field", "fileSet", "includes", "recordSet", "repeated", "source")
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": _PREFIX,
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{term: f"cr:{term}" for term in _TERMS},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
}


def card(record: RunRecord, name: str, files: Mapping[str, Any], about: str | None = None) -> str:
    """Returns README.md: what the vectors are and how many, and which files a reader opens.

    Args:
        record: Of a complete run.
        name: Title of the data set.
        files: A glob of each folder of vectors, by its name; or, as the Hub reads them, the
            `data_files` of each configuration.
        about: First sentence of the page; None says which folders a run's output has.
    """
    vectors, result = record.settings, record.numbers
    counts = result.counts
    front = {
        "pretty_name": name,
        "tags": ["embeddings", "bert"],
        "configs": [{"config_name": kind, "data_files": glob} for kind, glob in files.items()],
    }
    rows = {
        "documents": f"{counts.embedded:,} of {counted(counts.records, 'record')}",
        "rejected": f"{counts.rejected:,}",
        "cut at the model's length": f"{counts.truncated:,}",
        "tokens": f"{result.tokens:,}",
        "numbers of a vector": " x ".join(map(str, vectors["shape"] or vectors["token_shape"])),
        "number type": vectors["output_dtype"],
        "model": f"{record.model.source}, fingerprint {vectors['model']}",
        "layers": f"{', '.join(map(str, vectors['layers']))}, {vectors['layer_combine']}",
        "pooling": vectors["pooling"],
        "length 1": "yes" if vectors["normalize"] else "no",
        "prompt": json.dumps(vectors["prompt"]),
        "computed in": vectors["precision"],
        "made": f"{record.ended}, by bert-embed on apache-beam {record.versions['apache-beam']}",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    front_matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    folders = ", ".join(f"`{kind}/`" for kind in files)
    about = about or f"BERT embeddings in {folders}; `run.json` has everything about the run."
    return f"{CARD_BEGINS}{front_matter}---\n\n# {name}\n\n{about}\n\n| | |\n|---|---|\n{table}\n"


def croissant(
    record: RunRecord,
    name: str,
    files: Mapping[str, str],
    schemas: Mapping[str, pa.Schema],
) -> dict[str, Any]:
    """Returns croissant.json.

    Args:
        record: Of a complete run.
        name: Title of the data set.
        files: A glob of each folder of vectors, by its name.
        schemas: The columns of each of these folders that holds Parquet files.
    """
    sets = [
        {
            "@type": "cr:FileSet",
            "@id": f"{kind}-files",
            "encodingFormat": "application/x-parquet" if kind in schemas else "text/plain",
            "includes": glob,
        }
        for kind, glob in files.items()
    ]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": name,
        "description": f"{ABOUT}{counted(record.numbers.counts.embedded, 'document')}, "
        f"computed with {record.model.source}",
        "conformsTo": f"{_PREFIX}1.0",
        "datePublished": record.ended,
        "version": "1.0.0",
        "distribution": sets,
        "recordSet": [_record_set(kind, schema) for kind, schema in schemas.items()],
    }


def _record_set(kind: str, schema: pa.Schema) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{kind}/{column.name}",
            "dataType": _data_type(column.type),
            **({"repeated": True} if _is_list(column.type) else {}),
            "source": {
                "fileSet": {"@id": f"{kind}-files"},
                "extract": {"column": column.name},
            },
        }
        for column in schema
    ]
    return {"@type": "cr:RecordSet", "@id": kind, "field": fields}


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def _data_type(kind: pa.DataType) -> str:
    while _is_list(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
