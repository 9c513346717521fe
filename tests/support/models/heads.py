"""Small random models of each architecture with a head, and its numbers in float64."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.models.architectures import write_architecture
from tests.support.models.plain_bert import gelu, gelu_new, relu

HIDDEN = 32
# The transform, its norm, the decoder, and the decoder's bias.
_ROBERTA = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
MLM = {
    "multilingual": (
        *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        *("cls.predictions.decoder", "cls.predictions.bias"),
    ),
    "distilbert": (
        *("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
    ),
    "electra": (
        *("generator_predictions.dense", "generator_predictions.LayerNorm"),
        *("generator_lm_head", "generator_lm_head.bias"),
    ),
    "modernbert": ("head.dense", "head.norm", "decoder", "decoder.bias"),
    "modernbert_biased": ("head.dense", "head.norm", "decoder", "decoder.bias"),
    **dict.fromkeys(("mpnet", "roberta", "xlm-roberta", "camembert"), _ROBERTA),
}
# The product before the logits, its activation, and the logits.
_ROBERTA_SCORES = ("classifier.dense", np.tanh, "classifier.out_proj")
SCORES = {
    "multilingual": ("pooler.dense", np.tanh, "classifier"),
    "distilbert": ("pre_classifier", relu, "classifier"),
    "electra": ("classifier.dense", gelu, "classifier.out_proj"),
    "modernbert": ("head.dense", gelu, "classifier"),
    "modernbert_biased": ("head.dense", gelu_new, "classifier"),
    **dict.fromkeys(("mpnet", "roberta", "xlm-roberta", "camembert"), _ROBERTA_SCORES),
}
_WORDS = {
    "modernbert": "embeddings.tok_embeddings.weight",
    "modernbert_biased": "embeddings.tok_embeddings.weight",
}
_CLASSES = {
    "multilingual": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "modernbert": "ModernBert",
    "modernbert_biased": "ModernBert",
}
_SPLADE = "sentence_transformers.sparse_encoder.models"


def write_mlm(folder: Path, kind: str, own_decoder: bool = False, **pooling: Any) -> dict:
    """Writes a SPLADE model of a kind, and returns its tensors by the names in the file."""
    tensors = _written(folder, kind)
    words = tensors[_WORDS.get(kind, "embeddings.word_embeddings.weight")]
    transform, norm, decoder, bias = MLM[kind]
    width = words.shape[1]
    shapes = {f"{transform}.weight": (width, HIDDEN), f"{norm}.weight": (width,)}
    if kind != "modernbert":
        shapes |= {f"{transform}.bias": (width,), f"{norm}.bias": (width,)}
    shapes[bias] = words.shape[:1]
    if own_decoder:
        shapes[f"{decoder}.weight"] = words.shape
    changes: dict[str, Any] = {}
    if kind == "modernbert_biased":
        changes = {"classifier_bias": True, "classifier_activation": "gelu_pytorch_tanh"}
    tensors |= _random(shapes)
    _finish(folder, tensors, f"{_CLASSES[kind]}ForMaskedLM", **changes)
    kinds = {"MLMTransformer": "", "SpladePooling": "1_SpladePooling"}
    _write_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"{_SPLADE}.{name}"}
            for number, (name, path) in enumerate(kinds.items())
        ],
    )
    _write_json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    (folder / "1_SpladePooling").mkdir()
    _write_json(folder / "1_SpladePooling" / "config.json", pooling)
    return tensors


def write_masked_lm(folder: Path, kind: str, own_decoder: bool = False) -> dict:
    """Writes a masked language model as transformers saves it; returns its tensors."""
    tensors = write_mlm(folder, kind, own_decoder)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    return tensors


def plain_weights(kind: str, tensors: dict, states: np.ndarray) -> np.ndarray:
    """log1p(relu(logits)) of a text's last states, float64 `[tokens, vocabulary]`."""
    transform, norm, decoder, bias = MLM[kind]
    words = tensors[_WORDS.get(kind, "embeddings.word_embeddings.weight")]
    act = gelu_new if kind == "modernbert_biased" else gelu
    x = act(_dense(tensors, transform, states.astype(np.float64)))
    x = _norm(tensors, norm, x, kind)
    table = tensors.get(f"{decoder}.weight", words)
    return np.log1p(relu(x @ table.astype(np.float64).T + tensors[bias]))


def write_classifier(folder: Path, kind: str, labels: int, **changes: Any) -> dict:
    """Writes a classifier's folder of a kind, without modules; returns its tensors."""
    tensors = _written(folder, kind)
    (folder / "modules.json").unlink()
    dense, _, classifier = SCORES[kind]
    shapes = {f"{dense}.weight": (HIDDEN, HIDDEN), f"{dense}.bias": (HIDDEN,)}
    shapes |= {f"{classifier}.weight": (labels, HIDDEN), f"{classifier}.bias": (labels,)}
    if kind.startswith("modernbert"):
        shapes["head.norm.weight"] = (HIDDEN,)
    if kind == "modernbert":
        del shapes[f"{dense}.bias"]
    if kind == "modernbert_biased":
        shapes["head.norm.bias"] = (HIDDEN,)
        changes |= {"classifier_bias": True, "classifier_activation": "gelu_pytorch_tanh"}
    tensors |= _random(shapes)
    named = {str(number): f"label {number}" for number in range(labels)}
    architecture = f"{_CLASSES[kind]}ForSequenceClassification"
    _finish(folder, tensors, architecture, **{"id2label": named, **changes})
    return tensors


def as_cross_encoder(folder: Path, activation: str = "torch.nn.modules.activation.Sigmoid") -> None:
    """Makes a classifier's folder one that CrossEncoder has saved."""
    module = "sentence_transformers.base.modules.transformer.Transformer"
    files = {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": module}],
        "config_sentence_transformers.json": {
            "model_type": "CrossEncoder",
            "activation_fn": activation,
        },
        "sentence_bert_config.json": {
            "transformer_task": "sequence-classification",
            "module_output_name": "scores",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        },
    }
    for name, values in files.items():
        _write_json(folder / name, values)


def plain_logits(kind: str, tensors: dict, states: np.ndarray, mean: bool = False) -> np.ndarray:
    """float64 `[labels]`, of a text's last states."""
    dense, act, classifier = SCORES[kind]
    wide = states.astype(np.float64)
    x = act(_dense(tensors, dense, wide.mean(0) if mean else wide[0]))
    if kind.startswith("modernbert"):
        x = _norm(tensors, "head.norm", x, kind)
    return _dense(tensors, classifier, x)


def _dense(tensors: dict, name: str, x: np.ndarray) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors.get(f"{name}.bias", 0)


def _norm(tensors: dict, name: str, x: np.ndarray, kind: str) -> np.ndarray:
    epsilon = {"modernbert": 1e-5, "modernbert_biased": 1e-3}.get(kind, 1e-12)
    epsilon = 1e-5 if MLM[kind] is _ROBERTA else epsilon
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return scaled * tensors[f"{name}.weight"] + tensors.get(f"{name}.bias", 0)


def _written(folder: Path, kind: str) -> dict[str, np.ndarray]:
    write_architecture(folder, kind)
    return load_file(folder / "model.safetensors")


def _random(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(17)
    return {
        name: (random.normal(size=shape) * 0.3 + ("norm.weight" in name.lower())).astype(np.float32)
        for name, shape in shapes.items()
    }


def _finish(folder: Path, tensors: dict, architecture: str, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    _write_json(folder / "config.json", config | {"architectures": [architecture], **changes})
    save_file(tensors, folder / "model.safetensors")


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values))
