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
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.options.command_line import command_of, parse_embed
from tests.support.command import embed, flags_of, record, rows, say_status
from tests.support.daily import counts, write
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow


def test_of_several_outputs_the_last_with_an_id_decides(tmp_path, tiny_bundle):
    """What went back to an older text is new: the last output has another vector of it."""
    day1 = write(tmp_path / "1.jsonl", {"a": "red river", "b": "bank", "c": "vault"})
    day2 = write(tmp_path / "2.jsonl", {"a": "seven stars", "b": "bank", "c": "vault"})
    runs = tmp_path / "runs"
    assert embed(runs / "1", tiny_bundle, day1) == 0
    assert embed(runs / "2", tiny_bundle, day2, skip_existing=runs / "1") == 0
    assert rows(runs / "2")["id"] == ["a"]
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
    tmp_path, days, tiny_bundle, capsys, monkeypatch
):
    """The second sees the first, which began and has not ended, before it computes anything."""
    day1, day2 = days
    runs, straight, said = tmp_path / "runs", job.run_job, []
    first, second = runs / "first", runs / "second"
    assert embed(runs / "day1", tiny_bundle, day1) == 0

    def another_meanwhile(attempt, record):
        monkeypatch.setattr(job, "run_job", straight)
        capsys.readouterr()
        blocks = {"block_bytes": 500}  # else both would be one run, which readers refuse
        assert embed(second, tiny_bundle, day2, skip_existing=runs / "day1", **blocks) == 0
        said.append(capsys.readouterr().err)
        straight(attempt, record)

    monkeypatch.setattr(job, "run_job", another_meanwhile)
    assert embed(first, tiny_bundle, day2, skip_existing=runs / "day1") == 0
    assert f"warning: {first} (running) continues {runs}/day1, too, and is not named" in said[0]
    twice = counts(first)[1]
    wanted = f"{first} and {second} continue the same output and neither names the other: {twice}"
    with pytest.warns(UserWarning, match=re.escape(wanted)):
        bert_embed.read(runs)
    assert main(["search", str(runs), "bank"]) == 0
    assert f"note: {wanted} document" in capsys.readouterr().err
    # What it says to do, and nothing is said any more.
    assert embed(second, tiny_bundle, day2, skip_existing=runs, overwrite=True) == 0
    assert "continues" not in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids, _ = bert_embed.read(runs)
    assert len(ids) == len(set(ids))


def test_a_glob_of_runs_leaves_out_the_run_itself(tmp_path, days, tiny_bundle, capsys):
    day1, day2 = days
    runs = tmp_path / "runs"
    assert embed(runs / "day1", tiny_bundle, day1) == 0
    assert embed(runs / "day2", tiny_bundle, day2, skip_existing=f"{runs}/day*") == 0
    assert counts(runs / "day2") == (60, 3, 56, 1)
    capsys.readouterr()
    assert embed(runs / "day2", tiny_bundle, day2, skip_existing=f"{runs}/day*") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert embed(runs / "day1", tiny_bundle, day1, skip_existing=runs / "day1") == 2
    assert "is the --output of this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"pooling": "cls"}, 'pooling is "mean" there and "cls" here'),
        (
            {"dim": 8, "normalize": True},
            "normalize is false there and true here, dim is null there and 8 here",
        ),
        ({"max_seq_length": 16}, "max_seq_length is 64 there and 16 here"),
        ({"prompt": "query: "}, 'prompt is "" there and "query: " here'),
        ({"output_dtype": "float16"}, 'output_dtype is "float32" there and "float16" here'),
        ({"granularity": "word"}, 'granularity is ["sentence"] there and ["word"] here'),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_other_settings_are_refused_before_work(
    tmp_path, days, one, tiny_bundle, capsys, flags, message
):
    _, day2 = days
    capsys.readouterr()
    flags = flags | {"skip_existing": one}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "holds other vectors than this run computes" in error
    assert message in error
    assert not (tmp_path / "two").exists()
    (one / "run.json").unlink()
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    assert "names no output of a run: no run.json in it" in capsys.readouterr().err


def test_ids_of_another_type_are_named_as_the_inputs(tmp_path, tiny_bundle, capsys):
    """No flag gives them a type."""
    table = pa.table({"id": [1, 2], "text": ["a red river", "a bank"]})
    pq.write_table(table, tmp_path / "1.parquet")
    write(tmp_path / "2.jsonl", {1: "a red river", 2: "a bank"})
    assert embed(tmp_path / "one", tiny_bundle, tmp_path / "1.parquet") == 0
    flags = {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, tmp_path / "2.jsonl", **flags) == 2
    assert "give the ids in the input the type that they had" in capsys.readouterr().err


def test_another_model_is_refused(tmp_path, days, one, tiny_bundle, capsys):
    _, day2 = days
    write_tiny_huggingface(tmp_path / "model", seed=1)
    other = import_huggingface(str(tmp_path / "model"), str(tmp_path / "bundle")).path
    flags = {"skip_existing": one}
    assert embed(tmp_path / "two", other, day2, **flags) == 2
    message = f'model is "{read_bundle(tiny_bundle).fingerprint}" there and '
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"skip_existing": "nowhere"}, "--skip_existing nowhere names no output of a run"),
        ({"skip_existing": "no/*/runs"}, "--skip_existing no/*/runs names no output of a run"),
    ],
    ids=["nowhere", "glob"],
)
def test_what_cannot_be_asked(tmp_path, days, tiny_bundle, capsys, flags, message):
    assert embed(tmp_path / "two", tiny_bundle, days[0], **flags) == 2
    assert message in capsys.readouterr().err


