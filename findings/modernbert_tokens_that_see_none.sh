#!/usr/bin/env bash
# transformers 5.24.0 with torch 2.15.0: ModernBERT's last hidden states of tokens whose window holds no real token.
#
# A query for late interaction is filled up with tokens that no other token attends to (attention_mask 0) and whose vectors
# are used all the same. ModernBERT's local layers see local_attention / 2 places to each side, so a fill token further than
# that behind the text sees nothing there. One would guess that "eager" and "sdpa", two ways to compute the same attention,
# give these tokens the same vectors to rounding, as they do for all others, and that fill tokens behind them change nothing.
#
# Seen: the vectors of such tokens differ between the two; "sdpa" gives them zeros of the local layers, "eager" the mean of all
# places of the row, whatever is there: with "eager" four more fill tokens at the end of the row change them, and nothing else.
#
# For users who index multi-vectors of ModernBERT: encode queries with the attention with which the model was trained and
# tested, and keep query_length below local_attention / 2 where you can.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13, a package index and 7 GB.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0 numpy==2.4.6
cd "$folder"
TRANSFORMERS_VERBOSITY=error venv/bin/python - <<'PROGRAM'
import sys

import torch
from transformers import ModernBertConfig, ModernBertModel

WORDS, FILLED, MORE = 4, 16, 20  # places of the text, of the row, of a longer row
WINDOW = 4  # local_attention: two places to each side
SETTINGS = {
    **dict(vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2),
    **dict(local_attention=WINDOW, global_attn_every_n_layers=3, max_position_embeddings=64, pad_token_id=0),
    **dict(bos_token_id=1, cls_token_id=1, eos_token_id=2, sep_token_id=2),
}


def states(attention, places):
    """The last hidden states of four words and fill tokens, of a model with seeded weights."""
    torch.manual_seed(0)
    model = ModernBertModel(ModernBertConfig(**SETTINGS, attn_implementation=attention)).eval()
    ids = torch.tensor([[1, 7, 8, 2] + [3] * (places - WORDS)])
    mask = torch.tensor([[1] * WORDS + [0] * (places - WORDS)])
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).last_hidden_state[0, :FILLED]


def differing(one, other):
    """The places of tokens whose vectors differ by more than rounding."""
    return [place for place, far in enumerate((one - other).abs().amax(-1).tolist()) if far > 1e-5]


blind = list(range(WORDS + WINDOW // 2, FILLED))  # they see no word in a local layer
seen = {
    "eager beside sdpa": differing(states("eager", FILLED), states("sdpa", FILLED)),
    "eager in a longer row": differing(states("eager", FILLED), states("eager", MORE)),
    "sdpa in a longer row": differing(states("sdpa", FILLED), states("sdpa", MORE)),
}
print(f"tokens that see none: {blind}", *seen.items(), sep="\n")
sys.exit(list(seen.values()) != [blind, blind, []])
PROGRAM
