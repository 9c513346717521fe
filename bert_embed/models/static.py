"""StaticEmbedding: a table of embeddings and a mean over a text's tokens, without layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import EncoderConfig, Ops

WORDS = "embeddings/word"
NO_LIMIT = (1 << 31) - 1  # tokens of a row: as many as int32 counts


@dataclass(frozen=True)
class StaticConfig(EncoderConfig):
    """model2vec's models, and those of sentence-transformers' module of this name.

    Rows are texts alone. `settings` are those of model2vec's config.json, which say how a table was
    made; of them `normalize` and `max_length` are followed.
    """

    architecture: ClassVar[str] = "static"
    engine: ClassVar[str] = "static"
    special_tokens: ClassVar[int] = 0
    model_types: ClassVar[Mapping[str, str]] = {"model2vec": "a static model"}
    settings: ClassVar[tuple[str, ...]] = (
        *("normalize", "max_length", "hidden_dim", "seq_length", "tokenizer_name", "apply_pca"),
        *("apply_zipf", "sif_coefficient", "pooling", "embedding_dtype", "vocabulary_quantization"),
    )
    num_hidden_layers: int = 0
    num_attention_heads: int = 1
    intermediate_size: int = 1
    max_position_embeddings: int = NO_LIMIT
    type_vocab_size: int = 0
    unknown_id: int = -1  # of a token that does not count, as in model2vec; -1: all count

    def __post_init__(self) -> None:
        self._check_positive("vocab_size", "hidden_size")

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "StaticConfig":
        raise InputError("config.json: is that of a table, not of an encoder with layers")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {WORDS: (self.vocab_size, self.hidden_size)}

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        yield ops.flat(ops.gather(WORDS, ids))
