"""How texts share the rows of a program, whatever their lengths are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.backends.jax.packing import PackedRows, most_texts, placed, usual_tokens
from tests.support.command import ROOT


def computed(batches):
    return sum(batch.tokens for batch in batches)


def natural(mean, count, longest):
    """Lengths of English texts are near to log-normal."""
    lengths = np.random.default_rng(0).lognormal(np.log(mean) - 0.6**2 / 2, 0.6, count)
    return np.clip(lengths.round().astype(int) + 2, 3, longest)


@given(
    lengths=st.lists(st.integers(2, 300), max_size=300),
    budget=st.integers(1, 3000),
    longest=st.integers(300, 9000),
    chips=st.sampled_from([1, 4, 8]),
    left_out=st.randoms(use_true_random=False),
)
def test_every_text_runs_once_whole_in_a_row_of_its_batch(
    lengths, budget, longest, chips, left_out
):
    lengths = np.array(lengths, np.int64)
    rows = PackedRows(budget, longest, chips)
    batches = rows.plan(lengths)
    assert sorted(text for batch in batches for text in batch.rows) == list(range(len(lengths)))
    assert rows.ahead(batches, False) == [batch.shape for batch in batches]
    for batch in batches:
        count, length = batch.shape
        assert count % chips == 0
        some = batch.rows[[left_out.random() < 0.7 for _ in batch.rows]]  # as where others failed
        for texts in (batch.rows, some):
            row, slot, start = placed(lengths[texts], batch.shape)
            assert row.max(initial=0) < count
            assert slot.max(initial=0) < most_texts(length)
            stop = start + lengths[texts]
            assert stop.max(initial=0) <= length
            same = row[1:] == row[:-1]
            assert (start[1:][same] == stop[:-1][same]).all()
            assert (slot[1:][same] == slot[:-1][same] + 1).all()
            assert (start[1:][~same] == 0).all()


@pytest.mark.parametrize("longest", [64, 128, 256, 512, 2048, 8192])
@pytest.mark.parametrize("chips", [1, 8])
def test_a_model_has_eight_programs_at_most(longest, chips):
    rows = PackedRows(16384 * chips, longest, chips)
    assert len(rows.shapes) <= 8
    for mean in (8, 25, 100, 400):
        batches = rows.plan(natural(mean, 3000, longest))
        assert {batch.shape for batch in batches} <= {*rows.shapes}


@pytest.mark.parametrize(
    ("mean", "longest", "most"),
    [
        *((25, 512, 0.03), (25, 128, 0.08), (40, 512, 0.03), (8, 512, 0.08), (120, 512, 0.08)),
        *((120, 256, 0.08), (250, 512, 0.08), (400, 512, 0.08), (2000, 8192, 0.08)),
    ],
)
@pytest.mark.parametrize(("texts", "chips"), [(300, 1), (1000, 1), (20_000, 1), (20_000, 8)])
def test_little_is_padding_on_texts_of_natural_lengths(mean, longest, most, texts, chips):
    lengths = natural(mean, texts, longest)
    rows = PackedRows(16384 * chips, longest, chips)
    assert computed(rows.plan(lengths)) < (1 + most) * lengths.sum()


LENGTHS = (3, 30, 65, 86, 100, 129, 171, 193, 257, 300, 342, 400, 512)


@pytest.mark.parametrize(
    ("longest", "length"),
    [*((512, length) for length in LENGTHS), (8192, 600), (8192, 1100), (8192, 4100)],
)
@pytest.mark.parametrize("texts", [1000, 4000])
def test_little_is_padding_where_all_texts_are_of_a_length(longest, length, texts):
    found = computed(PackedRows(16384, longest).plan(np.full(texts, length)))
    most = 1.1 if texts * length > 16384 else 1.4  # less than a batch
    assert found < most * texts * length


def test_the_page_shows_the_padding_of_a_block():
    def padding(mean, texts, chips, device):
        block = natural(mean, texts, 512)
        packed = PackedRows(usual_tokens(device, 512) * chips, 512, chips)
        return computed(packed.plan(block)) / block.sum() - 1

    page = " ".join((ROOT / "docs" / "accelerators.md").read_text("utf-8").split())
    one = [(mean, device) for mean in (25, 120) for device in ("gpu", "tpu")]
    small, large = (max(padding(mean, texts, 1, on) for mean, on in one) for texts in (100, 20_000))
    assert f"at most {small:.1%} of the tokens in blocks of 100 texts on one chip or GPU" in page
    assert f"at most {large:.0%} in blocks of 20,000" in page
    assert f"up to {padding(25, 300, 8, 'tpu'):.1%} with 300 texts of 25" in page


def test_the_same_texts_are_packed_the_same_way():
    lengths = natural(40, 2000, 512)
    one, other = (PackedRows(16384, 512).plan(lengths) for _ in range(2))
    for mine, theirs in zip(one, other, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine.rows, theirs.rows)
