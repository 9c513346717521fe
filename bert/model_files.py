"""Which files tell that a folder holds a model; known to those who resolve and those who import."""

from bert.bundle import METADATA

SAVED_MODEL = "saved_model.pb"
TF1_HUB = "tfhub_module.pb"
MARKERS = (METADATA, "config.json", "modules.json", "bert_config.json", SAVED_MODEL, TF1_HUB)
ARCHIVES = (".tar.gz", ".tgz")
HUB_HANDLES = ("https://tfhub.dev/", "https://www.kaggle.com/models/")
