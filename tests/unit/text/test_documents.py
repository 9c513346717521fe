"""Documents with their tokens."""

import numpy as np

from bert_embed.bundle.bundle import read_bundle
from bert_embed.text.documents import tokenize_documents
from bert_embed.text.tokenizer import load_tokenizer


def test_documents_are_taken_in_the_order_that_is_asked_for(tiny_bundle):
    texts = ["the bank", "river", "money money"]
    documents = tokenize_documents(load_tokenizer(read_bundle(tiny_bundle)), texts)
    for order in ([2, 0, 1], [1], [0, 1, 2], []):
        taken = documents.take(np.array(order, np.int64))
        assert taken.texts == [texts[row] for row in order]
        assert taken.lengths.tolist() == [int(documents.lengths[row]) for row in order]
