"""Exports to files: what is in them, in every number type and format."""

import datasets
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import bert_embed
from tests.support.embedding_blocks import described, embedding_block, unit_vectors, write
from tests.support.exports import contents, export
from tests.support.finished_runs import extra_of, finished_run

ROWS = (1500, 0, 700, 3)
TOTAL = sum(ROWS)
FORMATS = ("parquet", "jsonl")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs by format and number type, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run(output_format="parquet", dtype="float32", width=20, **more):
        key = "-".join(map(str, (output_format, dtype, width, *more.items())))
        if key not in made:
            made[key] = finished_run(folder / key, ROWS, width, dtype, output_format, **more)
        return made[key]

    return run


def expected(dtype, vectors):
    """What a reader of arrays gets for a run's decoded vectors."""
    if dtype == "ubinary":
        return np.packbits(vectors > 0, axis=1)
    return vectors.astype(np.float16 if dtype == "float16" else np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "ubinary"])
def test_npy_files_map_into_memory_and_their_tables_go_with_them(runs, tmp_path, dtype, capsys):
    source = runs(dtype=dtype)
    assert export(source, tmp_path / "npy", "npy") == 0
    assert capsys.readouterr().out == f"{tmp_path}/npy: {TOTAL:,} rows of 20 numbers\n"
    assert sorted(contents(tmp_path / "npy")) == [
        "emb_0000.npy",
        "export.json",
        "metadata_0000.parquet",
    ]
    found = np.load(tmp_path / "npy" / "emb_0000.npy", mmap_mode="r")
    ids, vectors = bert_embed.read(source)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, expected(dtype, vectors), strict=True)
    table = pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")
    assert table["id"].to_pylist() == ids
    assert table.select(extra_of(np.arange(1)).column_names) == extra_of(np.arange(TOTAL))
    assert table["text"][5].as_py() == "Text\t5\nwith ümlaut"
    assert not {"num_tokens", "text_hash", "embedding"} & set(table.column_names)


@pytest.mark.parametrize("dtype", ["float32", "int8", "ubinary"])
def test_json_lines_give_the_same_export_as_parquet(runs, tmp_path, dtype):
    for output_format in FORMATS:
        assert export(runs(output_format, dtype), tmp_path / output_format, "npy") == 0
    one, other = (contents(tmp_path / each)["emb_0000.npy"] for each in FORMATS)
    assert one == other
    tables = [pq.read_table(tmp_path / each / "metadata_0000.parquet") for each in FORMATS]
    day = tables[0].column_names.index("day")
    assert tables[1]["day"][1].as_py() == "1970-01-02T00:00:00.000000Z"  # as JSON has times
    assert tables[0].remove_column(day) == tables[1].remove_column(day)


@pytest.mark.slow  # TensorFlow decodes the records
def test_tfrecord_files_are_exported_too(runs, tmp_path):
    source = runs("tfrecord", "int8", extra=False)
    assert export(source, tmp_path / "npy", "npy") == 0
    _, vectors = bert_embed.read(source)
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / "emb_0000.npy"), vectors)
    table = pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")
    assert table.column_names == ["id", "text"]


def test_chunks_keep_their_number_and_place(runs, tmp_path):
    source = runs(chunks=True)
    assert export(source, tmp_path / "npy", "npy") == 0
    table = pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")
    assert table.num_rows == 2 * TOTAL == len(np.load(tmp_path / "npy" / "emb_0000.npy"))
    assert table.slice(2, 2).select(["id", "chunk", "start", "stop", "text"]).to_pylist() == [
        {"id": "d/1", "chunk": 0, "start": 0, "stop": 4, "text": "Text"},
        {"id": "d/1", "chunk": 1, "start": 4, "stop": 9, "text": "\t1\nwi"},
    ]


