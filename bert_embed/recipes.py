"""Names the VectorSpecs of well-known recipes."""

from bert_embed.specs import VectorSpec
from bert_embed.storage.errors import SettingError

_LAST_FOUR = (-1, -2, -3, -4)
_SPECS = {
    # McCormick and Ryan, "BERT Word Embeddings Tutorial" (2019).
    "second-to-last-mean": VectorSpec(layers=(-2,), pooling="mean"),
    # Devlin et al., "BERT" (arXiv 1810.04805), table 7: layers as features for NER. It weights
    # its sums; the tutorials that use them do not.
    "sum-last-four": VectorSpec(layers=_LAST_FOUR, layer_combine="sum", pooling="mean"),
    "concat-last-four": VectorSpec(layers=_LAST_FOUR, layer_combine="concat", pooling="mean"),
    # The same paper's section 3: the final hidden state of [CLS] stands for the sequence.
    "cls": VectorSpec(layers=(-1,), pooling="cls"),
    # bert-as-service's defaults: pooling_layer -2, REDUCE_MEAN, [CLS] and [SEP] not masked.
    "bert-as-service": VectorSpec(layers=(-2,), pooling="mean", pool_special_tokens=True),
}
_SUM_ALL = "sum-all"  # table 7 again: every layer but the embeddings, however many there are
RECIPES = (*_SPECS, _SUM_ALL)


def recipe_spec(name: str, num_hidden_layers: int) -> VectorSpec:
    """Returns the VectorSpec of a recipe for a model of so many layers, without normalization."""
    if name == _SUM_ALL:
        every = tuple(range(1, num_hidden_layers + 1))
        return VectorSpec(layers=every, layer_combine="sum", pooling="mean")
    if name not in _SPECS:
        raise SettingError("recipe", f"must be one of {', '.join(RECIPES)}, got {name!r}")
    spec = _SPECS[name]
    if num_hidden_layers < -min(spec.layers):
        raise SettingError(
            "recipe",
            f"{name} requires {-min(spec.layers)} layers, this model has {num_hidden_layers}",
        )
    return spec
