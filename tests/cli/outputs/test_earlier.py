"""What --skip_existing may name: outputs of such vectors, one or many, here or on Cloud Storage."""

import re
import shutil
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.bundle.bundle import read_bundle
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.options.command_line import command_of, parse_embed
from tests.support.command import flags_of, rows, say_status
from tests.support.daily import counts, some_texts, two_days, write
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    return two_days(tmp_path_factory.mktemp("days"))


@pytest.fixture
def one(days, run):
    """The output of the first day."""
    return run(days[0], "one")


def test_of_several_outputs_the_last_with_an_id_decides(tmp_path, run, tiny_bundle):
    """What went back to an older text is new: the last output has another vector of it."""
    day1 = write(tmp_path / "1.jsonl", {"a": "red river", "b": "bank", "c": "vault"})
    day2 = write(tmp_path / "2.jsonl", {"a": "seven stars", "b": "bank", "c": "vault"})
    runs = tmp_path / "runs"
    run(day1, "runs/1")
    assert rows(run(day2, "runs/2", skip_existing=runs / "1"))["id"] == ["a"]
    assert rows(run(day1, "back", skip_existing=runs))["id"] == ["a"]
    words = flags_of(tmp_path / "other", tiny_bundle, day1, skip_existing=runs / "2")
    assert main(["embed", *words, f"--skip_existing={runs}/1"]) == 0  # the order that they are in
    assert counts(tmp_path / "other") == (3, 0, 3, 0)


def test_two_increments_of_one_output_are_told(days, run, capsys):
    """Whoever reads both is told; one of them that names the other is embedded again."""
    day1, day2 = days
    first_day = run(day1, "runs/day1")
    runs = first_day.parent
    first, second = run(day2, "runs/first", skip_existing=first_day), runs / "second"
    # In other blocks, else both would be one run, which readers refuse.
    run(day2, "runs/second", skip_existing=first_day, block_bytes=500)
    twice = counts(first)[1]
    wanted = f"{first} and {second} continue the same output and neither names the other: {twice}"
    with pytest.warns(UserWarning, match=re.escape(wanted)):
        bert_embed.read(runs)
    assert main(["search", str(runs), "bank"]) == 0
    assert f"note: {wanted} document" in capsys.readouterr().err
    # What it says to do, and nothing is said any more; a folder of runs leaves out the run itself.
    run(day2, "runs/second", skip_existing=runs, overwrite=True)
    run.refused(day2, "is the --output of this run", "runs/second", skip_existing=second)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids, _ = bert_embed.read(runs)
    assert len(ids) == len(set(ids))


def test_what_cannot_be_compared_with_is_refused(tmp_path, days, one, run, tiny_bundle, model_of):
    """Other settings, nothing, another model, ids of another type, JSON lines of tokens."""
    for flags, message in (
        (
            {"pooling": "cls", "dim": 8},
            'is "mean" there and "cls" here, dim is null there and 8 here',
        ),
        ({"prompt": "query: "}, 'prompt is "" there and "query: " here'),
        ({"granularity": "word"}, 'granularity is ["sentence"] there and ["word"] here'),
    ):
        run.refused(days[1], message, "two", skip_existing=one, **flags)
        assert "holds other vectors than this run computes" in run.err
        assert run.err.count("\n") == 1
    for named in ("nowhere", "no/*/runs", days[0].parent):
        message = f"--skip_existing {named} names no output of a run"
        run.refused(days[0], message, "none", skip_existing=named)
    other = model_of(write_tiny_huggingface, seed=1).path
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


def test_a_damaged_or_lost_file_is_named(days, one, run):
    """A bit of an id, the footer, and the name of a column in it; before work, if it is cut."""
    path = next(one.glob("embeddings/part-*"))
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(0)
    of_ids = column.data_page_offset + column.total_compressed_size // 2
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    damage = {of_ids: bytes([whole[of_ids] ^ 16]), footer: b"\xff" * 32}
    for at, data in (damage | {whole.index(b"\x02id", footer) + 1: b"\xff\xff"}).items():
        path.write_bytes(whole[:at] + data + whole[at + len(data) :])
        run(days[1], "two", code=1, skip_existing=one)
        assert f"{path} is damaged: `bert-embed verify --repair` writes" in run.err
        assert "the same command continues" in run.err
    assert main(["verify", str(one), "--repair"]) == 0
    run(days[1], "two", skip_existing=one)
    path.write_bytes(whole[:100])  # of what it lacks nothing says that it is gone
    for lose in (lambda: None, path.unlink):
        lose()
        run.refused(days[1], "in embeddings/, its run wrote 1 of ", "three", skip_existing=one)


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


