"""An increment says which documents are gone, and readers of several outputs leave them out."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.results.chain import EarlierLists
from bert_embed.results.run_record import read_record
from tests.support.command import (
    Hold,
    block_records,
    embed,
    files,
    flags_of,
    record,
    say_status,
    stray,
)
from tests.support.daily import counts, some_texts, write
from tests.support.outputs import contents

pytestmark = pytest.mark.slow
FIRST = {name: f"{text}. Seven stars." for name, text in some_texts(30).items()}
# The second day changes a text, so that it has fewer chunks, and lacks d2 and d3; the third has d3
# again, and lacks d4. `d5` is blank on the second day, which leaves its vector of the first.
SECOND = FIRST | {"d1": "money", "d5": " ", "new": "vault"}
SECOND = {name: text for name, text in SECOND.items() if name not in ("d2", "d3")}
THIRD = SECOND | {"d3": FIRST["d3"], "d5": "of"}
del THIRD["d4"]
DAYS = (FIRST, SECOND, THIRD)
CHUNKS = {"chunk": "sentence"}


def embed_days(folder, model, days=DAYS, names="123", **flags):
    """An output a day, of what the days before it lack; returns the folder above them."""
    for name, texts in zip(names, days, strict=False):
        source = write(folder / f"{name}.jsonl", texts)
        earlier = {"skip_existing": folder / "out"} if name != names[0] else {}
        options = {"max_rejected": "50%", **flags, **earlier}
        assert embed(folder / "out" / name, model, source, **options) == 0
    return folder / "out"


def deleted(output):
    """The rows of `deleted/`."""
    paths = sorted((output / "deleted").glob("*")) if (output / "deleted").exists() else []
    return [tuple(row.values()) for path in paths for row in pq.read_table(path).to_pylist()]


def changes(output):
    found = record(output)["changes"]
    return tuple(found.get(name) for name in ("new", "changed", "gone", "earlier", "withheld"))


@pytest.fixture(scope="module", params=["parquet", "jsonl", "tfrecord", "chunks"])
def days(request, tiny_bundle, tmp_path_factory):
    kind = request.param
    flags = CHUNKS if kind == "chunks" else {"output_format": kind}
    return embed_days(tmp_path_factory.mktemp(kind), tiny_bundle, **flags)


def test_an_increment_says_what_is_new_changed_and_gone(days):
    assert changes(days / "2") == (1, 1, 2, 30, None)
    assert changes(days / "3") == (1, 1, 1, 29, None)
    if "chunks" in str(days):
        assert deleted(days / "2") == [("d1", 1), ("d2", 0), ("d2", 1), ("d3", 0), ("d3", 1)]
        assert deleted(days / "3") == [("d4", 0), ("d4", 1), ("d5", 1)]
    else:
        assert (deleted(days / "2"), deleted(days / "3")) == ([("d2",), ("d3",)], [("d4",)])
    path = next((days / "2" / "deleted").iterdir())
    size = {"files": 1, "bytes": path.stat().st_size, "rows": len(deleted(days / "2"))}
    assert record(days / "2")["written"]["deleted"] == size
    for day in "123":
        assert main(["verify", str(days / day)]) == 0


def test_readers_of_several_outputs_see_the_last_day(days, tmp_path):
    ids, vectors = bert_embed.read(days)
    assert set(ids) == {name for name, text in THIRD.items() if text.strip()}
    reversed_ids = bert_embed.read([days / day for day in "321"])[0]
    assert sorted(reversed_ids) == sorted(ids)
    assert "d3" not in bert_embed.read([days / "1", days / "2"])[0]
    assert {"d2", "d3", "d4"} < set(bert_embed.read(days / "1")[0])
    (hits,) = bert_embed.nearest([str(days / day) for day in "123"], ["seven stars"], 99)
    assert sorted(hit.id for hit in hits) == sorted(ids)
    assert main(["export", str(days), str(tmp_path / "npy"), "--to=npy"]) == 0
    assert pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")["id"].to_pylist() == ids
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / "emb_0000.npy"), vectors)


def test_outputs_of_a_folder_follow_those_that_they_continue(tmp_path, tiny_bundle):
    out = embed_days(tmp_path, tiny_bundle, names=["monday", "tuesday", "friday"])
    assert embed(out / "last", tiny_bundle, tmp_path / "friday.jsonl", skip_existing=out) == 0
    runs = EarlierLists().of(str(out / "last"), read_record(str(out / "last")))
    places = [run.output.rpartition("/")[2] for run in runs]
    assert places == ["monday", "tuesday", "friday"]
    assert counts(out / "last") == (29, 0, 29, 0)


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (
            "",
            {"limit": 28},
            "2 documents not in the input kept, as the input is not read as a whole",
        ),
        (
            "{\n",
            {"max_rejected": "9"},
            "kept, as the id of 1 record of the input could not be read",
        ),
        ("", {"max_deleted": 1}, "2 gone of 30 documents of earlier outputs"),
        (
            "",
            {"max_deleted": "6%"},
            "2 documents not in the input kept, as --max_deleted allows 6%; if they are gone",
        ),
        ("", {"max_deleted": 0}, "2 gone of 30 documents of earlier outputs\n"),
    ],
)
def test_documents_that_may_be_there_are_not_deleted(
    tmp_path, tiny_bundle, run, text, flags, message
):
    out = embed_days(tmp_path, tiny_bundle, [FIRST])
    source = write(tmp_path / "in.jsonl", {n: t for n, t in FIRST.items() if n not in ("d1", "d2")})
    source.write_text(source.read_text() + text)
    flags = flags | {"skip_existing": out / "1"}
    second = run(source, "out/2", **flags)
    assert message in run.out
    assert deleted(second) == []
    assert "deleted" not in record(second)["written"]
    assert len(bert_embed.read(out)[0]) == 30
    if "max_deleted" in flags:  # the same command goes on, and computes nothing again
        run(source, "out/2", **flags | {"max_deleted": "7%"})
        assert "(deleted/ lists them)" in run.out
        assert deleted(second) == [("d1",), ("d2",)]
        run(source, "out/2", **flags)
        assert "nothing to do" in run.out
    run(source, "new", max_deleted=0, dry_run=True)
    assert "note: --max_deleted has no effect without --skip_existing\n" in run.out


def write_input(path, texts):
    """A file of texts by integer ids."""
    if path.suffix == ".parquet":
        table = pa.table({"id": pa.array(texts, pa.int64()), "text": list(texts.values())})
        pq.write_table(table, path, row_group_size=40)
        return path
    plain = write(path.with_suffix(""), texts)
    path.write_bytes(zstandard.compress(plain.read_bytes()))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl.zst"])
def test_a_killed_increment_deletes_nothing_and_a_continued_one_all(
    tmp_path, run, tiny_bundle, suffix
):
    texts = dict(enumerate(some_texts(500).values()))
    first = write_input(tmp_path / f"1{suffix}", texts)
    rest = {number: text + " of" * (number % 2) for number, text in texts.items() if number % 7}
    source = write_input(tmp_path / f"2{suffix}", rest)
    one = run(first, "one")
    flags = {"skip_existing": one, "block_bytes": 2000}
    parts = {"part_docs": 40} if suffix == ".jsonl.zst" else {}
    whole, output = run(source, "whole", **flags, **parts), tmp_path / "out"
    if suffix == ".parquet":
        hold = Hold(tmp_path / "hold", 5)
        hold.kill("embed", *flags_of(output, tiny_bundle, source, **flags))
    else:  # whose parts, cut by a worker, are too large for a test
        shutil.copytree(whole, output)
        for path in block_records(output)[5:]:
            path.unlink()
        say_status(output, "running")
    of_ids = int if suffix == ".parquet" else str
    gone = {of_ids(number) for number in texts if number % 7 == 0}
    assert gone < set(bert_embed.read([one, output], partial=True)[0])
    run(source, **flags, **parts)
    assert record(output)["counts"]["parts_reused"] == 5
    assert files(output) == files(whole)
    assert changes(output) == changes(whole) == (0, 214, 72, 500, None)
    assert {name for (name,) in deleted(output)} == gone
    assert contents(output / "deleted") == contents(whole / "deleted")
    assert counts(output) == (428, 214, 214, 0)
    assert stray(output) == []


def test_deleted_ids_that_are_not_as_written_are_found_and_written_again(
    tmp_path, run, tiny_bundle
):
    out = embed_days(tmp_path, tiny_bundle, DAYS[:2])
    path = next((out / "2" / "deleted").iterdir())
    data = path.read_bytes()
    for damaged in (data[:30] + b"????" + data[34:], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"is damaged|deleted holds 0 files of 0 bytes"):
            bert_embed.read(out)
        assert main(["verify", str(out / "2")]) == 1
        assert main(["verify", "--repair", str(out / "2")]) == 0
        assert path.read_bytes() == data
    # What a killed run left says nothing.
    say_status(out / "2", "running")
    assert {"d2", "d3"} < set(bert_embed.read(out, partial=True)[0])
    say_status(out / "2", "done")
    shutil.rmtree(out / "2" / "deleted")
    third = write(tmp_path / "3.jsonl", THIRD)
    message = f"--skip_existing {out}/2 lacks files of deleted/"
    run.refused(third, message, "out/3", skip_existing=out)
