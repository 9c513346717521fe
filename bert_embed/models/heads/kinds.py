"""Lists the kinds of vectors, a row each, and reads and writes heads as JSON."""

from collections.abc import Mapping
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.models.heads.dense import SENTENCE, SPAN, TOKEN, WORD
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.kind import Kind
from bert_embed.models.heads.multi import MultiHead, MultiKind
from bert_embed.models.heads.scores import ScoresHead, ScoresKind
from bert_embed.models.heads.sparse import SparseHead, SparseKind

KINDS: dict[str, Kind] = {}  # in the order in which a run names them
# Those with a row for each document, window or chunk, by what the setting `vectors` calls them.
ROW_KINDS: dict[str, Kind] = {}
HEADS: dict[str, type[Head]] = {}


def register_kind(kind: Kind) -> None:
    """Adds a kind of vectors: whatever reads, writes, searches or describes vectors knows it."""
    KINDS[kind.name] = kind
    if kind.by_row:
        ROW_KINDS[kind.vectors] = kind
    if kind.head is not None:
        HEADS[kind.name] = kind.head


for _kind in (
    SENTENCE,
    TOKEN,
    WORD,
    SPAN,
    SparseKind("sparse", "sparse", 2, SparseHead, "read_sparse"),
    MultiKind("multi", "multi", 5, MultiHead, "read_multi"),
    ScoresKind("scores", "scores", 0, ScoresHead, "read_scores"),
):
    register_kind(_kind)


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
