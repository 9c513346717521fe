#!/usr/bin/env bash
# transformers 5.24.0 with tokenizers 0.23.3: a pair whose second text is empty.
#
# One would guess that `tokenizer("a", "")` gives the row that `tokenizer(["a"], [""])` gives in its list.
#
# Seen: alone it is a text without a second one, [CLS] a [SEP]; in a list it is a pair, [CLS] a [SEP] [SEP], whose last token
# has the type 1. So a cross-encoder gets other ids for the same pair, given alone or in a list. With an empty first text
# both are pairs.
#
# For users whose documents may be empty: give lists, of one pair, too.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$folder"
TRANSFORMERS_VERBOSITY=error venv/bin/python - <<'PROGRAM'
import sys

from transformers import BertTokenizer

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")
tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)})


def tokens(text, second):
    """The tokens of a pair, given alone and as a list of one, with their types."""
    alone, listed = tokenizer(text, second), tokenizer([text], [second])
    return (
        (tokenizer.convert_ids_to_tokens(alone["input_ids"]), alone["token_type_ids"]),
        (tokenizer.convert_ids_to_tokens(listed["input_ids"][0]), listed["token_type_ids"][0]),
    )


seen = {"second": tokens("a", ""), "first": tokens("", "a")}
print(*seen.items(), sep="\n")
pair = (["[CLS]", "[SEP]", "a", "[SEP]"], [0, 0, 1, 1])
expected = {
    "second": ((["[CLS]", "a", "[SEP]"], [0, 0, 0]), (["[CLS]", "a", "[SEP]", "[SEP]"], [0, 0, 0, 1])),
    "first": (pair, pair),
}
sys.exit(seen != expected)
PROGRAM
