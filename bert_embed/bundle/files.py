"""Names the files of bundles and model folders, and hashes them."""

import hashlib
import os
from pathlib import Path

from bert_embed.storage.errors import InputError

SAVED_MODEL = "saved_model.pb"
TF1_HUB = "tfhub_module.pb"
ARCHIVES = (".tar.gz", ".tgz")
HUB_HANDLES = ("https://tfhub.dev/", "https://www.kaggle.com/models/")
METADATA = "bundle.json"
SAFETENSORS = "model.safetensors"
MARKERS = (METADATA, "config.json", "modules.json", "bert_config.json", SAVED_MODEL, TF1_HUB)
ADAPTER = "adapter_config.json"  # of peft
VOCABULARY, TOKENIZER_JSON = "vocab.txt", "tokenizer.json"
# The encoder for LiteRT, by the precision of its products.
LITERT = {"float32": "float32.tflite", "int8": "int8.tflite"}
WEIGHTS = LITERT["float32"]  # holds the float32 tensors by name, which TensorFlow reads, too


def refuse_adapter(folder: Path) -> None:
    """Raises InputError where peft keeps an adapter, beside its base or without it."""
    if (folder / ADAPTER).is_file():
        raise InputError(
            f"{folder}: {ADAPTER} is that of an adapter, which is not applied to its base model: "
            f"merge them, model = AutoModel.from_pretrained(BASE) of transformers, then "
            f'PeftModel.from_pretrained(model, "{folder}").merge_and_unload() of peft, and put '
            "what its save_pretrained writes in place of the weights and of the adapter",
            "model",
        )


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Returns the sha256 of a file as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
