"""Speeds and ends of runs whose blocks come in lumps, on a clock of the test's own. Quick."""

import random
import time

import pytest

from bert_embed.pipeline.progress import RunCounts, Speed
from bert_embed.results.run_record import Goal
from tests.support.command import embed, record
from tests.support.servers.gcs import behind

BLOCKS, WORKERS, TOKENS = 200, 4, 1000


def finished_parts(seed):
    """When each block of a run of several workers ends, and how long it took."""
    chance = random.Random(seed)
    free = [0.0] * WORKERS
    parts = []
    for _ in range(BLOCKS):
        worker = free.index(min(free))
        seconds = chance.uniform(4, 16)
        free[worker] += seconds
        parts.append((free[worker], seconds))
    return sorted(parts)


@pytest.mark.parametrize("seed", range(5))
def test_the_time_left_is_about_right_and_speeds_do_not_fall_between_two_parts(seed):
    parts, speed = finished_parts(seed), Speed()
    end = parts[-1][0]
    for number, (when, seconds) in enumerate(parts):
        speed.add(when, seconds, TOKENS, 1.0)
        left = speed.seconds_left(float(BLOCKS - number - 1))
        if when > 60:
            assert abs(when + left - end) < (0.15 if when > end / 2 else 0.25) * end
    expected = TOKENS * WORKERS / 10
    assert speed.overall() == pytest.approx(expected, rel=0.1)
    assert speed.lately() == pytest.approx(expected, rel=0.4)


def test_lately_follows_a_run_that_became_faster():
    speed = Speed()
    for n in range(3000):
        speed.add(10.0 * n, 10, 100, 1.0)
    for n in range(200):
        speed.add(29_990 + 1.0 * (n + 1), 1, 100, 1.0)
    assert speed.lately() == pytest.approx(100, rel=0.05)
    assert speed.overall() == pytest.approx(3200 * 100 / 30_200, rel=0.01)


def test_nothing_is_known_before_a_part_ends():
    speed = Speed()
    assert (speed.overall(), speed.lately(), speed.seconds_left(10.0)) == (0.0, 0.0, None)
    speed.add(10.0, 10.0, 100, 1.0)
    assert speed.overall() == speed.lately() == 10
    assert speed.seconds_left(9.0) == 90


def test_a_store_is_asked_for_each_block_record_once(tmp_path, tiny_bundle, gcs, monkeypatch):
    (tmp_path / "in.txt").write_text("\n".join(["the river bank", "", "the bank"] * 40))
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", block_bytes=500) == 0
    done = record(tmp_path / "out")
    url = gcs.put_folder(tmp_path / "out", "speeds", "out")
    with behind(gcs, monkeypatch) as proxy:
        plan = Goal(done["plan"]["blocks"] + 1, 2 * done["plan"]["covers"], 0)
        counts = RunCounts(url, done["run"], plan, time.time())
        counts.look()
        first = counts.progress(None)
        proxy.forget()
        counts.look()
        assert counts.progress(None).documents == first.documents
        assert (proxy.counts()["read"], proxy.counts()["list"]) == (0, 1)
    assert (first.documents, first.rejected, first.share) == (80, 40, 0.5)
    assert first.documents_estimated == 200  # as many records again, none of which is rejected yet