def test_json_lines_of_tokens_do_not_tell(tmp_path, days, tiny_bundle, capsys):
    day1, day2 = days
    flags = {"granularity": "token", "output_format": "jsonl"}
    assert embed(tmp_path / "one", tiny_bundle, day1, **flags) == 0
    flags |= {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    assert "JSON lines of tokens, which have no text_hash" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["embeddings/part-*", "_state/blocks/0*.json"])
def test_an_earlier_run_that_was_killed_counts_with_what_it_finished(
    tmp_path, days, tiny_bundle, capsys, lost
):
    day1, _ = days
    assert embed(tmp_path / "one", tiny_bundle, day1, block_bytes=700) == 0
    say_status(tmp_path / "one", "running")
    missing = rows_of(sorted((tmp_path / "one").glob("embeddings/part-*"))[1])
    sorted((tmp_path / "one").glob(lost))[1].unlink()
    capsys.readouterr()
    assert embed(tmp_path / "two", tiny_bundle, day1, skip_existing=tmp_path / "one") == 0
    assert "an unfinished run: its finished blocks count" in capsys.readouterr().err
    assert rows(tmp_path / "two")["id"] == missing


def rows_of(path):
    import pyarrow.parquet as pq

    return pq.read_table(path)["id"].to_pylist()


def cut(data):
    return data[:100]


def flip_an_id(data):
    import pyarrow.parquet as pq

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


@pytest.mark.parametrize("damage", [flip_an_id, break_footer, break_name])
def test_a_damaged_file_is_named(tmp_path, days, one, tiny_bundle, capsys, damage):
    _, day2 = days
    path = next(one.glob("embeddings/part-*"))
    path.write_bytes(damage(path.read_bytes()))
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=one) == 1
    said = capsys.readouterr().err
    assert f"{path} is damaged: `bert-embed verify --repair` writes" in said
    assert "the same command continues" in said
    assert main(["verify", str(one), "--repair"]) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=one) == 0


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_a_cut_or_lost_file_is_told_before_work(tmp_path, days, tiny_bundle, capsys, output_format):
    """Of what it lacks nothing says that it is gone, and readers refuse it."""
    day1, day2 = days
    assert embed(tmp_path / "one", tiny_bundle, day1, output_format=output_format) == 0
    path = next((tmp_path / "one").glob("embeddings/part-*"))
    path.write_bytes(cut(path.read_bytes()))
    for lose in (lambda: None, path.unlink):
        lose()
        assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one") == 2
        assert "in embeddings/, its run wrote 1 of " in capsys.readouterr().err
        assert not (tmp_path / "two").exists()
    assert main(["verify", str(tmp_path / "one"), "--repair"]) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one") == 0


def test_an_earlier_output_that_grew_is_another_run(tmp_path, days, one, tiny_bundle, capsys):
    _, day2 = days
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=one) == 0
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "copy") == 0
    assert "nothing to do" in capsys.readouterr().out
    path = next((tmp_path / "copy").glob("embeddings/part-*"))
    path.rename(path.with_name(path.name.replace("0000000", "0000009")))
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "copy") == 2
    assert "holds another run (--skip_existing changed since)" in capsys.readouterr().err


def test_the_command_that_continues_names_every_earlier_output():
    words = ["--input=a", "--output=b", "--skip_existing=c", "--skip_existing=d"]
    assert command_of(parse_embed(words))[2:] == words


def test_earlier_outputs_may_stand_in_a_file(tmp_path):
    (tmp_path / "run.yaml").write_text("input: a\noutput: b\nskip_existing: [c, d]\n")
    found = parse_embed([f"--config={tmp_path / 'run.yaml'}"])
    assert found.skip_existing == ("c", "d")


def test_earlier_outputs_on_cloud_storage(tmp_path, days, one, tiny_bundle, gcs):
    _, day2 = days
    there = gcs.put_folder(one, "increments", "runs/day1")
    for number, named in enumerate((there, "gs://increments/runs/*", "gs://increments/runs/")):
        output = tmp_path / f"two{number}"
        assert embed(output, tiny_bundle, day2, skip_existing=named) == 0
        assert counts(output) == (60, 3, 56, 1)


def test_a_run_on_cloud_storage_skips_what_is_there(days, tiny_bundle, gcs, capsys):
    day1, day2 = days
    gcs.client.bucket("increments-out").create()
    flags = {"skip_existing": "gs://increments-out/runs/*"}
    assert embed("gs://increments-out/runs/1", tiny_bundle, day1) == 0
    assert embed("gs://increments-out/runs/2", tiny_bundle, day2, **flags) == 0
    assert "60 records: 3 embedded, 56 skipped, 1 rejected" in capsys.readouterr().out
    assert embed("gs://increments-out/runs/2", tiny_bundle, day2, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_examples_are_no_outputs_to_compare_with(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("the bank\nriver\n")
    source, runs = tmp_path / "in.txt", tmp_path / "runs"
    words = [f"--input={source}", f"--model={tiny_bundle}"]
    assert main(["tokenize", *words, f"--output={runs}/examples"]) == 0
    assert embed(runs / "first", tiny_bundle, source) == 0
    out = tmp_path / "out"
    assert embed(out, tiny_bundle, source, skip_existing=runs / "examples") == 2
    assert "holds examples of `tokenize`, not vectors" in capsys.readouterr().err
    assert embed(out, tiny_bundle, source, skip_existing=runs) == 0
    assert record(out)["counts"]["skipped"] == 2
