#!/usr/bin/env bash
# sentence-transformers 6.2.0 with transformers 5.24.0: a prompt that ends with a space, and `include_prompt=False`.
#
# Such a model pools the tokens of the text and leaves out those of the prompt, as INSTRUCTOR does. One would guess that the
# prompt "query: " stands for the same tokens whatever tokenizer the model has, and that all of the text's tokens count.
#
# Seen: with WordPiece, which drops spaces, they do. With byte-level BPE (RoBERTa, ModernBERT, Qwen) and SentencePiece (XLM-R, T5)
# the first token of each text is left out as well: the vector of the query "house" is that of [SEP] alone. With small
# models of random weights it has a cosine of below 0.9 with the right one. No warning is given.
#
# Why: the length of the prompt is measured by itself, where its last space is a token; before a text this space is a part of
# the text's first token.
#
# For users: compare the tokens of the prompt with those of prompt and text. "query:" and a text that begins with a space give
# the same ids and the right vector.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13, a package index and 7 GB.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sentence-transformers==6.2.0 transformers==5.24.0 torch==2.15.0 \
  tokenizers==0.23.3 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM' 2>log || { tail -n 5 log; exit 1; }
import sys

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PROMPT, TEXTS = "query: ", ["house", "red house stands"]


def numbered(tokens):
    return {token: number for number, token in enumerate(SPECIAL + tokens)}


def word_piece():
    made = Tokenizer(models.WordPiece(numbered("query : red house stands".split()), unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def byte_level():
    # Each word is merged from its left, a letter at a time
    words = ["query", ":", "Ġred", "Ġhouse", "Ġstands"]
    merges = list(dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word))))
    tokens = sorted(set("".join(words))) + [one + other for one, other in merges]
    made = Tokenizer(models.BPE(numbered(tokens), merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


def sentence_piece():
    pieces = ["▁query", ":", "▁red", "▁house", "▁stands"]
    made = Tokenizer(models.Unigram([(piece, -1.0) for piece in SPECIAL + pieces] + [("▁", -5.0)], unk_id=1))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def cosine(one, other):
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


ok = True
for make in (word_piece, byte_level, sentence_piece):
    made = make()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=64, **special).save_pretrained(make.__name__)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(make.__name__)
    transformer = Transformer(make.__name__)
    pooling = Pooling(16, "mean", include_prompt=False)
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    for text in TEXTS:
        vector = model.encode(text, prompt=PROMPT)
        row = model.tokenizer(PROMPT + text, return_tensors="pt", return_offsets_mapping=True)
        ends = row.pop("offset_mapping")[0, :-1, 1].numpy()
        with torch.no_grad():
            states = transformer.auto_model(**row).last_hidden_state[0].numpy()
        first = int(np.argmax(ends > len(PROMPT)))  # the text's first token; [SEP] is the last of all
        tokens = model.tokenizer.convert_ids_to_tokens(row["input_ids"][0])
        near, without = cosine(vector, states[first:].mean(axis=0)), cosine(vector, states[first + 1 :].mean(axis=0))
        moved = cosine(model.encode(" " + text, prompt=PROMPT.rstrip()), states[first:].mean(axis=0))
        print(make.__name__, tokens, f"all of the text {near:.4f}, without its first token {without:.4f}")
        right, other = (near, without) if make is word_piece else (without, near)
        apart = other < (0.9 if text == TEXTS[0] else 0.99)
        ok = ok and len(tokens) == 4 + len(text.split()) and min(right, moved) > 0.9999 and apart
sys.exit(not ok)
PROGRAM
