"""Import a google-research BERT checkpoint (TensorFlow 1) into a bundle."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.bundle import VOCABULARY, Bundle
from bert.config import BertConfig
from bert.importers.json_files import read_json
from bert.importers.vocabulary import read_vocabulary
from bert.importers.writer import write_bundle

CONFIG = "bert_config.json"
_MAX_WORD_CHARS = 200  # of google-research's WordpieceTokenizer
_USUAL = "bert_model.ckpt"
# What optimisers and heads leave in a checkpoint, by the names that google-research gives them.
_IGNORED = re.compile(
    r".*/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1|AdamWeightDecayOptimizer(_1)?)$"
    r"|global_step$|good_steps$|loss_scale$|beta[12]_power$"
    r"|cls/|output_weights$|output_bias$|loss/"
)
# modeling.py computes "gelu" by the tanh form, whatever its name says elsewhere.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_LOWER = re.compile(r"(^|_)(uncased|multilingual|chinese)_L-")
_CASED = re.compile(r"(^|_)cased_L-")
_NAMES = {
    "embeddings/word": "embeddings/word_embeddings",
    "embeddings/position": "embeddings/position_embeddings",
    "embeddings/type": "embeddings/token_type_embeddings",
    "embeddings/norm": "embeddings/LayerNorm",
    "pooler": "pooler/dense",
}
_LAYER_NAMES = {
    "query": "attention/self/query",
    "key": "attention/self/key",
    "value": "attention/self/value",
    "attention_output": "attention/output/dense",
    "attention_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_norm": "output/LayerNorm",
}


def import_google(
    source: str,
    dest: str,
    *,
    checkpoint: str | None = None,
    lower_case: bool | None = None,
    activation: str | None = None,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports `bert_config.json`, `vocab.txt` and a checkpoint into a bundle at `dest`.

    Args:
        source: The folder.
        dest: The bundle's folder, which must not exist or be empty.
        checkpoint: Such as `model.ckpt-2345`; None takes the folder's only or latest one.
        lower_case: Whether the model is uncased; None judges by the folder's name.
        activation: `gelu` (erf), `gelu_new` (tanh) or `relu`, instead of the configuration's.
        name: What the bundle says of its source; the folder's path if not given.
        licence: What it says of the licence.

    Raises:
        ValueError: A file or tensor missing, misshapen or left over, or a casing nobody told.
    """
    root = Path(source).absolute()
    config = read_config(root / CONFIG, activation)
    tensors = read_checkpoint(root, find_checkpoint(root, checkpoint), config)
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        lower_case=casing_of(root) if lower_case is None else lower_case,
        max_word_chars=_MAX_WORD_CHARS,
        max_seq_length=config.max_position_embeddings,
        has_pooler="pooler/kernel" in tensors,
        source=name or str(root),
        licence=licence or "",
    )
    return write_bundle(bundle, tensors, read_vocabulary(root / VOCABULARY, config, CONFIG))


def read_config(path: Path, activation: str | None = None) -> BertConfig:
    """Reads a `bert_config.json`; "gelu" in it is the tanh form, as google-research computes it.

    Raises:
        ValueError: Sizes missing, or an activation that is not computed here.
    """
    values = read_json(path)
    hidden_act = values.get("hidden_act", "gelu")
    if activation is None and hidden_act not in _ACTIVATIONS:
        raise ValueError(f"{path}: hidden_act must be gelu or relu, got {hidden_act!r}")
    try:
        config = BertConfig.from_huggingface({"model_type": "bert", **values, "hidden_act": "gelu"})
    except ValueError as error:
        raise ValueError(str(error).replace("config.json", str(path))) from error
    return replace(config, hidden_act=activation or _ACTIVATIONS[hidden_act])


def casing_of(folder: Path) -> bool:
    """Whether the model is uncased, by the folder's name as Google names them.

    >>> casing_of(Path("uncased_L-12_H-768_A-12")), casing_of(Path("multi_cased_L-12_H-768_A-12"))
    (True, False)

    Raises:
        ValueError: The name does not tell.
    """
    if _LOWER.search(folder.name):
        return True
    if _CASED.search(folder.name):
        return False
    raise ValueError(
        f"{folder}: the name does not tell whether the model is cased; import it with "
        "`model import SOURCE DEST` and --lower_case or --cased"
    )


def find_checkpoint(folder: Path, name: str | None) -> str:
    """Returns the prefix of the checkpoint's files.

    Raises:
        ValueError: None, none of that name, or several among which nothing chooses.
    """
    found = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    if name is not None:
        chosen = name.removesuffix(".index")
    elif _USUAL in found:
        chosen = _USUAL
    elif len(found) == 1:
        chosen = found[0]
    else:
        chosen = _latest(folder)
    if chosen not in found:
        listed = ", ".join(found) or "none"
        raise ValueError(f"{folder}: --checkpoint must be one of {listed}, got {chosen or 'none'}")
    if not list(folder.glob(f"{chosen}.data-*-of-*")):
        raise ValueError(f"{folder}: the checkpoint's file {chosen}.data-00000-of-00001 is missing")
    return str(folder / chosen)


def _latest(folder: Path) -> str:
    """What the folder's `checkpoint` file names as the latest, "" if there is none."""
    state = folder / "checkpoint"
    text = state.read_text("utf-8", errors="replace") if state.is_file() else ""
    found = re.search(r'^model_checkpoint_path: (".*")$', text, re.MULTILINE)
    return Path(json.loads(found[1])).name if found else ""


def read_checkpoint(folder: Path, prefix: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Reads the encoder's weights in the names and shapes of `bert.model.tensor_shapes`.

    Raises:
        ValueError: Naming the file or the tensor that is wrong.
    """
    import tensorflow as tf

    from bert.model import tensor_shapes

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        shapes = {name: shape for name, shape in shapes.items() if not _IGNORED.match(name)}
        pooler = "bert/pooler/dense/kernel" in shapes
        tensors = {}
        for name, wanted in tensor_shapes(config, pooler).items():
            theirs = google_name(name)
            if theirs not in shapes:
                raise ValueError(f"{prefix}: tensor {theirs} is missing")
            if (found := shapes.pop(theirs)) != list(wanted):
                raise ValueError(f"{prefix}: tensor {theirs} must be {list(wanted)}, is {found}")
            tensors[name] = np.asarray(reader.get_tensor(theirs), np.float32)
    except (tf.errors.OpError, RuntimeError, IndexError) as error:  # IndexError: file too short
        raise ValueError(f"{prefix}: the checkpoint cannot be read, perhaps cut") from error
    if shapes:
        raise ValueError(f"{prefix}: tensor {min(shapes)} is not part of a BERT encoder")
    return tensors


def google_name(name: str) -> str:
    """Returns google-research's name of our tensor.

    >>> google_name("layers/3/output/kernel"), google_name("embeddings/word")
    ('bert/encoder/layer_3/output/dense/kernel', 'bert/embeddings/word_embeddings')
    """
    if name in _NAMES:
        return f"bert/{_NAMES[name]}"
    module, _, part = name.rpartition("/")
    if module.startswith("layers/"):
        _, number, kind = module.split("/")
        return f"bert/encoder/layer_{number}/{_LAYER_NAMES[kind]}/{part}"
    return f"bert/{_NAMES[module]}/{part}"
