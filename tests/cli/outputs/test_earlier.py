"""What --skip_existing may name: outputs of such vectors, one or many, here or on Cloud Storage."""

import io
import re
import shutil
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.bundle.bundle import read_bundle
from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.options.command_line import command_of, parse_embed
from tests.support.command import embed, flags_of, record, rows, say_status
from tests.support.daily import counts, write
from tests.support.models.tiny import bundle_of, write_tiny_huggingface

pytestmark = pytest.mark.slow


def test_of_several_outputs_the_last_with_an_id_decides(tmp_path, run, tiny_bundle):
    """What went back to an older text is new: the last output has another vector of it."""
    day1 = write(tmp_path / "1.jsonl", {"a": "red river", "b": "bank", "c": "vault"})
    day2 = write(tmp_path / "2.jsonl", {"a": "seven stars", "b": "bank", "c": "vault"})
    runs = tmp_path / "runs"
    run(day1, "runs/1")
    assert rows(run(day2, "runs/2", skip_existing=runs / "1"))["id"] == ["a"]
    in_order = [f"--skip_existing={runs}/1", f"--skip_existing={runs}/2"]
    for number, named in enumerate(([f"--skip_existing={runs}"], in_order)):
        output = tmp_path / f"back{number}"
        assert main_with(output, tiny_bundle, day1, *named) == 0
        assert rows(output)["id"] == ["a"]
    assert main_with(tmp_path / "other", tiny_bundle, day1, *in_order[::-1]) == 0
    assert counts(tmp_path / "other") == (3, 0, 3, 0)


def main_with(output, model, source, *words):
    return main(["embed", *flags_of(output, model, source), *words])


def test_two_increments_of_one_output_at_once_are_told_by_name(
    days, run, tiny_bundle, capsys, monkeypatch
):
    """The second sees the first, which began and has not ended, before it computes anything."""
    day1, day2 = days
    straight, said = job.run_job, []
    first_day = run(day1, "runs/day1")
    runs = first_day.parent
    first, second = runs / "first", runs / "second"

    def another_meanwhile(attempt, record):
        monkeypatch.setattr(job, "run_job", straight)
        capsys.readouterr()
        blocks = {"block_bytes": 500}  # else both would be one run, which readers refuse
        assert embed(second, tiny_bundle, day2, skip_existing=first_day, **blocks) == 0
        said.append(capsys.readouterr().err)
        straight(attempt, record)

    monkeypatch.setattr(job, "run_job", another_meanwhile)
    run(day2, "runs/first", skip_existing=first_day)
    assert f"warning: {first} (running) continues {runs}/day1, too, and is not named" in said[0]
    twice = counts(first)[1]
    wanted = f"{first} and {second} continue the same output and neither names the other: {twice}"
    with pytest.warns(UserWarning, match=re.escape(wanted)):
        bert_embed.read(runs)
    assert main(["search", str(runs), "bank"]) == 0
    assert f"note: {wanted} document" in capsys.readouterr().err
    # What it says to do, and nothing is said any more.
    run(day2, "runs/second", skip_existing=runs, overwrite=True)
    assert "continues" not in run.err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids, _ = bert_embed.read(runs)
    assert len(ids) == len(set(ids))


def test_a_glob_of_runs_leaves_out_the_run_itself(tmp_path, days, run):
    day1, day2 = days
    run(day1, "runs/day1")
    for said in ("3 embedded", "nothing to do"):
        second = run(day2, "runs/day2", skip_existing=f"{tmp_path}/runs/day*")
        assert said in run.out
    assert counts(second) == (60, 3, 56, 1)
    message = "is the --output of this run"
    run.refused(day1, message, "runs/day1", skip_existing=tmp_path / "runs" / "day1")


OTHER_SETTINGS = [
    ({"pooling": "cls"}, 'pooling is "mean" there and "cls" here'),
    (
        {"dim": 8, "normalize": True},
        "normalize is false there and true here, dim is null there and 8 here",
    ),
    ({"max_seq_length": 16}, "max_seq_length is 64 there and 16 here"),
    ({"prompt": "query: "}, 'prompt is "" there and "query: " here'),
    ({"output_dtype": "float16"}, 'output_dtype is "float32" there and "float16" here'),
    ({"granularity": "word"}, 'granularity is ["sentence"] there and ["word"] here'),
]


def test_other_settings_are_refused_before_work(days, one, run):
    for flags, message in OTHER_SETTINGS:
        run.refused(days[1], message, "two", skip_existing=one, **flags)
        assert "holds other vectors than this run computes" in run.err
        assert run.err.count("\n") == 1
    (one / "run.json").unlink()
    message = "names no output of a run: no run.json in it"
    run.refused(days[1], message, "two", skip_existing=one)


