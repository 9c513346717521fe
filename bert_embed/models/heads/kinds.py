"""Lists the heads by their kind, and reads and writes them as JSON."""

from collections.abc import Mapping
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.sparse import SparseHead

HEADS: Mapping[str, type[Head]] = {head.kind: head for head in (SparseHead, MultiHead, ScoresHead)}


def heads_from_json(values: Mapping[str, Any], path: str) -> dict[str, Head]:
    """Returns what `heads_to_json` wrote; InputError names `path`."""
    from bert_embed.base.json import from_json  # imports orjson, for models with heads alone

    if unknown := sorted(set(values) - set(HEADS)):
        raise InputError(f"{path}: heads must be of {', '.join(HEADS)}, got {', '.join(unknown)}")
    return {kind: from_json(HEADS[kind], one, path, f"{kind}.") for kind, one in values.items()}


def heads_to_json(heads: Mapping[str, Head]) -> dict[str, dict[str, Any]]:
    """Returns each head's fields that have not their defaults."""
    from bert_embed.base.json import to_json

    return {kind: to_json(head) for kind, head in heads.items()}
