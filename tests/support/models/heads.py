"""Small random models with heads: SPLADE, classifiers, cross-encoders, bge-m3."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_embed.encoder import Encoder
from bert_embed.model import Request
from bert_embed.settings import TextSpec
from bert_embed.text.documents import TokenRows
from bert_embed.text.layout import DocumentVectors, text_rows
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import Shapes, change, drawn, layers_of, write, write_modules
from tests.support.models.plain_bert import PlainLayers, gelu, gelu_new, relu
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface

HIDDEN = 32
_MODERN = ("modernbert", "modernbert_biased")
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
    **dict.fromkeys(_MODERN, ("head.dense", "head.norm", "decoder", "decoder.bias")),
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
_CLASSES = {
    "multilingual": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    **dict.fromkeys(_MODERN, "ModernBert"),
}
_SPLADE = "sentence_transformers.sparse_encoder.models"


def write_mlm(folder: Path, kind: str, own_decoder: bool = False, **pooling: Any) -> None:
    """Writes a SPLADE model of a kind."""
    write_architecture(folder, kind)
    words = _words(load_file(folder / "model.safetensors"))
    shapes = _mlm_shapes(kind, words.shape, own_decoder)
    _add_head(folder, shapes, kind, f"{_CLASSES[kind]}ForMaskedLM")
    _write_splade_modules(folder, pooling)
    write(folder, {"config_sentence_transformers.json": {"model_type": "SparseEncoder"}})


def _mlm_shapes(kind: str, words: tuple[int, ...], own_decoder: bool) -> Shapes:
    transform, norm, decoder, bias = MLM[kind]
    layers: Shapes = {transform: (words[1], HIDDEN), norm: words[1:]}
    shapes = layers_of(layers, lambda name: kind == "modernbert") | {bias: words[:1]}
    return shapes | ({f"{decoder}.weight": words} if own_decoder else {})


def _write_splade_modules(folder: Path, pooling: Mapping[str, Any]) -> None:
    types = {"": f"{_SPLADE}.MLMTransformer", "1_SpladePooling": f"{_SPLADE}.SpladePooling"}
    write_modules(folder, types)
    write(folder, {"1_SpladePooling/config.json": pooling})


def plain_weights(kind: str, tensors: dict, states: np.ndarray) -> np.ndarray:
    """log1p(relu(logits)) of a text's last states, float64 `[tokens, vocabulary]`."""
    transform, norm, decoder, bias = MLM[kind]
    act = gelu_new if kind == "modernbert_biased" else gelu
    head = PlainLayers(tensors, _epsilon(kind))
    x = head.norm(norm, act(head.dense(transform, states.astype(np.float64))))
    table = tensors.get(f"{decoder}.weight", _words(tensors))
    return np.log1p(relu(x @ table.astype(np.float64).T + tensors[bias]))


