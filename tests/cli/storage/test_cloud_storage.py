"""Input, output, settings and results in Cloud Storage, on a real server: as on a local disk."""

import json

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import (
    Hold,
    embed,
    files,
    finish,
    flags_of,
    record,
    rejected,
    rows,
    start,
)

pytestmark = pytest.mark.slow

DOCUMENTS = 450
SMALL = {"block_bytes": 1000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files of JSON lines, one of them compressed, with some bad records."""
    import gzip

    folder = tmp_path_factory.mktemp("texts")
    words = np.random.default_rng(3).choice(["red", "river", "bank", "of", "stars"], (DOCUMENTS, 5))
    lines = [
        json.dumps({"id": f"d{n}", "text": " ".join(row) if n % 140 else ""})
        for n, row in enumerate(words)
    ]
    (folder / "a.jsonl").write_text("\n".join(lines[:200]))
    (folder / "b.jsonl").write_text("\n".join(lines[200:420]) + "\n")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[420:]).encode(), mtime=0))
    return folder


@pytest.fixture(scope="module")
def local(corpus, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("local") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


@pytest.fixture
def url(gcs, corpus):
    return gcs.put_folder(corpus, "corpus", "texts")


def bucket(gcs, name):
    """A bucket of the test's own: its address, and the folder where the server keeps it."""
    gcs.client.create_bucket(name)
    return f"gs://{name}", gcs.root / name


def assert_same(output, local, url, corpus):
    """The files of a run from gs:// equal those of a local one, but for the input's place."""
    assert {n: d for n, d in files(output).items() if n.startswith("embeddings")} == {
        n: d for n, d in files(local).items() if n.startswith("embeddings")
    }
    moved = json.loads(json.dumps(rejected(output)).replace(url, str(corpus)))
    assert moved == rejected(local)
    for name in ("counts", "rejected", "tokens", "lengths"):
        same, wanted = record(output)[name], record(local)[name]
        if name == "counts":
            for counts in (same, wanted):
                counts["parts_reused"] = 0
        assert same == wanted


def test_json_and_lines_that_are_none_are_read_or_refused(gcs, tiny_bundle, tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        array = [{"id": f"{number}{n}", "text": f"the bank {n}"} for n in range(4)]
        (folder / f"{number}.json").write_text(json.dumps(array, indent=2 if number else None))
    (folder / "_SUCCESS").write_text("done")
    url = gcs.put_folder(folder, "arrays", "in")
    assert embed(tmp_path / "out", tiny_bundle, url) == 0
    assert rows(tmp_path / "out")["id"] == [f"{number}{n}" for number in range(3) for n in range(4)]
    (tmp_path / "mac").mkdir()
    (tmp_path / "mac" / "a.txt").write_bytes(b"one\rtwo\r")
    url = gcs.put_folder(tmp_path / "mac", "mac", "in")
    assert embed(tmp_path / "mac_out", tiny_bundle, url) == 2
    assert "a.txt has lines that end in carriage returns alone" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["", "/", "/*", "/*.jsonl*", "/[a-c].jsonl*", "**"])
def test_globs_and_folders_give_what_they_give_on_a_disk(
    gcs, url, local, tiny_bundle, tmp_path, pattern
):
    assert embed(tmp_path / "out", tiny_bundle, url + pattern) == 0
    assert rows(tmp_path / "out")["id"] == rows(local)["id"]


def test_globs_take_backslashes_and_leave_out_hidden_names(gcs, tiny_bundle, tmp_path):
    there = gcs.client.bucket("globs")
    there.create()
    for name in ("a.txt", "b\\c.txt", ".d.txt", "e/f.txt", "e/.g.txt", ".h/i.txt"):
        there.blob(f"in/{name}").upload_from_string(f"the bank of {name}\n")
    wanted = {"*.txt": ["a.txt", "b\\c.txt"], "**.txt": ["a.txt", "b\\c.txt", "e/f.txt"]}
    wanted |= {"**/*.txt": wanted["**.txt"], ".*.txt": [".d.txt"], "*\\*": ["b\\c.txt"]}
    for number, (pattern, names) in enumerate(wanted.items()):
        output = tmp_path / f"out{number}"
        assert embed(output, tiny_bundle, f"gs://globs/in/{pattern}") == 0
        assert rows(output)["id"] == [f"gs://globs/in/{name}:0" for name in names], pattern


def test_every_csv_header_is_checked_before_work(gcs, tiny_bundle, tmp_path, capsys):
    address, _ = bucket(gcs, "headers")
    for number, name in enumerate(["text", "text", "texts"]):
        blob = gcs.client.bucket("headers").blob(f"{number}.csv")
        blob.upload_from_string(f"id,{name}\n{number},the river\n")
    assert embed(tmp_path / "out", tiny_bundle, address) == 2
    assert "text is not a column of gs://headers/2.csv" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_in_cloud_storage_equals_a_local_one(gcs, url, corpus, local, tiny_bundle, capsys):
    address, folder = bucket(gcs, "whole")
    assert embed(f"{address}/runs/out", tiny_bundle, url, **SMALL) == 0
    output = folder / "runs" / "out"
    assert_same(output, local, url, corpus)
    before = {p: p.stat().st_mtime_ns for p in output.rglob("*")}
    capsys.readouterr()
    assert embed(f"{address}/runs/out", tiny_bundle, url, **SMALL) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in output.rglob("*")} == before


