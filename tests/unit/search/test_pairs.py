import numpy as np
import pytest

from bert_embed.search.clusters import (
    MOST_NEIGHBOURS,
    PAIR,
    decide,
    find_pairs,
    member_type,
    rank_keys,
)
from tests.support.outputs import clustered_vectors

THRESHOLD = 0.9


@pytest.fixture(scope="module")
def members():
    vectors = clustered_vectors(900, width=12, groups=30, seed=3)
    keys = np.random.default_rng(0).random(len(vectors))
    rows = np.argsort(keys)
    members = np.empty(len(rows), member_type("<f4", 12))
    members["row"], members["key"], members["vector"] = rows, keys[rows], vectors[rows]
    return members


@pytest.fixture(scope="module")
def every_pair(members):
    """The neighbours that rank before each row, in the order of ranks."""
    wide = members["vector"].astype(float)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    near = np.tril(wide @ wide.T >= THRESHOLD - 1e-12, -1)
    return {
        row: members["row"][np.flatnonzero(some)].tolist()
        for row, some in zip(members["row"].tolist(), near, strict=True)
    }


def found(members, tile_rows, **more):
    def tile(number):
        return members[number * tile_rows : (number + 1) * tile_rows]

    return find_pairs(-(-len(members) // tile_rows), tile, THRESHOLD, **more)


def listed(pairs):
    lists = {}
    for row, other in zip(pairs["row"].tolist(), pairs["other"].tolist(), strict=True):
        lists.setdefault(row, []).append(other)
    return lists


@pytest.mark.parametrize("tile_rows", [900, 128, 17])
def test_each_row_has_its_first_neighbours_whatever_the_tiles(members, every_pair, tile_rows):
    result = found(members, tile_rows)
    assert max(map(len, every_pair.values())) > MOST_NEIGHBOURS
    wanted = {row: some[:MOST_NEIGHBOURS] for row, some in every_pair.items() if some}
    assert listed(result.pairs) == wanted
    assert sorted(result.full.tolist()) == sorted(
        row for row, some in every_pair.items() if len(some) >= MOST_NEIGHBOURS
    )


def test_scores_are_cosines(members):
    pairs = found(members, 100).pairs
    vectors = dict(zip(members["row"].tolist(), members["vector"].astype(float), strict=True))
    for row, _, other, _, score in pairs:
        left, right = vectors[int(row)], vectors[int(other)]
        cosine = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
        assert score == pytest.approx(cosine, abs=1e-12)
        assert score <= 1


def test_a_search_can_want_some_and_leave_others_out(members, every_pair):
    wanted, removed = members["row"][500:600], members["row"][::2]
    result = found(members, 64, wanted=wanted, removed=removed)
    gone = set(removed.tolist())
    kept = {row: [each for each in every_pair[row] if each not in gone] for row in wanted.tolist()}
    assert listed(result.pairs) == {
        row: some[:MOST_NEIGHBOURS] for row, some in kept.items() if some and row not in gone
    }


def pairs_of(*several):
    """Pairs of rows whose keys are their numbers."""
    return np.array([(left, left, right, right, 0.95) for left, right in several], PAIR)


NONE = np.empty(0, np.int64)


def test_what_is_near_a_removed_vector_only_is_kept():
    decided = decide(pairs_of((1, 0), (2, 1), (3, 2)), NONE)
    assert decided.removed.tolist() == [1, 3]
    assert decided.kept.tolist() == [0, 2]


def test_of_several_the_first_by_rank_is_kept_instead():
    decided = decide(pairs_of((5, 4), (5, 1), (5, 3), (5, 1)), NONE)
    assert decided.removed.tolist() == [5]
    assert decided.kept.tolist() == [1]


def test_a_row_with_more_neighbours_waits_for_them():
    pairs = pairs_of((1, 0), (2, 1), (3, 2))
    decided = decide(pairs, np.array([2]))
    assert decided.removed.tolist() == [1]
    assert decided.undecided.tolist() == [2, 3]  # 3 is near 2 only, which may be removed


def test_equal_keys_rank_by_row():
    assert decide(np.array([(9, 0.5, 4, 0.5, 0.5)], PAIR), NONE).removed.tolist() == [9]


def test_hard_keeps_what_is_far_from_its_centroid():
    distances, chances = np.array([0.1, 0.4], np.float32), np.array([0.7, 0.3])
    assert rank_keys("hard", distances, chances).argmin() == 1
    assert rank_keys("easy", distances, chances).argmin() == 0
    assert rank_keys("random", distances, chances).argmin() == 1
