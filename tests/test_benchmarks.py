"""The proof that the sides of a benchmark computed the same."""

import pyarrow as pa
import pytest

from benchmarks.end_to_end import difference


def test_an_entry_that_one_side_lacks_counts_whole():
    ours = pa.table({"indices": [[1, 5], [], []], "values": [[1.0, 0.5], [], []]})
    theirs = pa.table({"indices": [[1], [7], []], "values": [[0.75], [0.25], []]})
    assert difference("sparse", ours, theirs) == 0.5
    assert difference("sparse", theirs, theirs) == 0


def test_multi_vectors_of_another_number_of_tokens_are_not_compared():
    tokens = pa.list_(pa.list_(pa.float32(), 2))
    two, moved, one_less = (
        pa.table({"embedding": pa.array(rows, tokens)})
        for rows in (
            [[[1, 2], [3, 4]], [[5, 6]]],
            [[[1, 2], [3, 4.5]], [[5, 6]]],
            [[[1, 2]], [[3, 4], [5, 6]]],
        )
    )
    assert difference("multi", two, moved) == 0.5
    with pytest.raises(RuntimeError, match="not the same number"):
        difference("multi", two, one_less)


def test_scores_are_compared_label_by_label():
    ours = pa.table({"id": ["0"], "no": [0.25], "yes": [0.75], "label": ["yes"]})
    theirs = pa.table({"id": ["a text"], "no": [0.5], "yes": [0.5]})
    assert difference("scores", ours, theirs) == 0.25
