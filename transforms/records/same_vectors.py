"""Compares the settings of vectors with those of others, to see if both can be used together."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from bert_embed.fingerprints import COMPATIBLE, VECTORS

# Settings that follow from others, and are named only if none of those differs.
_DERIVED = ("shape", "token_shape", "num_hidden_layers", "normalize_tokens", "heads")


def difference(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], also_free: Collection[str] = ()
) -> str | None:
    """Says how the settings of vectors differ; None if the vectors can be used together.

    >>> difference({"dim": 3, "model_source": "a"}, {"dim": None, "model_source": "b"})
    'dim is 3 there and null here'
    """
    # What was written before an option was there has the value that means the same.
    before = VECTORS.new or {}
    theirs, ours = {**before, **theirs}, {**before, **ours}
    free = {*COMPATIBLE, *also_free}
    names = [name for name in (*ours, *sorted(theirs.keys() - ours.keys())) if name not in free]
    differ = [name for name in names if theirs.get(name) != ours.get(name)]
    named = [name for name in differ if name not in _DERIVED] or differ
    return (
        ", ".join(
            f"{name} is {json.dumps(theirs.get(name))} there and {json.dumps(ours.get(name))} here"
            for name in named
        )
        or None
    )