def _words(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    return next(tensors[name] for name in tensors if re.search(r"\.(word|tok)_emb", name))


def write_classifier(folder: Path, kind: str, labels: int, **changes: Any) -> None:
    """Writes a classifier's folder of a kind, without modules."""
    write_architecture(folder, kind)
    (folder / "modules.json").unlink()
    dense, _, classifier = SCORES[kind]
    layers: Shapes = {dense: (HIDDEN, HIDDEN), classifier: (labels, HIDDEN)}
    if kind.startswith("modernbert"):
        layers["head.norm"] = (HIDDEN,)
    shapes = layers_of(layers, lambda name: kind == "modernbert" and name.startswith("head"))
    named = {str(number): f"label {number}" for number in range(labels)}
    architecture = f"{_CLASSES[kind]}ForSequenceClassification"
    _add_head(folder, shapes, kind, architecture, **{"id2label": named, **changes})


def as_cross_encoder(folder: Path, activation: str = "torch.nn.modules.activation.Sigmoid") -> None:
    """Makes a classifier's folder one that CrossEncoder has saved."""
    module = "sentence_transformers.base.modules.transformer.Transformer"
    write_modules(folder, {"": module})
    files = {
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
    write(folder, files)


def plain_logits(kind: str, tensors: dict, states: np.ndarray, mean: bool = False) -> np.ndarray:
    """float64 `[labels]`, of a text's last states."""
    dense, act, classifier = SCORES[kind]
    head, wide = PlainLayers(tensors, _epsilon(kind)), states.astype(np.float64)
    x = act(head.dense(dense, wide.mean(0) if mean else wide[0]))
    if kind.startswith("modernbert"):
        x = head.norm("head.norm", x)
    return head.dense(classifier, x)


def _epsilon(kind: str) -> float:
    if MLM[kind] is _ROBERTA:
        return 1e-5
    return {"modernbert": 1e-5, "modernbert_biased": 1e-3}.get(kind, 1e-12)


def _add_head(folder: Path, shapes: Shapes, kind: str, architecture: str, **changes: Any) -> None:
    config = {"architectures": [architecture], **changes}
    if kind == "modernbert_biased":
        config |= {"classifier_bias": True, "classifier_activation": "gelu_pytorch_tanh"}
    change(folder, {"model.safetensors": drawn(shapes, 17), "config.json": config})


def run_texts(
    encoder: Encoder, kind: str, texts: Sequence[str], **text: Any
) -> tuple[TokenRows, DocumentVectors]:
    """Returns the rows of documents, and what the model makes of them in a run."""
    marker = getattr(encoder.bundle.heads[kind], "document_marker", None)
    spec = TextSpec(**{"max_seq_length": 64, "vectors": (kind,), "marker": marker, **text})
    _, found = text_rows(encoder.tokenizer, spec, texts)
    return found.rows, encoder.embedder.run(Request(spec, rows=found))


# Settings of `write_splade`.
SPLADES: dict[str, dict[str, Any]] = {
    "max": {"pooling_strategy": "max"},
    "own": {"own_decoder": True, "activation_function": "log1p_relu"},
    "sum": {"pooling_strategy": "sum"},
    "twice": {"pooling_strategy": "sum", "activation_function": "log1p_relu"},
}
# More entries than the decoder computes at a time.
VOCABULARY = [*small_vocabulary(), *(f"[unused{number}]" for number in range(4200))]


def write_splade(
    folder: Path,
    *,
    own_decoder: bool = False,
    changes: Mapping[str, Any] | None = None,
    **pooling: Any,
) -> dict[str, np.ndarray]:
    """Writes a SparseEncoder's folder, and returns its tensors by the names in the file."""
    head = drawn(_mlm_shapes("multilingual", (len(VOCABULARY), HIDDEN), own_decoder), 5)
    # Most logits are below 0, as a trained model's are.
    head["cls.predictions.bias"] -= np.float32(3)
    changes = {**head, **(changes or {})}
    tensors = write_tiny_huggingface(folder, vocab=VOCABULARY, changes=changes)
    _write_splade_modules(folder, pooling)
    return tensors


def as_router(folder: Path, **weights: Any) -> None:
    """Makes a SPLADE folder one whose queries have constant weights."""
    query = "query_0_SparseStaticEmbedding"
    kinds = {
        query: "SparseStaticEmbedding",
        "": "MLMTransformer",
        "1_SpladePooling": "SpladePooling",
    }
    router = {
        "types": {path: f"{_SPLADE}.{kind}" for path, kind in kinds.items()},
        "structure": {"query": [query], "document": ["", "1_SpladePooling"]},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    write_modules(folder, {"": "sentence_transformers.models.Router"})
    config = {"frozen": True} | ({"path": "idf.json"} if "idf" in weights else {})
    write(folder, {"router_config.json": router, f"{query}/config.json": config})
    if "idf" in weights:
        write(folder, {"idf.json": weights["idf"]})
    else:
        save_file(weights, folder / query / "model.safetensors")


def linear(dtype="<f4"):
    random = np.random.default_rng(6)
    return {"weight": random.normal(size=(1, 32)).astype(dtype), "bias": np.array([0.2], dtype)}


def colbert():
    return drawn({"weight": (32, 32), "bias": (32,)}, 8)


def write_m3(folder, arrays=None, **torch_file):
    write_architecture(folder, "xlm-roberta")
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    write(folder, {"1_Pooling/config.json": pooling})
    write_torch(folder / "sparse_linear.pt", arrays or linear(), **torch_file)
    write_torch(folder / "colbert_linear.pt", colbert())


KINDS = {"<f4": "FloatStorage", "<f2": "HalfStorage", "<f8": "DoubleStorage"}
REBUILD = "torch._utils\n_rebuild_tensor_v2"


def write_torch(
    path: Path, arrays: Mapping[str, np.ndarray], pickled: bytes | None = None, packing: int = 0
) -> None:
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickled or state_dict(arrays))
        archive.writestr(f"{path.stem}/byteorder", "little")
        for number, array in enumerate(arrays.values()):
            archive.writestr(f"{path.stem}/data/{number}", array.tobytes())


def state_dict(arrays: Mapping[str, np.ndarray], rebuild: str = REBUILD) -> bytes:
    """Returns the pickle of a state dict, in its form as text; numbers are in storages apart."""
    tensors = (
        f"V{name}\n{_tensor(number, array, rebuild)}"
        for number, (name, array) in enumerate(arrays.items())
    )
    return f"}}({''.join(tensors)}u.".encode()


def _tensor(number: int, array: np.ndarray, rebuild: str) -> str:
    kind, strides = KINDS[array.dtype.str], [stride // array.itemsize for stride in array.strides]
    storage = f"(Vstorage\nctorch\n{kind}\nV{number}\nVcpu\nI{array.size}\ntQ"
    hooks = "ccollections\nOrderedDict\n)R"
    return f"c{rebuild}\n({storage}I0\n{_tuple(array.shape)}{_tuple(strides)}I00\n{hooks}tR"


def _tuple(numbers: Sequence[int]) -> str:
    return "".join(["(", *(f"I{number}\n" for number in numbers), "t"])
