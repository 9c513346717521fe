"""Speeds and ends of runs whose blocks come in lumps, on a clock of the test's own. Quick."""

import random
import time

import pytest

from bert_embed.pipeline.progress import RunCounts
from bert_embed.results.run_record import Goal
from bert_embed.transforms.ledger import BlockRecord, block_record_bytes
from bert_embed.transforms.output_folder import OutputFolder
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
def test_the_speed_and_the_time_left_are_about_right(seed, tmp_path, monkeypatch):
    parts, ended = finished_parts(seed), []
    end = parts[-1][0]

    def new(folder, has):
        return [one for one in ended if not has(*one[:2])]

    monkeypatch.setattr(OutputFolder, "new_block_records", new)
    counts = RunCounts(str(tmp_path), "run", Goal(BLOCKS, BLOCKS, BLOCKS), 0.0)
    before = counts.progress(None)
    assert (before.tokens_per_second, before.seconds_left) == (0.0, None)
    for number, (when, seconds) in enumerate(parts):
        covered, took = {0: 1}, {"infer": seconds}
        record = BlockRecord(
            *(number, 0, True, 1, covered, None), embedded=1, tokens=TOKENS, seconds=took
        )
        ended.append((number, 0, when, block_record_bytes(record, "run")))
        counts.look()
        left = counts.progress(None).seconds_left
        if when > 60:
            assert abs(when + left - end) < (0.15 if when > end / 2 else 0.25) * end
    expected = pytest.approx(TOKENS * WORKERS / 10, rel=0.1)
    assert counts.progress(None).tokens_per_second == expected


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
