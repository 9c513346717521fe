"""Documents that a later output marks as deleted are in no reader of several outputs."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.commands.search import search
from tests.support.daily import THREE_DAYS, three_days


def mark_deleted(output, ids):
    """Adds what an increment writes of documents that its input lacks."""
    (output / "deleted").mkdir()
    path = output / "deleted" / "part-0000000-00000.parquet"
    pq.write_table(pa.table({"id": ids}), path, write_page_checksum=True)
    record = json.loads((output / "run.json").read_text())
    record["written"]["deleted"] = {"files": 1, "bytes": path.stat().st_size, "rows": len(ids)}
    (output / "run.json").write_text(json.dumps(record))
    return path


@pytest.fixture
def days(tiny_bundle, tmp_path):
    """Of four documents tuesday deletes the second and third, and wednesday has the third again."""
    three_days(tmp_path, tmp_path / "out", tiny_bundle)
    mark_deleted(tmp_path / "out" / "tuesday", ["2", "3"])
    return tmp_path / "out"


@pytest.mark.slow
def test_readers_of_several_outputs_leave_out_what_a_later_one_deletes(days, tmp_path):
    left = ["1", "3", "4"]
    for folders in (days, [days / day for day in reversed(THREE_DAYS)]):
        assert sorted(bert_embed.read(folders)[0]) == left
    assert bert_embed.read([days / "monday", days / "tuesday"])[0] == ["1"]
    assert bert_embed.read(days / "monday")[0] == ["1", "2", "3"]
    (hits,) = search([str(days / day) for day in THREE_DAYS], ["two"], 9)
    assert sorted(hit.id for hit in hits) == left
    assert main(["export", str(days), str(tmp_path / "npy"), "--to=npy"]) == 0
    assert (
        sorted(pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")["id"].to_pylist()) == left
    )
    for command in ("cluster", "dedup"):
        assert main([command, str(days), "--n_clusters=2", str(tmp_path / command)]) == 0
        assert sorted(pq.read_table(tmp_path / command / "clusters")["id"].to_pylist()) == left


@pytest.mark.slow
def test_deleted_ids_that_are_not_as_written_are_refused(days, tmp_path):
    path = days / "tuesday" / "deleted" / "part-0000000-00000.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:40] + b"????" + data[44:])
    with pytest.raises(InputError, match=f"{path} is damaged"):
        bert_embed.read(days)
    path.unlink()
    with pytest.raises(InputError, match="deleted holds 0 files of 0 bytes, its run wrote 1"):
        bert_embed.read(days)
    # What a killed run left says nothing.
    path.write_bytes(data)
    record = json.loads((days / "tuesday" / "run.json").read_text())
    (days / "tuesday" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    assert sorted(bert_embed.read(days, partial=True)[0]) == ["1", "2", "3", "4"]
