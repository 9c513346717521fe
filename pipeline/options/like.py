"""Takes the options of `embed` from the run of another output: what it read, and how."""

import os
from collections.abc import Mapping
from typing import Any

from bert_embed.base.errors import SettingError
from bert_embed.pipeline.console import HIDDEN
from bert_embed.pipeline.options.embed import DEFAULTS, FLAGS, OF_RESULT, recorded_place
from bert_embed.storage.file_info import is_glob
from bert_embed.storage.files import absolute, is_remote
from bert_embed.transforms.bigquery.client import looks_like_table

# What suits one model, and says nothing of another.
_OF_MODEL = (
    *("vectors", "top_k", "min_weight", "pool_factor", "recipe", "layers", "layer_combine"),
    *("pooling", "max_seq_length", "prompt", "dim", "normalize"),
)
_OF_BLOCKS = ("skip_blocks",)  # numbers of blocks, which another model cuts in another way
_SOURCES = ("input", "query")


def options_like(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the run in the output `like`, below those that were given.

    SettingError if there is no complete run of `embed`, or its record does not say what it read.
    """
    from bert_embed.results.outputs import read_run  # imports Arrow

    place = given["like"]
    record = read_run(absolute(place))
    if record is None:
        raise SettingError("like", f"{place} is not the output of a run: it has no record")
    if record.vectors is None:
        raise SettingError(
            "like", f"{place} holds examples, no vectors: give it to embed, as input"
        )
    if not record.is_done:
        raise SettingError(
            "like",
            f"{place}: the run is not complete (status {record.status}), so nobody knows "
            "what it costs: run its command again",
        )
    stored = record.options
    names = {*OF_RESULT, *_SOURCES} - {*_OF_BLOCKS}
    model = stored.get("model", DEFAULTS["model"])
    if given.get("model") is not None and recorded_place("model", given["model"]) != model:
        names -= {*_OF_MODEL}
    if any(given.get(name) for name in _SOURCES):
        names -= {*_SOURCES}
    elif not any(stored.get(name) for name in _SOURCES):
        raise SettingError("like", f"{place} does not say what its run read: give input", "input")
    values = {name: stored[name] for name in FLAGS if name in names and name in stored}
    for name in values.keys() - given.keys():
        if HIDDEN in str(values[name]):
            raise SettingError("like", f"{place} hides a secret in {name}: give it", name)
    for source in values.get("input", ()):
        is_local = not is_remote(source) and not looks_like_table(source)
        if is_local and not is_glob(source) and not os.path.exists(source):
            raise SettingError(
                "like", f"{place} read {source}, which is not there: give input", "input"
            )
    return {"model": model} | values
