"""What a person sees: a live line on a terminal, a summary, nothing of the texts."""

import gzip
import os
import pty
import re
import subprocess
import time

import numpy as np
import pytest

from bert_embed.pipeline.progress import RunCounts
from bert_embed.results.run_record import Goal
from bert_embed.transforms.ledger import BlockRecord, block_record_bytes
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import REPORT, ROOT, Hold, flags_of, record
from tests.support.forks import python
from tests.support.servers.gcs import behind

LINE = r"\d+% · \d:\d\d left · [\d,]+ of about [\d,]+ documents · [\d,]+ tokens/s · 0 rejected"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("passed", "held", "wanted", "line"),
    [
        (8, REPORT, " left", LINE),
        (0, REPORT, "waiting for the first part", ""),
    ],
)
def test_a_terminal_shows_a_live_line(tmp_path, tiny_bundle, passed, held, wanted, line):
    """Also of a run that finishes no part."""
    hold = Hold(tmp_path / "hold", passed, held)
    shown, out = on_terminal(tmp_path, tiny_bundle, hold, wanted)
    assert wanted in shown, shown[-2000:]
    assert re.search(line, shown), shown[-2000:]
    assert "1,000 records: 1,000 embedded" in out


@pytest.mark.slow
def test_a_terminal_that_writes_no_line_anew_gets_none(tmp_path, tiny_bundle):
    hold = Hold(tmp_path / "hold", 0)
    shown, _ = on_terminal(tmp_path, tiny_bundle, hold, " blocks", TERM="dumb")
    assert "\x1b" not in shown, shown[-2000:]


def on_terminal(tmp_path, model, hold, wanted, **variables):
    """What a run that is held until a terminal shows `wanted` writes there, and to stdout."""
    path = tmp_path / "in.txt"
    path.write_text("\n".join(f"line {n} of this text" for n in range(1000)))
    flags = flags_of(tmp_path / "out", model, path, block_bytes=1000)
    leader, terminal = pty.openpty()
    process = subprocess.Popen(
        [*python(), "-m", "bert_embed", "embed", *flags],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"} | variables | hold.environment,
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)
    shown, last = b"", time.monotonic() + 60
    while piece := read_terminal(leader):
        shown += piece
        if wanted.encode() in shown or time.monotonic() > last:
            hold.go()
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return shown.decode(), out.decode()


def read_terminal(leader):
    try:
        return os.read(leader, 4096)
    except OSError:  # the other end is closed
        return b""


def test_elsewhere_there_is_no_live_line_and_never_a_text(run, caplog):
    source = {"in.txt": b"secret words\nmore secret\xff words\n\nsecret again\n"}
    output = run(source)
    assert "documents ·" not in run.err
    assert "4 records: 2 embedded, 2 rejected (1 empty text, 1 invalid UTF-8)" in run.out
    assert re.search(r"1 invalid UTF-8\)\n.* tokens, padding", run.out)
    assert f"vectors in {output}" in run.out
    assert "secret" not in run.out + run.err + caplog.text
    for path in (output / "run.json", *output.glob("_state/blocks/*")):
        assert b"secret" not in path.read_bytes()
    run(source)
    assert run.out.startswith("nothing to do")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_plan_of_a_csv_counts_records_not_lines(run, suffix):
    text = "a line\nof the river\n" * 8
    data = ("id,text\n" + "".join(f'{n},"{text}"\n' for n in range(900))).encode()
    # Stored, as what a compressed file may hold is a guess: four times its size.
    run({f"in.csv{suffix}": gzip.compress(data, 0) if suffix else data}, dry_run=True)
    (documents,) = re.findall(r"about ([\d,]+) documents", run.out)
    assert int(documents.replace(",", "")) == pytest.approx(3600 if suffix else 900, rel=0.02)


def test_the_plan_counts_each_kind_of_files_by_its_largest(run):
    """By the first of all files a short note made a table of 300 records one of thousands."""
    files = {"in/A.md": "my data\n", "in/b.csv": "text\n" + "a line of the river\n" * 300}
    lines = '{"text": "the bank of a river, and its money"}\n' * 200
    run(files | {"in/c.jsonl": lines}, dry_run=True)
    assert ", about 501 documents, " in run.out


def test_a_reader_that_leaves_early_has_not_had_its_answer(minilm):
    """Without a word, as the reader knows; other programs see it by the exit code."""
    words = ["model", "inspect", "minilm", "--text=" + "word " * 20_000]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*python(), "-m", "bert_embed", *words], cwd=ROOT, **pipes) as process:
        assert process.stdout.readline().split() == [b"[CLS]", b"101"]
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == b""


BLOCKS, WORKERS, TOKENS = 200, 4, 1000


def finished_parts(seed):
    """When each block of a run of several workers ends, and how long it took."""
    seconds = np.random.default_rng(seed).uniform(4, 16, (WORKERS, BLOCKS // WORKERS))
    ends = seconds.cumsum(axis=1)
    return sorted(zip(ends.ravel().tolist(), seconds.ravel().tolist(), strict=True))


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


def test_a_store_is_asked_for_each_block_record_once(run, gcs, monkeypatch):
    output = run({"in.txt": "\n".join(["the river bank", "", "the bank"] * 40)}, block_bytes=500)
    done, url = record(output), gcs.put_folder(output, "speeds", "out")
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
