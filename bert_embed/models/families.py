"""Finds the encoder that a config.json, or the description of a bundle, is of."""

from collections.abc import Mapping
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.models.bert import BertConfig
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.gated import GteConfig, JinaConfig, NomicBertConfig
from bert_embed.models.modern_bert import ModernBertConfig
from bert_embed.models.static import StaticConfig

FAMILIES: tuple[type[EncoderConfig], ...] = (
    JinaConfig,  # model_type bert, too, which leads to BertConfig
    BertConfig,
    GteConfig,
    ModernBertConfig,
    NomicBertConfig,
    StaticConfig,
)
_BY_MODEL_TYPE = {name: family for family in FAMILIES for name in family.model_types}
BY_ARCHITECTURE = {family.architecture: family for family in FAMILIES}


def config_from_huggingface(values: Mapping[str, Any]) -> EncoderConfig:
    """Reads a Hugging Face `config.json`; InputError for an encoder that cannot be computed."""
    model_type = values.get("model_type")
    family = _BY_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InputError(
            f"config.json: model_type must be one of {', '.join(_BY_MODEL_TYPE)}, got "
            f"{model_type!r}: decoders and other models have other layers; take a model of one of "
            "these kinds"
        )
    if model_type == "bert" and values.get("position_embedding_type") == "alibi":
        family = JinaConfig
    return family.from_huggingface(values)