@pytest.mark.parametrize("output_format", FORMATS)
def test_words_are_a_row_each_but_for_those_without_a_vector(tmp_path, output_format):
    block = embedding_block(words=unit_vectors(texts=True))
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", block, described(block), output_format)
    assert export(tmp_path / "run", tmp_path / "npy", "npy", granularity="word") == 0
    table = pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")
    assert table.to_pylist() == [
        {"id": "a:0", "position": 0, "start": 0, "stop": 4, "word": "ones"},
        {"id": "a:0", "position": 1, "start": 5, "stop": 9, "word": "töne"},
    ]
    np.testing.assert_array_equal(
        np.load(tmp_path / "npy" / "emb_0000.npy"), block.words.vectors[:2]
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "ubinary"])
def test_load_dataset_has_typed_features_and_all_rows(runs, tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    source, dest = runs(dtype=dtype), tmp_path / "data set"
    assert export(source, dest, "datasets") == 0
    found = datasets.load_dataset(str(dest), split="train", cache_dir=str(tmp_path / "cache"))
    ids, vectors = bert_embed.read(source)
    wanted = expected(dtype, vectors)
    assert found["id"][:] == ids
    assert found.features["embedding"] == datasets.List(
        datasets.Value(str(wanted.dtype)), length=wanted.shape[1]
    )
    assert found.features["tags"] == datasets.List(datasets.Value("string"))
    np.testing.assert_array_equal(found.with_format("numpy")["embedding"][:], wanted)
    _, front, page = (dest / "README.md").read_text("utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["configs"] == [
        {
            "config_name": "default",
            "data_files": [{"split": "train", "path": "data/train-*"}],
        }
    ]
    assert f"| number type | {'float32' if dtype == 'bfloat16' else dtype} |" in page
    assert "run.json" not in page


def read_tsv(path):
    return [line.split("\t") for line in path.read_text("utf-8").removesuffix("\n").split("\n")]


@pytest.mark.parametrize("kept", [True, False])
def test_the_projector_gets_a_sample_that_is_spread_over_all(runs, tmp_path, kept, capsys):
    source, dest = runs(kept=kept), tmp_path / "projector"
    assert export(source, dest, "projector", sample=500) == 0
    assert capsys.readouterr().out == f"{dest}: 500 of {TOTAL:,} rows of 20 numbers\n"
    tensors = np.array(read_tsv(dest / "tensors.tsv"), np.float32)
    metadata = read_tsv(dest / "metadata.tsv")
    if kept:  # a single column has no header
        assert metadata[0][:3] == ["id", "text", "lang"]
        assert metadata[2][1].endswith(" with ümlaut")
    names = [cells[0] for cells in metadata[kept:]]
    ids, vectors = bert_embed.read(source)
    chosen = [ids.index(name) for name in names]
    assert (len(chosen), chosen[0] < 5, chosen[-1] > TOTAL - 6) == (500, True, True)
    assert max(np.diff(chosen)) < 10
    np.testing.assert_array_equal(tensors, vectors[chosen])
    assert 'tensor_path: "tensors.tsv"' in (dest / "projector_config.pbtxt").read_text()


def test_the_map_of_an_atlas_has_the_principal_components(runs, tmp_path):
    assert export(runs(), tmp_path / "atlas", "atlas") == 0
    table = pd.read_parquet(tmp_path / "atlas" / "atlas.parquet")
    _, vectors = bert_embed.read(runs())
    np.testing.assert_array_equal(np.stack(table["vector"]), vectors)
    left, sizes, right = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    for number, name in enumerate(["projection_x", "projection_y"]):
        largest = right[number][np.abs(right[number]).argmax()]
        wanted = left[:, number] * sizes[number] * np.sign(largest)
        np.testing.assert_allclose(table[name], wanted, atol=1e-4)
    assert list(table["text"])[1] == "Text\t1\nwith ümlaut"


@pytest.mark.parametrize("target", ["npy", "vertex", "projector", "atlas", "datasets"])
def test_the_same_export_gives_the_same_bytes_and_a_second_one_has_nothing_to_do(
    runs, tmp_path, target, capsys
):
    for name in ("one", "other"):
        assert export(runs(), tmp_path / name / "dest", target) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("*")}
    capsys.readouterr()
    assert export(runs(), tmp_path / "one" / "dest", target) == 0
    assert capsys.readouterr().out.endswith(", nothing to do\n")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("*")}
