"""Exports to Parquet: other number types and fewer numbers without the model, and merged runs."""

import os
from functools import cache
from itertools import chain

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.export import parquet
from tests.support.command import embed, record, rows, say_status
from tests.support.daily import embed_days
from tests.support.outputs import content, contents, run_of_kinds, write_output

pytestmark = pytest.mark.slow
TEXTS = "".join(f"{word} is the {word} of day {day}.\n" for day in range(9) for word in "abcd")
NEWEST = ["two", "the first of all", "three, written again", "four"]
FLAGS = {
    "document": {},
    "chunk": {"chunk": "sentence", "keep_text": True},
    "lines": {"output_format": "jsonl"},
    "records": {"output_format": "tfrecord"},
}


@pytest.fixture(scope="module")
def runs(tiny_bundle, tmp_path_factory):
    """What `embed` writes of a corpus, with flags of a name and others."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "texts.txt").write_text(TEXTS)

    @cache
    def run(name, **more):
        flags = {"normalize": True, **FLAGS[name], **more}
        output = folder / "-".join(map(str, (name, *more.values())))
        assert embed(output, tiny_bundle, folder / "texts.txt", **flags) == 0
        return output

    return run


def data(folder):
    held = contents(folder).items()
    return {name: kept for name, kept in held if "part-" in name and "_state" not in name}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("document", dtype) for dtype in ("float32", "float16", "bfloat16", "int8", "ubinary")]
    + [("chunk", "int8"), ("lines", "int8"), ("records", "float32")],
)
def test_files_are_those_of_an_embed_with_this_number_type(runs, tmp_path, export, name, dtype):
    dest = tmp_path / "dest"
    export(runs(name), dest, "parquet", output_dtype=dtype)
    expected = data(runs("chunk" if name == "chunk" else "document", output_dtype=dtype))
    assert data(dest) == expected
    assert expected
    assert main(["verify", str(dest)]) == 0
    again = tmp_path / "again"  # merged as they are, without rounding them again
    export(runs(name, output_dtype=dtype), again, "parquet")
    assert [*data(again)] == [*expected]
    assert data(again) == expected
    export(again, tmp_path / "wide", "parquet", output_dtype="float32")
    for one, other in zip(bert_embed.read(tmp_path / "wide"), bert_embed.read(again), strict=True):
        assert np.array_equal(one, other)


def test_dim_cuts_and_scales_as_embed_does(runs, tmp_path, tiny_bundle, export, command):
    export(runs("document"), tmp_path / "dest", "parquet", dim=5, output_dtype="int8")
    ids, found = bert_embed.read(tmp_path / "dest")
    whole = bert_embed.read(runs("document"))[1][:, :5]
    lengths = np.linalg.norm(whole, axis=1, keepdims=True)
    scale = np.abs(whole / lengths).max(axis=1, keepdims=True) / np.float32(127)
    assert np.array_equal(found, np.rint(whole / lengths / scale) * scale)
    embedded = runs("document", dim=5, output_dtype="int8")
    assert ids == bert_embed.read(embedded)[0]
    assert record(tmp_path / "dest")["vectors"] == record(embedded)["vectors"]
    assert bert_embed.compare(tmp_path / "dest", embedded).overlap_at_10.mean == 1
    pieces = [ids for ids, _ in bert_embed.read_batches(tmp_path / "dest", rows=10)]
    assert [*chain.from_iterable(pieces)] == ids
    said = command("search", tmp_path / "dest", "day 3", model=tiny_bundle)
    assert "are shown: an export does not know where" in said.err  # and other texts have its parts
    assert "day" not in said.out


def test_the_newest_of_each_document_is_merged_and_continued(
    tmp_path, tiny_bundle, export, command
):
    """A report shows it, which shows one output alone."""
    flags = {"id_column": "id", "output_dtype": "int8", "keep_text": True}
    days, dest = embed_days(tmp_path, tiny_bundle, **flags), tmp_path / "dest"
    said = f"one: merge them with `bert-embed export {days} MERGED --to parquet`"
    assert said in command("report", days, code=2).err
    export(days, dest, "parquet")
    ids, vectors = bert_embed.read(dest)
    wanted, expected = bert_embed.read(days)
    assert ids == wanted
    assert np.array_equal(vectors, expected)
    command("report", dest, projection="pca")
    page = content(dest)
    assert page["documents"]["ids"] == ids
    assert page["documents"]["texts"] == NEWEST
    assert page["counts"]["embedded"] == len(ids)
    more = tmp_path / "more.jsonl"
    more.write_text((tmp_path / "wednesday.jsonl").read_text() + '{"id": 9, "text": "new"}\n')
    flags |= {"skip_existing": dest}
    assert embed(tmp_path / "thursday", tiny_bundle, more, **flags) == 0
    changes = record(tmp_path / "thursday")["changes"]
    assert (changes["new"], changes["changed"]) == (1, 0)


@pytest.mark.parametrize("more", [{}, {"layers": "-1,-2", "layer_combine": "stack"}])
def test_int8_of_several_formats_is_merged_as_it_is(runs, tmp_path, command, more):
    outputs = [runs(name, output_dtype="int8", **more) for name in ("lines", "document")]
    command("export", *outputs, tmp_path / "dest", to="parquet")
    ids, vectors = zip(*map(bert_embed.read, outputs), strict=True)
    found, merged = bert_embed.read(tmp_path / "dest")
    assert found == [*chain(*ids)]
    assert np.array_equal(merged, np.concatenate(vectors))


def test_sparse_and_multi_vectors_come_beside_dense_ones(tmp_path, export, monkeypatch):
    """Whose documents count once, though the halves of one are in two files."""
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse", "multi"], chunks=True)
    monkeypatch.setattr(parquet, "rows_of_files", lambda *_: 1)
    export(run, tmp_path / "dest", "parquet")
    folders = {name.partition("/")[0] for name in data(tmp_path / "dest")}
    assert folders == {"chunks", "sparse", "multi"}
    for read in (bert_embed.read_sparse, bert_embed.read_multi, bert_embed.read):
        assert repr(list(read(tmp_path / "dest"))) == repr(list(read(run)))
    made = record(tmp_path / "dest")
    assert made["counts"]["embedded"] == made["counts"]["records"] == 42
    assert made["tokens"] == sum(rows(tmp_path / "dest")["num_tokens"])
    assert main(["verify", str(tmp_path / "dest")]) == 0


@pytest.mark.parametrize("lost", ["_state/blocks/0*", "embeddings/part-*"])
def test_what_an_export_lost_is_written_again(runs, tmp_path, export, command, lost):
    """By a kill, or by a power cut; what the killed command was writing is removed."""
    export(runs("document"), tmp_path, "parquet")
    whole = data(tmp_path)
    for status in ("running", "done"):
        say_status(tmp_path, status)
        next(tmp_path.glob(lost)).unlink()
        (left := tmp_path / "_state" / ".tmp-elsewhere-7-abcdefab-x").touch()
        os.utime(left, (0, 0))
        told = command("verify", tmp_path, "--repair", code=2).err
        assert "is that of an export; remove the listed files and run the command again" in told
        export(runs("document"), tmp_path, "parquet")
        assert data(tmp_path) == whole
        assert not left.exists()
        assert main(["verify", str(tmp_path)]) == 0
    assert "nothing to do" in export(runs("document"), tmp_path, "parquet")


@pytest.mark.parametrize(
    ("dtype", "flags", "said"),
    [
        ("sparse", {"dim": 3}, "--dim is for dense vectors, {run} holds sparse ones"),
        (
            "sparse",
            {"output_dtype": "int8"},
            "--output_dtype is for dense and multi vectors",
        ),
        ("int8", {"output_dtype": "float16"}, "they become float32 only"),
        ("float16", {"dim": 3}, "they become float32 only"),
        ("float32", {"dim": 99}, "--dim must be between 1 and 8"),
    ],
)
def test_what_cannot_be_converted_is_refused(tmp_path, dtype, flags, said, export):
    if dtype == "sparse":
        run = run_of_kinds(tmp_path / "run", ["sparse"])
    else:
        run = write_output(tmp_path / "run", np.ones((3, 8), np.float32), dtype=dtype)
    export(run, tmp_path / "dest", "parquet", said.format(run=run), **flags)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    export(run, tmp_path / "other", "parquet", "choose another DEST")
