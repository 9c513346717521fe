#!/usr/bin/env bash
# sentence-transformers 6.2.0 with transformers 5.24.0: a tokenizer with a chat template changes what texts become.
#
# A folder of an encoder whose tokenizer_config.json has a chat_template gets the modules Transformer and Pooling. One would
# guess that the template is for chats, lists of messages with roles, and that a plain text has the same tokens without it.
#
# Seen: each text becomes a message of the role "user" in that template. Its row begins with the template's words and has no
# [CLS] and [SEP], though the encoder was trained with them; the vector is another, without a warning.
#
# For users: look at model.preprocess(["a text"])["input_ids"] once. Remove chat_template from tokenizer_config.json (and the
# file chat_template.jinja) of an encoder that was trained without it.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13, a package index and 7 GB.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sentence-transformers==6.2.0 transformers==5.24.0 torch==2.15.0 numpy==2.4.6
cd "$folder"
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error venv/bin/python - <<'PROGRAM'
import sys

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "user", ":", "a", "bank")
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}"


def given(folder, **settings):
    """The tokens and the vector of a text by a small encoder with seeded weights, and settings of its tokenizer."""
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    BertTokenizer(vocab=vocabulary, **settings).save_pretrained(folder)
    model = SentenceTransformer(modules=[Transformer(folder), Pooling(32)], device="cpu")
    ids = model.preprocess(["a bank"])["input_ids"][0]
    return model.tokenizer.convert_ids_to_tokens(ids), model.encode("a bank", normalize_embeddings=True)


plain, vector = given("plain")
templated, other = given("templated", chat_template=TEMPLATE)
print("without a template:", plain, "with one:", templated, "cosine of both:", float(vector @ other), sep="\n")
as_seen = plain == ["[CLS]", "a", "bank", "[SEP]"] and templated == ["user", ":", "a", "bank"]
sys.exit(not (as_seen and vector @ other < 0.99))
PROGRAM
