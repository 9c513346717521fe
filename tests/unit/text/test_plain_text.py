"""On plain ASCII text tensorflow-text agrees with ours, token for token."""

import pydoc_data.topics

import numpy as np
import tensorflow_text as tf_text

from bert_embed.text.tokenizer import Tokenizer


def test_english_has_the_ids_of_tensorflow_text(minilm):
    """FastBertTokenizer is no reference beyond ASCII, nor for words of 100 bytes and more."""
    lines = [
        line
        for topic in pydoc_data.topics.topics.values()
        for line in topic.splitlines()
        if line.isascii() and all(len(word) < 100 for word in line.split())
    ]
    assert len(lines) > 5000
    with open(f"{minilm.path}/vocab.txt", encoding="utf-8") as file:
        vocab = file.read().splitlines()
    theirs = tf_text.FastBertTokenizer(vocab, lower_case_nfd_strip_accents=True)
    expected = theirs.tokenize(lines).merge_dims(1, -1)
    ids, row_splits = Tokenizer(vocab, lower_case=True).encode_flat(lines)
    np.testing.assert_array_equal(ids, expected.flat_values.numpy())
    np.testing.assert_array_equal(row_splits, expected.row_splits.numpy())
