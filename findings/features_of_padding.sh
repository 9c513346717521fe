#!/usr/bin/env bash
# transformers 5.24.0 with torch 2.15.0: `pipeline("feature-extraction")` with a batch_size.
#
# One would guess that `batch_size` is about speed: a text gets the rows that it gets alone, one a token, to rounding.
#
# Seen: alone a text of four tokens gets four rows, in a batch beside one of 42 tokens it gets 42: the last 38 are vectors of
# padding, and nothing that comes back says where they begin. Its mean, the usual way to make one vector of them, has a cosine
# of below 0.95 with the mean without a batch; its last row is one of padding.
#
# Why: FeatureExtractionPipeline pads a batch, returns what the model returned, and drops the attention mask.
#
# For users: no batch_size there, or take only as many rows as the tokenizer gives tokens for that text alone.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13, a package index and 7 GB.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0 tokenizers==0.23.3 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM' 2>log || { tail -n 5 log; exit 1; }
import sys

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, pipeline

VOCABULARY = {token: number for number, token in enumerate("[PAD] [UNK] [CLS] [SEP] a b c d e".split())}
SHORT, LONG = "a b", " ".join("abcde" * 8)

words = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
)
torch.manual_seed(0)
config = BertConfig(
    vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)
extract = pipeline("feature-extraction", model=BertModel(config).eval(), tokenizer=tokenizer, device="cpu")


def cosine(one, other):
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


alone = np.array(extract([SHORT, LONG])[0][0])
batched = np.array(extract([SHORT, LONG], batch_size=2)[0][0])
near = cosine(alone.mean(axis=0), batched.mean(axis=0))
print("rows alone", len(alone), "in a batch", len(batched))
print("largest difference of the text's own rows", np.abs(batched[: len(alone)] - alone).max())
print("cosine of both means", round(float(near), 3))
same = np.allclose(batched[: len(alone)], alone, atol=1e-5)
sys.exit(not (same and (len(alone), len(batched)) == (4, 42) and bool(near < 0.95)))
PROGRAM
