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
from bert_embed.results.chain import earlier_runs
from bert_embed.results.run_record import read_record
from tests.support.command import block_records, files, record, say_status, stray
from tests.support.daily import counts, embed_days, some_texts, write
from tests.support.outputs import contents

pytestmark = pytest.mark.slow
FIRST = {name: f"{text}. Seven stars." for name, text in some_texts(30).items()}
# The second day changes a text, so that it has fewer chunks, and lacks d2 and d3; the third has d3
# again, and lacks d4. `d5` is blank on the second day, which leaves its vector of the first.
SECOND = FIRST | {"d1": "money", "d5": " ", "new": "vault"}
SECOND = {name: text for name, text in SECOND.items() if name not in ("d2", "d3")}
THIRD = SECOND | {"d3": FIRST["d3"], "d5": "of"}
del THIRD["d4"]
DAYS = {"monday": FIRST, "tuesday": SECOND, "friday": THIRD}  # sorted otherwise
NAMES = [*DAYS]
CHUNKS = {"chunk": "sentence"}


def deleted(output):
    """The rows of `deleted/`."""
    paths = sorted((output / "deleted").glob("*")) if (output / "deleted").exists() else []
    return [tuple(row.values()) for path in paths for row in pq.read_table(path).to_pylist()]


def changes(output):
    found = record(output)["changes"]
    return tuple(found.get(name) for name in ("new", "changed", "gone", "earlier", "withheld"))


@pytest.fixture(scope="module", params=["tfrecord", "chunks"])
def days(request, tiny_bundle, tmp_path_factory):
    kind = request.param
    flags = CHUNKS if kind == "chunks" else {"output_format": kind}
    return embed_days(tmp_path_factory.mktemp(kind), tiny_bundle, DAYS, **flags)


def test_an_increment_says_what_is_new_changed_and_gone(days):
    _, second, third = (days / name for name in NAMES)
    assert changes(second) == (1, 1, 2, 30, None)
    assert changes(third) == (1, 1, 1, 29, None)
    if "chunks" in str(days):
        assert deleted(second) == [("d1", 1), ("d2", 0), ("d2", 1), ("d3", 0), ("d3", 1)]
        assert deleted(third) == [("d4", 0), ("d4", 1), ("d5", 1)]
    else:
        assert (deleted(second), deleted(third)) == ([("d2",), ("d3",)], [("d4",)])
    path = next((second / "deleted").iterdir())
    size = {"files": 1, "bytes": path.stat().st_size, "rows": len(deleted(second))}
    assert record(second)["written"]["deleted"] == size
    for name in NAMES:
        assert main(["verify", str(days / name)]) == 0
    runs = earlier_runs(str(third), read_record(str(third)))
    assert [run.output.rpartition("/")[2] for run in runs] == [*NAMES[:2]]


def test_readers_of_several_outputs_see_the_last_day(days, tmp_path):
    """Those of a folder follow those that they continue, whatever their names."""
    ids, vectors = bert_embed.read(days)
    assert set(ids) == {name for name, text in THIRD.items() if text.strip()}
    first, second, _ = outputs = [days / name for name in NAMES]
    assert sorted(bert_embed.read(outputs[::-1])[0]) == sorted(ids)
    assert "d3" not in bert_embed.read([first, second])[0]
    assert {"d2", "d3", "d4"} < set(bert_embed.read(first)[0])
    (hits,) = bert_embed.nearest(list(map(str, outputs)), ["seven stars"], 99)
    assert sorted(hit.id for hit in hits) == sorted(ids)
    assert main(["export", str(days), str(tmp_path / "npy"), "--to=npy"]) == 0
    assert pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")["id"].to_pylist() == ids
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / "emb_0000.npy"), vectors)