def test_single_objects_and_hidden_ones(gcs, url, corpus, tiny_bundle, tmp_path):
    there = gcs.client.bucket("corpus")
    for name in ("hidden/a.txt", "hidden/.b.txt", "hidden/.c/d.txt", "hidden/e/f.txt"):
        there.blob(name).upload_from_string(f"a line of {name}\n")
    there.blob("hidden-not/g.txt").upload_from_string("not below that folder\n")
    there.blob("[odd]*.txt").upload_from_string("a name with characters of a glob\n")
    assert embed(tmp_path / "one", tiny_bundle, f"{url}/b.jsonl") == 0
    assert len(rows(tmp_path / "one")["id"]) == 219
    assert embed(tmp_path / "folder", tiny_bundle, "gs://corpus/hidden") == 0
    found = ["gs://corpus/hidden/a.txt:0", "gs://corpus/hidden/e/f.txt:0"]
    assert rows(tmp_path / "folder")["id"] == found
    assert embed(tmp_path / "odd", tiny_bundle, "gs://corpus/[odd]*.txt") == 0
    assert rows(tmp_path / "odd")["id"] == ["gs://corpus/[odd]*.txt:0"]


def test_a_killed_job_continues_with_the_same_command(
    gcs, url, corpus, local, tiny_bundle, tmp_path
):
    address, folder = bucket(gcs, "killed")
    hold = Hold(tmp_path / "hold", 8)
    flags = flags_of(f"{address}/out", tiny_bundle, url, **SMALL)
    hold.kill("embed", *flags)
    assert record(folder / "out")["status"] == "running"
    times = {path: path.stat().st_mtime_ns for path in folder.glob("out/_state/blocks/0*.json")}
    assert 8 == len(times) < record(local)["counts"]["parts"]
    assert embed(f"{address}/out", tiny_bundle, url, **SMALL) == 0
    assert record(folder / "out")["counts"]["parts_reused"] == len(times)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert_same(folder / "out", local, url, corpus)


def test_two_jobs_at_once_do_no_harm(gcs, url, corpus, local, tiny_bundle):
    address, folder = bucket(gcs, "twice")
    command = ["embed", *flags_of(f"{address}/out", tiny_bundle, url, **SMALL)]
    jobs = [start(*command), start(*command)]
    for job in jobs:
        finish(job)
    assert_same(folder / "out", local, url, corpus)
    assert record(folder / "out")["status"] == "done"


def test_another_run_is_refused_and_overwritten_when_asked(gcs, url, tiny_bundle, capsys):
    address, folder = bucket(gcs, "another-run")
    assert embed(f"{address}/out", tiny_bundle, url) == 0
    gcs.client.bucket("another-run").blob("out/mine.txt").upload_from_string("keep")
    assert embed(f"{address}/out", tiny_bundle, url, dim=8) == 2
    assert "holds another run" in capsys.readouterr().err
    assert embed(f"{address}/out", tiny_bundle, url, dim=8, overwrite=True) == 0
    assert len(rows(folder / "out")["embedding"][0]) == 8
    assert (folder / "out" / "mine.txt").read_text() == "keep"
    assert not list(folder.rglob(".*"))


