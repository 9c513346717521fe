"""How far our encoders are from transformers': ids and hidden states of one model of each family.

`python -m benchmarks.exactness [FAMILY ...]`. The models are small, with random weights in which
every part matters (tests/support/models/architectures.py). Each is imported, and the hidden states
of all its layers are compared with those that transformers computes from the same folder, in the
peers' environment: texts of 1 token to the model's length, in twenty scripts, with emoji, empty
ones, and pairs. "int8" is the least cosine of a text's vector in int8 with its own in float32.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.peers import peer, peer_versions
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from tests.support.models.architectures import (
    KINDS,
    LONG,
    PAIRS,
    SCRIPTS,
    write_architecture,
)
from tests.support.models.architectures import TEXTS as SHORT
from tests.support.models.tiny import write_tiny_huggingface

_GREETINGS = (
    *("Hello, world!", "Καλημέρα, κόσμε", "Привет, мир", "Բարեւ աշխարհ", "שלום עולם"),
    *("مرحبا بالعالم", "नमस्ते दुनिया", "ওহে বিশ্ব", "வணக்கம் உலகம்", "สวัสดีชาวโลก"),
    *("გამარჯობა სამყარო", "안녕하세요 세계", "こんにちは世界", "你好世界", "ሰላም ልዑል"),
    *("សួស្តី​ពិភពលោក", "ආයුබෝවන් ලෝකය", "નમસ્તે વિશ્વ", "హలో ప్రపంచం", "བཀྲ་ཤིས་བདེ་ལེགས"),
)
# With the tokens before and behind, on both sides of a sliding window of 128.
_COUNTED = tuple("a " * count for count in (1, 2, 125, 126, 127, 300))
TEXTS = (*SHORT, *_GREETINGS, *_COUNTED, " ".join([LONG] * 4), f"{SCRIPTS} \U0001f389" * 9)
_FAMILIES = ("bert", "word_piece", *KINDS)
_POSITIONS = 512


def main() -> None:
    """Compares the families and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(_FAMILIES)}; default: all")
    args = parser.parse_args()
    unknown = sorted({*args.families} - {*_FAMILIES})
    if unknown:
        parser.error(f"no family is called {unknown[0]}")
    theirs = peer("transformers_states")
    table, results = [], {}
    for family in args.families or _FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            results[family] = found = _compare(Path(folder), family, theirs)
        row = [found["layers"], found["tokenizer"], found["longest"], f"{found['difference']:.1e}"]
        row += [f"{found['largest_value']:.3g}"]
        row += ["yes" if found["ids_equal"] else "NO", f"{found['int8']:.4f}"]
        table.append([family, *map(str, row)])
        print(" ".join(table[-1]), flush=True)
    theirs.close()
    record = {
        "benchmark": "exactness",
        "data": f"{len(TEXTS)} texts and {len(PAIRS)} pairs a family",
        "results": results,
        "peers": peer_versions("transformers", "tokenizers", "torch"),
    }
    header = ["family", "layers", "tokenizer", "longest row", "largest difference"]
    header += ["of values up to", "ids equal"]
    measure.report(record, [*header, "int8"], table)


def _compare(folder: Path, family: str, theirs: measure.Child) -> dict[str, object]:
    source = folder / "source"  # for transformers, which knows no names of the hub's own code
    if family == "bert":
        write_tiny_huggingface(source, positions=_POSITIONS)
    else:
        write_architecture(source, family, hub=False)
        write_architecture(folder / "ours", family)
    ours = folder / "ours" if family != "bert" else source
    bundle = import_model(str(ours), str(folder / "bundle"))
    rows = [[text] for text in TEXTS] + [list(pair) for pair in PAIRS]
    reference = str(folder / "reference.npz")
    theirs.ask([family, str(source), rows, bundle.max_seq_length, reference])
    arrays = np.load(reference)
    encoder = Encoder(bundle, threads=1)
    layers = list(range(bundle.config.num_hidden_layers + 1))
    settings = {"layers": layers, "layer_combine": "stack", "long_text": "truncate"}
    first, second = zip(*PAIRS, strict=True)
    vectors = encoder.encode_tokens(TEXTS, **settings)
    vectors += encoder.encode_tokens(first, second, **settings)
    difference, largest, equal, longest = 0.0, 0.0, True, 0
    for number, tokens in enumerate(vectors):
        ids, states = arrays[f"ids/{number}"], arrays[f"states/{number}"]
        longest, largest = max(longest, len(ids)), max(largest, float(np.abs(states).max()))
        equal &= tokens.texts == encoder.tokenizer.tokens(ids)
        if states.shape == tokens.vectors.shape:
            difference = max(difference, float(np.abs(tokens.vectors - states).max()))
        else:
            difference = float("inf")
    texts = [text for text in TEXTS if text.strip()]
    float32 = encoder.encode(texts, long_text="truncate")
    int8 = Encoder(bundle, threads=1, precision="int8").encode(texts, long_text="truncate")
    return {
        "layers": len(layers) - 1,
        "tokenizer": encoder.tokenizer.settings.get("kind", "BERT's WordPiece"),
        "longest": longest,
        "difference": difference,
        "largest_value": largest,
        "ids_equal": equal,
        "int8": float(np.diag(encoder.similarity(float32, int8)).min()),
    }


if __name__ == "__main__":
    main()
