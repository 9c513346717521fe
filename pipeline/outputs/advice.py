"""Says which flags help where much of a text did not reach the model."""

ADVICE = {
    "cut": "--long_text window or --chunk tokens reads all, --max_seq_length more",
    "unknown": "choose a --model for these languages",
}