def test_what_cannot_be_compared_with_is_refused(tmp_path, days, one, run, tiny_bundle):
    """Nothing, another model, ids of another type, JSON lines of tokens."""
    for named in ("nowhere", "no/*/runs"):
        message = f"--skip_existing {named} names no output of a run"
        run.refused(days[0], message, "none", skip_existing=named)
    other = bundle_of(tmp_path / "model", write_tiny_huggingface, seed=1)
    message = f'model is "{read_bundle(tiny_bundle).fingerprint}" there and '
    run.refused(days[1], message, "other", skip_existing=one, model=other)
    texts = {1: "a red river", 2: "a bank"}
    table = pa.table({"id": list(texts), "text": list(texts.values())})
    pq.write_table(table, tmp_path / "1.parquet")
    numbers = run(tmp_path / "1.parquet", "numbers")  # no flag gives ids a type
    message = "give the ids in the input the type that they had"
    strings = write(tmp_path / "2.jsonl", texts)
    run.refused(strings, message, "strings", skip_existing=numbers)
    flags = {"granularity": "token", "output_format": "jsonl"}
    tokens = run(days[0], "tokens", **flags)
    message = "JSON lines of tokens, which have no text_hash"
    run.refused(days[1], message, "two", skip_existing=tokens, **flags)


@pytest.mark.parametrize("lost", ["embeddings/part-*", "_state/blocks/0*.json"])
def test_an_earlier_run_that_was_killed_counts_with_what_it_finished(days, run, lost):
    first = run(days[0], "one", block_bytes=700)
    say_status(first, "running")
    missing = pq.read_table(sorted(first.glob("embeddings/part-*"))[1])["id"].to_pylist()
    sorted(first.glob(lost))[1].unlink()
    second = run(days[0], "two", skip_existing=first)
    assert "an unfinished run: its finished blocks count" in run.err
    assert rows(second)["id"] == missing


def flip_an_id(data):
    column = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    at = column.data_page_offset + column.total_compressed_size // 2
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


def break_footer(data):
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start] + b"\xff" * 32 + data[start + 32 :]


def break_name(data):
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x02id", start) + 1
    return data[:at] + b"\xff\xff" + data[at + 2 :]


def test_a_damaged_file_is_named(days, one, run):
    path = next(one.glob("embeddings/part-*"))
    whole = path.read_bytes()
    for damage in (flip_an_id, break_footer, break_name):
        path.write_bytes(damage(whole))
        run(days[1], "two", code=1, skip_existing=one)
        assert f"{path} is damaged: `bert-embed verify --repair` writes" in run.err
        assert "the same command continues" in run.err
    assert main(["verify", str(one), "--repair"]) == 0
    run(days[1], "two", skip_existing=one)


def test_a_cut_or_lost_file_is_told_before_work(days, one, run):
    """Of what it lacks nothing says that it is gone, and readers refuse it."""
    path = next(one.glob("embeddings/part-*"))
    path.write_bytes(path.read_bytes()[:100])
    for lose in (lambda: None, path.unlink):
        lose()
        run.refused(days[1], "in embeddings/, its run wrote 1 of ", "two", skip_existing=one)


def test_an_earlier_output_that_grew_is_another_run(tmp_path, days, one, run):
    run(days[1], "two", skip_existing=one)
    copy = shutil.copytree(one, tmp_path / "copy")
    run(days[1], "two", skip_existing=copy)
    assert "nothing to do" in run.out
    path = next(copy.glob("embeddings/part-*"))
    path.rename(path.with_name(path.name.replace("0000000", "0000009")))
    run.refused(
        days[1], "holds another run (--skip_existing changed since)", "two", skip_existing=copy
    )


def test_examples_are_no_outputs_to_compare_with(tmp_path, tiny_bundle, run):
    (source,) = run.written({"in.txt": "the bank\nriver\n"})
    runs = tmp_path / "runs"
    assert main(["tokenize", *flags_of(runs / "examples", tiny_bundle, source)]) == 0
    run(source, "runs/first")
    message = "holds examples of `tokenize`, not vectors"
    run.refused(source, message, skip_existing=runs / "examples")
    assert record(run(source, skip_existing=runs))["counts"]["skipped"] == 2


def test_the_command_that_continues_names_every_earlier_output():
    words = ["--input=a", "--output=b", "--skip_existing=c", "--skip_existing=d"]
    assert command_of(parse_embed(words))[2:] == words