def test_the_command_that_continues_names_every_earlier_output():
    words = ["--input=a", "--output=b", "--skip_existing=c", "--skip_existing=d"]
    assert command_of(parse_embed(words))[2:] == words


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"output_dtype": "int8", "output_format": "jsonl"},
        {"granularity": "token"},
        {"long_text": "windows", "max_seq_length": 6, "overlap": 1},
        {"chunk": "tokens:3", "overlap": 1},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())) or "default",
)
def test_new_and_changed_documents_alone_are_embedded(days, run, flags):
    flags = flags | {"block_bytes": 700}
    first = run(days[0], "one", **flags)
    second = run(days[1], "two", skip_existing=first, **flags)
    assert counts(second) == (60, 3, 56, 1)
    if not flags.keys() & {"output_format", "granularity"}:
        assert list(dict.fromkeys(rows(second)["id"])) == ["d3", "new1", "new2"]


def test_examples_are_compared_with_outputs_of_texts(tmp_path, days, run, tiny_bundle):
    flags = {"long_text": "window", "max_seq_length": 6, "overlap": 1}
    first = run(days[0], "one", **flags)
    examples = tmp_path / "examples"
    words = flags_of(examples, tiny_bundle, days[1], max_rejected="99%", **flags)
    assert main(["tokenize", *words]) == 0
    second = run(examples, "two", skip_existing=first, part_docs=7)
    assert counts(second) == (59, 3, 56, 0)
    assert rows(second)["id"] == ["d3", "new1", "new2"]
    assert counts(run(examples, "three", skip_existing=tmp_path)) == (59, 0, 59, 0)
    message = "holds examples of `tokenize`, not vectors"  # which among outputs are left out
    run.refused(days[1], message, "four", skip_existing=examples)


def test_read_through_files_are_joined_by_reader_and_part(tmp_path, run):
    texts = some_texts(300)
    day1 = write(tmp_path / "1.jsonl", {name: text for name, text in texts.items() if name != "d8"})
    plain = write(tmp_path / "2.jsonl", texts).read_text()
    flags = {"block_bytes": 3000, "part_docs": 20, "skip_existing": run(day1, "one")}
    second = run({"day2.jsonl.gz": plain}, "two", **flags)
    assert counts(second) == (300, 1, 299, 0)
    assert rows(second)["id"] == ["d8"]


def test_the_limit_is_judged_before_what_is_skipped(days, run):
    """Nothing new is a run without vectors, which says nothing of any id, and is no obstacle."""
    first = run(days[0], "one", limit=10)
    assert counts(run(days[1], "two", skip_existing=first, limit=20)) == (20, 12, 8, 0)
    again = run(days[0], "again", skip_existing=first, limit=10)
    assert "10 records: 0 embedded, 10 skipped, 0 rejected" in run.out
    assert list(again.glob("embeddings/part-*")) == []
    assert counts(run(days[0], "three", skip_existing=again)) == (60, 60, 0, 0)


def test_many_buckets_find_the_same(tmp_path, run, monkeypatch):
    # In place of a corpus of millions.
    monkeypatch.setattr("bert_embed.pipeline.run.plan.BUCKET_KEYS", 20)
    monkeypatch.setattr("bert_embed.transforms.increments.BLOCK_RANGE", 3)
    texts = some_texts(400)
    changed = {name: f"{text} of" for name, text in texts.items() if name.endswith("3")}
    gone = {f"gone{n}": "red" for n in range(9)}
    day1 = write(tmp_path / "1.jsonl", texts | gone)
    day2 = write(tmp_path / "2.jsonl", texts | changed | {"new": "bank"})
    first = run(day1, "one", part_docs=100)
    second = run(day2, "two", skip_existing=first, block_bytes=900)
    assert counts(second) == (401, 41, 360, 0)
    assert rows(second)["id"] == [*changed, "new"]
