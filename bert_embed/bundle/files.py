"""Names the files of bundles and model folders, and hashes them."""

import hashlib
import os

SAVED_MODEL = "saved_model.pb"
TF1_HUB = "tfhub_module.pb"
ARCHIVES = (".tar.gz", ".tgz")
HUB_HANDLES = ("https://tfhub.dev/", "https://www.kaggle.com/models/")
METADATA = "bundle.json"
MARKERS = (METADATA, "config.json", "modules.json", "bert_config.json", SAVED_MODEL, TF1_HUB)
VOCABULARY = "vocab.txt"
# The encoder for LiteRT, by the precision of its products.
LITERT = {"float32": "float32.tflite", "int8": "int8.tflite"}
WEIGHTS = LITERT["float32"]  # holds the float32 tensors by name, which TensorFlow reads, too


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Returns the sha256 of a file as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