def test_documents_that_may_be_there_are_not_deleted(tmp_path, tiny_bundle, run):
    out = embed_days(tmp_path, tiny_bundle, {"monday": FIRST})
    source = write(tmp_path / "in.jsonl", {n: t for n, t in FIRST.items() if n not in ("d1", "d2")})
    broken = tmp_path / "broken.jsonl"
    broken.write_text(source.read_text() + "{\n")
    gone = "2 gone of 30 documents of earlier outputs"
    not_whole = "2 documents that the input lacks are kept, as the input is not read as a whole"
    allowed = (
        "2 documents that the input lacks are kept, as --max_deleted allows 6%; if they are gone"
    )
    for number, (path, more, message) in enumerate(
        [
            (source, {"limit": 28}, not_whole),
            (broken, {"max_rejected": "9"}, "kept, as the id of 1 record of the input could not"),
            (source, {"max_deleted": 1}, gone),
            (source, {"max_deleted": 0}, f"{gone} (kept)\n"),
            (source, {"max_deleted": "6%"}, allowed),
        ]
    ):
        flags = more | {"skip_existing": out / NAMES[0]}
        second = run(path, f"kept{number}", **flags)
        assert message in run.out
        assert deleted(second) == []
        assert "deleted" not in record(second)["written"]
        assert len(bert_embed.read([out, second])[0]) == 30
    # The same command goes on, and computes nothing again.
    run(source, second.name, **flags | {"max_deleted": "7%"})
    assert "(deleted/ lists them)" in run.out
    assert deleted(second) == [("d1",), ("d2",)]
    run(source, second.name, **flags)
    assert "nothing to do" in run.out
    run(source, "new", max_deleted=0, dry_run=True)
    assert "note: --max_deleted has no effect without --skip_existing\n" in run.out


def test_chunks_that_a_changed_document_lost_are_told_where_others_are_kept(
    tmp_path, tiny_bundle, run
):
    """As where each input is only what came that day."""
    out = embed_days(tmp_path, tiny_bundle, {"monday": FIRST}, **CHUNKS)
    source = write(tmp_path / "in.jsonl", {"d1": "money"})
    second = run(source, "second", skip_existing=out, max_deleted=0, **CHUNKS)
    assert "29 gone of 30 documents of earlier outputs (kept)" in run.out
    assert deleted(second) == [("d1", 1)]
    assert main(["verify", str(second)]) == 0


@pytest.mark.parametrize("gone", [0, 1])
def test_an_increment_without_vectors_is_kept(run, gone):
    """Its folder is not free for another command, as that of a run is that holds nothing."""
    texts = [{"id": f"d{n}", "text": f"the bank {n}"} for n in range(9)]
    first = run({"1.jsonl": texts}, "first")
    second = run({"2.jsonl": [*texts[gone:], {"id": "bad"}]}, "second", skip_existing=first)
    assert (changes(second), counts(second)[1:]) == ((0, 0, gone, 9, None), (0, 9 - gone, 1))
    run.refused({"other.txt": "a river\n"}, "holds another run", "second")
    assert deleted(second) == [("d0",)][:gone]


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
def test_a_killed_increment_deletes_nothing_until_continued(tmp_path, run, suffix):
    texts = dict(enumerate(some_texts(500).values()))
    first = write_input(tmp_path / f"1{suffix}", texts)
    rest = {number: text + " of" * (number % 2) for number, text in texts.items() if number % 7}
    source = write_input(tmp_path / f"2{suffix}", rest)
    one = run(first, "one")
    flags = {"skip_existing": one, "block_bytes": 2000}
    parts = {"part_docs": 40} if suffix == ".jsonl.zst" else {}
    whole = run(source, "whole", **flags, **parts)
    output = shutil.copytree(whole, tmp_path / "out")
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


def test_damaged_deleted_ids_are_one_problem_and_written_again(tmp_path, run, tiny_bundle, command):
    out = embed_days(tmp_path, tiny_bundle, {"monday": FIRST, "tuesday": SECOND})
    path = next((out / NAMES[1] / "deleted").iterdir())
    data = path.read_bytes()
    for damaged, said in (
        (data[:30] + b"????" + data[34:], "deleted/part-0000000-00000.parquet: is damaged"),
        (None, "deleted: holds 0 files of 0 bytes and 0 rows, the run wrote 1 file of "),
    ):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"is damaged|deleted holds 0 files of 0 bytes"):
            bert_embed.read(out)
        told = command("verify", out / NAMES[1], code=1)
        assert said in told.out
        assert "error: 1 problem in" in told.err
        assert main(["verify", "--repair", str(out / NAMES[1])]) == 0
        assert path.read_bytes() == data
    # What a killed run left says nothing.
    say_status(out / NAMES[1], "running")
    assert {"d2", "d3"} < set(bert_embed.read(out, partial=True)[0])
    say_status(out / NAMES[1], "done")
    shutil.rmtree(out / NAMES[1] / "deleted")
    third = write(tmp_path / "3.jsonl", THIRD)
    message = f"--skip_existing {out}/{NAMES[1]} holds 0 files of 0 bytes in deleted/"
    run.refused(third, message, "out/3", skip_existing=out)