def test_settings_come_from_a_file_there(gcs, url, local, corpus, tiny_bundle, tmp_path, capsys):
    gcs.client.bucket("corpus").blob("run.yaml").upload_from_string(
        f"input: {url}\nblock_bytes: 1000\nmodel: {tiny_bundle}\n"
    )
    config = "--config=gs://corpus/run.yaml"
    assert main(["embed", config, f"--output={tmp_path}/out"]) == 0
    assert_same(tmp_path / "out", local, url, corpus)
    assert main(["embed", "--config=gs://corpus/none.yaml", f"--output={tmp_path}/out"]) == 2
    assert "gs://corpus/none.yaml is not there" in capsys.readouterr().err


def test_results_are_read_and_searched_there(gcs, url, local, tiny_bundle, capsys):
    address, _ = bucket(gcs, "results")
    assert embed(f"{address}/out", tiny_bundle, url, granularity="sentence,token", **SMALL) == 0
    ids, vectors = bert_embed.read(f"{address}/out")
    wanted_ids, wanted = bert_embed.read(local)
    assert ids == wanted_ids
    np.testing.assert_array_equal(vectors, wanted)
    assert [each.id for each in bert_embed.read_tokens(f"{address}/out/")] == wanted_ids
    capsys.readouterr()
    flags = ["red river bank", "--k", "2"]
    assert main(["search", f"{address}/out", *flags]) == 0
    there = capsys.readouterr().out
    assert main(["search", str(local), *flags]) == 0
    assert there == capsys.readouterr().out
    assert main(["search", f"{address}/none", *flags]) == 2
    assert f"{address}/none is not the output of a run" in capsys.readouterr().err


def test_an_output_may_have_characters_of_a_glob_in_its_name(gcs, url, tiny_bundle, capsys):
    address, _ = bucket(gcs, "wild")
    output = f"{address}/out [1] of?"
    assert embed(output, tiny_bundle, url) == 0
    for command in (["verify"], ["report"]):
        assert main([*command, output]) == 0
    capsys.readouterr()
    assert main(["search", output, "red river bank", "--k", "1"]) == 0
    assert "1. " in capsys.readouterr().out


def test_a_damaged_object_is_named_by_its_address(gcs, url, tiny_bundle, capsys):
    address, _ = bucket(gcs, "spoiled")
    assert embed(f"{address}/out", tiny_bundle, url, limit=9) == 0
    name = "embeddings/part-0000000-00000.parquet"
    blob = gcs.client.bucket("spoiled").blob(f"out/{name}")
    data = bytearray(blob.download_as_bytes())
    data[9] ^= 1
    blob.upload_from_string(bytes(data))
    capsys.readouterr()
    assert main(["search", f"{address}/out", "red"]) != 0
    assert f": {address}/out/{name} is damaged" in capsys.readouterr().err


def test_objects_decompressed_on_the_way_are_refused_where_they_are_read(
    gcs, tiny_bundle, tmp_path, capsys
):
    address, _ = bucket(gcs, "coded")
    there = gcs.client.bucket("coded")
    for name in ("a.txt", "site/logo.svg", "site/_styles/main.css", "site/page.txt"):
        blob = there.blob(name)
        blob.content_encoding = None if name == "site/page.txt" else "gzip"
        blob.upload_from_string(b"a red river" if name == "site/page.txt" else b"\x1f\x8b")
    assert embed(tmp_path / "site", tiny_bundle, f"{address}/site") == 0
    assert record(tmp_path / "site")["input"]["skipped_files"] == {".svg": 1, "_*": 1}
    for named in ("a.txt", "site/logo.svg"):
        flags = {"input_format": "text"} if named == "site/logo.svg" else {}
        capsys.readouterr()
        assert embed(tmp_path / "out", tiny_bundle, f"{address}/{named}", **flags) == 2
        said = f"gs://coded/{named} is stored with Content-Encoding gzip"
        assert said in capsys.readouterr().err
