"""Counts of different hashes: exact for small runs, near for large ones, in bounded memory."""

import numpy as np
import pytest

from bert_embed.transforms.ledger import EXACT, Distinct, distinct, joined, sample_bits


def hashes(count):
    return np.random.default_rng(0).integers(-(2**63), 2**63 - 1, count, np.int64)


@pytest.mark.parametrize("expected", [EXACT, 600_000], ids=["as expected", "more than expected"])
def test_a_large_run_is_estimated_from_what_fits_memory(expected):
    different = hashes(300_000)
    every = np.concatenate([different, np.repeat(different[:1], 300_000)])
    bits = sample_bits(expected)
    parts = [distinct(part, bits) for part in np.array_split(every, 50)]
    found = joined([joined(parts[:1]), joined(parts[1:])])  # samples of different shares
    assert found.bits > 0
    assert len(found.hashes) <= 1 << 17
    assert abs(found.count - 300_000) < 0.02 * 300_000


@pytest.mark.parametrize("repeated", [0, 2_000, 200_000])
def test_what_a_large_run_has_twice_is_estimated_and_never_where_nothing_is(repeated):
    different = hashes(1_000_000)
    for seed in range(10):
        every = np.random.default_rng(seed).permutation(different + seed)
        every = np.append(every, every[:repeated])
        parts = [distinct(part, sample_bits(len(every))) for part in np.array_split(every, 50)]
        found = joined(Distinct.from_text(part.to_text(), part.bits) for part in parts)
        assert found.bits > 0
        assert abs(found.surplus(len(every)) - repeated) <= 0.25 * repeated


def test_a_small_run_is_exact_and_hashes_keep_their_bits():
    every = hashes(1000)
    parts = [distinct(part, sample_bits(1500)) for part in (every, every[500:])]
    read = [Distinct.from_text(part.to_text(), part.bits) for part in parts]
    assert (joined(read).count, joined(read).bits) == (1000, 0)
    assert joined([]).count == 0
