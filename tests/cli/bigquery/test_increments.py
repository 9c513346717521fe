"""Only what is new, held against a table of a real BigQuery emulator that an earlier run filled."""

from tests.support.command import embed
from tests.support.daily import counts, two_days

TABLE = "test-project:increments.v"


def test_what_a_table_has_is_not_embedded_again(bigquery, tmp_path, tiny_bundle, capsys):
    bigquery.client.create_dataset("test-project.increments")
    day1, day2 = two_days(tmp_path)
    into = {"output_format": "bigquery", "output_table": TABLE}
    assert embed(tmp_path / "one", tiny_bundle, day1, **into) == 0
    flags = {"skip_existing": TABLE}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags, **into) == 0
    said = capsys.readouterr().out
    assert f"uris = ['{tmp_path}/two/deleted/*.parquet']" in said
    assert "DELETE FROM `test-project.increments.v` AS old WHERE EXISTS" in said
    assert counts(tmp_path / "one") == (60, 60, 0, 0)
    assert counts(tmp_path / "two") == (60, 3, 56, 1)
    found = bigquery.rows("SELECT id, COUNT(*) FROM `test-project.increments.v` GROUP BY id")
    assert dict(found)["d3"] == 2, "the changed text stands beside the old one"
    assert sum(count for _, count in found) == 63
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags, **into) == 0, "the same run"
    ((rows,),) = bigquery.rows("SELECT COUNT(*) FROM `test-project.increments.v`")
    assert rows == 63
    capsys.readouterr()
    assert embed(tmp_path / "three", tiny_bundle, day2, pooling="cls", **flags) == 2
    assert "pooling" in capsys.readouterr().err


def test_a_table_that_says_nothing_of_its_vectors_is_refused(
    bigquery, tmp_path, tiny_bundle, capsys
):
    bigquery.client.create_dataset("test-project.others")
    schema = [("id", "STRING", "REQUIRED"), ("text_hash", "INTEGER", "NULLABLE")]
    bigquery.fill("test-project.others.v", schema, [{"id": "a", "text_hash": 1}])
    (tmp_path / "in.txt").write_text("the bank\n")
    for table, message in (
        ("test-project:others.v", "does not describe its vectors"),
        ("test-project:others.none", "there is no such project, dataset or table"),
        ("test-project:others.v$20260131", "names a partition, which cannot be compared alone"),
    ):
        code = embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", skip_existing=table)
        assert code == 2
        assert message in capsys.readouterr().err
