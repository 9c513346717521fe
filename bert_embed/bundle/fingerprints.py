"""Lists, key by key, what enters the fingerprint of a model, and that of a run.

Equal fingerprints mean equal vectors in equal files: an unfinished output is continued, and a
finished one is left alone, only by the fingerprint of its run. A change here makes every output
that people have the output of another run. So a new option enters as one of the `new` keys, with
the value that means what was computed before there was the option: with it, no fingerprint changes.
What says nothing of the result, such as a path, enters the `free` keys. No key is ever renamed or
moved, and where one went, the value that it had without the option is still hashed.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bert_embed.settings import SELDOM


@dataclass(frozen=True)
class Keys:
    """Which keys of some settings count."""

    always: tuple[str, ...]  # they count, whatever their value
    present: tuple[str, ...] = ()  # they count where the settings have them
    new: Mapping[str, Any] = field(default_factory=dict)  # they count unless they have this value
    free: tuple[str, ...] = ()  # they do not count

    def counted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the part of some settings that enters a fingerprint."""
        known = {*self.always, *self.present, *self.new, *self.free}
        unknown = sorted(values.keys() - known)
        if unknown:
            raise RuntimeError(f"{', '.join(unknown)}: say in {__name__} whether it counts")
        counted = {name: values[name] for name in self.always}
        counted |= {name: values[name] for name in self.present if name in values}
        new = ((name, values.get(name, before), before) for name, before in self.new.items())
        return counted | {name: value for name, value, before in new if value != before}


# What the vectors are: the `vectors` of run.json, and the metadata of a Parquet file.
VECTORS = Keys(
    always=(
        # the program, the model and what its numbers are stored as
        *("format", "model", "tokenizer", "num_hidden_layers", "precision", "output_dtype"),
        *("shape", "token_shape", "id_type"),
        # VectorSpec
        *("layers", "layer_combine", "pooling", "pool_special_tokens", "pool_prompt", "dense"),
        *("normalize", "dim"),
        # TextSpec
        *("max_seq_length", "granularity", "long_text", "overlap"),
        *("word_pooling", "normalize_tokens", "prompt", "keep_text"),
        *("chunk", "chunk_tokens"),
    ),
    new={"int8_word_scales": "table", "heads": {}, **SELDOM},
    free=("model_source", "query_prompt", "similarity"),
)
# What the examples of `tokenize` are.
EXAMPLES = Keys(
    always=(
        *("tokenizer", "max_seq_length", "long_text", "overlap", "prompt", "prompt_tokens"),
        *("granularity", "keep_text"),
    ),
)
# Where texts and ids come from, in the order in which they are hashed.
COLUMNS = Keys(
    always=("text", "id", "text_b", "extra", "id_type"),
    new={
        "csv_quoting": "minimal",
        "context": (),
        "csv_separator": None,
        "csv_header": None,
        "base": "",
    },
    free=("loads", "no_ids"),  # as output_format and the id say
)
# Where None is hashed among them: the value of a column that is gone, in all runs without it.
_GONE = 3
# What is read, and how the output is cut into files.
WORK = Keys(
    always=(*("output_format", "input_format", "block_bytes", "part_docs"), *("limit", "listing")),
    present=("skip_existing",),
)
# WordPiece has the first two; another tokenizer its kind and the hash of its file.
MODEL_TOKENIZER = Keys(
    always=(),
    present=("lower_case", "max_word_chars", "special_tokens", "rules", "kind", "sha256"),
)
# Settings that may differ between outputs whose vectors can be used together.
COMPATIBLE = ("model_source", "query_prompt", "similarity", "keep_text")
# Settings that follow from others, and are named only if none of those differs.
_DERIVED = ("shape", "token_shape", "num_hidden_layers", "normalize_tokens", "heads")


def run_fingerprint(
    settings: Mapping[str, Any], columns: Mapping[str, Any], work: Mapping[str, Any]
) -> str:
    """The hash, hexadecimal, of `VECTORS` or `EXAMPLES`, `COLUMNS` and `WORK`."""
    described = VECTORS if "model" in settings else EXAMPLES
    of_columns = COLUMNS.counted(columns)
    values = described.counted(settings) | WORK.counted(work)
    values["columns"] = [of_columns.pop(name) for name in COLUMNS.always]
    values["columns"].insert(_GONE, None)
    values |= {f"columns.{name}": value for name, value in of_columns.items()}
    if described is VECTORS:
        values["tokenizer"] = MODEL_TOKENIZER.counted(values["tokenizer"])
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def model_fingerprint(
    tensors: Mapping[str, np.ndarray],
    vocabulary: Sequence[str],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    dense: Sequence[Mapping[str, Any]] = (),
    heads: Mapping[str, Mapping[str, Any]] | None = None,
    token_dense: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Hash, hexadecimal, of what decides hidden states: not pooling, length, prompts of a run."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name], np.dtype("<f4"))
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(array.data)
    values: dict[str, Any] = {
        "config": config,  # all that a configuration, a module and a head say of themselves count
        **MODEL_TOKENIZER.counted(tokenizer),
        "vocabulary": list(vocabulary),
    }
    if dense:
        values["dense"] = list(dense)
    if token_dense:
        values["token_dense"] = list(token_dense)
    if heads:
        values["heads"] = heads
    digest.update(json.dumps(values, sort_keys=True).encode())
    return digest.hexdigest()


def difference(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], also_free: Collection[str] = ()
) -> str | None:
    """Says how the settings of vectors differ; None if the vectors can be used together.

    >>> difference({"dim": 3, "model_source": "a"}, {"dim": None, "model_source": "b"})
    'dim is 3 there and null here'
    """
    # What was written before an option was there has the value that means the same.
    theirs, ours = {**VECTORS.new, **theirs}, {**VECTORS.new, **ours}
    free = {*COMPATIBLE, *also_free}
    names = [name for name in (*ours, *sorted(theirs.keys() - ours.keys())) if name not in free]
    differ = [name for name in names if theirs.get(name) != ours.get(name)]
    named = [name for name in differ if name not in _DERIVED] or differ
    differences = (
        f"{name} is {json.dumps(theirs.get(name))} there and {json.dumps(ours.get(name))} here"
        for name in named
    )
    return ", ".join(differences) or None
