"""What a report says, held against the output it is about; one small corpus for all tests."""

import json
import shutil
import sys

import numpy as np
import pyarrow.parquet
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.report import sample
from tests.support.command import embed, record, rejected
from tests.support.outputs import content, content_of

WORDS = ("red", "river", "bank", "of", "the", "stars", "money", "seven")
DOCUMENTS = 240


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files: documents of two languages with a year, some twice, and three bad records."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = np.random.default_rng(1)
    lines = [
        json.dumps(
            {
                "id": f"d{n}",
                "text": " ".join(draw.choice(WORDS, 4 + n % 9)) if n % 40 else "the same river",
                "lang": "en" if n % 3 else "de",
                "year": 1990 + n % 30,
            }
        )
        for n in range(DOCUMENTS)
    ]
    bad = ['{"id": "empty", "text": "", "lang": "en", "year": 1}', "no json of a secret word"]
    (folder / "a.jsonl").write_text("\n".join([*lines[:100], *bad]) + "\n")
    (folder / "b.jsonl").write_text("\n".join([*lines[100:], bad[0]]) + "\n")
    return folder


FLAGS = {"extra_columns": "lang,year:int64", "block_bytes": 2000, "max_seq_length": 8}
FLAGS |= {"report": "true"}


@pytest.fixture(scope="module")
def output(corpus, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("report") / "out"
    assert embed(output, tiny_bundle, corpus, **FLAGS) == 0
    return output


@pytest.fixture(scope="module")
def page(output):
    return content(output)


@pytest.fixture
def made(output, tmp_path):
    """Makes a page of the output with these flags; returns what it shows."""

    def reported(*flags):
        assert main(["report", str(output), f"--output={tmp_path}/page.html", *flags]) == 0
        return content_of((tmp_path / "page.html").read_text("utf-8"))

    return reported


def test_its_numbers_are_those_of_the_record(page, output):
    kept, counts = record(output), page["counts"]
    for name in ("counts", "lengths", "unknown"):
        assert page[name] == kept[name]
    names = ("embedded", "rejected", "skipped")
    assert counts["records"] == sum(counts[name] for name in names) == DOCUMENTS + 3
    assert page["tokens"]["cut_share"] == kept["cut_share"] > 0
    full = pyarrow.parquet.read_table(output / "embeddings")["num_tokens_full"].to_numpy()
    middle, most = np.quantile(full, (0.5, 1), method="higher")
    assert (page["full_lengths"]["p50"], page["full_lengths"]["longest"]) == (middle, most)
    assert most > 8


def test_rejected_records_have_file_and_line_but_no_text(page, output, corpus):
    lines = {f"{corpus}/a.jsonl": (100, 101), f"{corpus}/b.jsonl": (140,)}
    found = {place["source"] for each in page["rejected"] for place in each["places"]}
    assert found == {
        f"{path}, line {before + 1}" for path, numbers in lines.items() for before in numbers
    }
    assert sum(each["count"] for each in page["rejected"]) == len(rejected(output)) == 3
    assert "secret word" not in (output / "report.html").read_text("utf-8")


def test_the_health_is_that_of_the_vectors(page, output):
    ids, vectors = bert_embed.read(output)
    assert page["documents"]["ids"] == ids
    health = page["vectors"]
    assert health["equal"] == len(vectors) - len(np.unique(vectors, axis=0)) > 0
    norms = np.linalg.norm(vectors, axis=1)
    unit = vectors / norms[:, None]
    every = (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]
    assert health["mean_cosine"] == pytest.approx(every.mean(), abs=0.01)
    assert (health["not_finite"], health["zero"]) == (0, 0)
    assert all(each["normal"].endswith(".") for each in health["findings"])


def within(made):
    """Whether the points of a map lie within its extent, up to rounding, on each axis."""
    for values, extent in zip((made["x"], made["y"]), made["extent"], strict=True):
        yield np.abs(np.array(values) - 5000).max() <= extent / 2 + 1


def test_a_few_far_points_shrink_no_map_and_lie_on_its_edge():
    near = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    near[:3] *= 1e6
    [made] = sample.projections(near, "pca")
    assert all(within(made))
    assert np.ptp(np.array(made["x"])[3:]) > 4000


def test_the_map_is_the_plane_of_most_variance(page, output):
    _, vectors = bert_embed.read(output)
    made = page["map"]["projections"][-1]
    assert (made["name"], made["package"], made["version"]) == ("PCA", "numpy", np.__version__)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    for axis, values in enumerate((made["x"], made["y"])):
        same = np.corrcoef(values, left[:, axis] * sizes[axis])[0, 1]
        assert abs(same) > 0.98, axis
    assert all(within(made))
    sizes = [each["size"] for each in page["clusters"]]
    assert np.bincount(page["map"]["cluster"]).tolist() == sizes == sorted(sizes, reverse=True)


def test_neighbours_are_the_nearest_of_other_documents_without_copies(page, output):
    _, vectors = bert_embed.read(output)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert len(page["neighbours"]) == 10
    for each in page["neighbours"]:
        own = vectors[each["row"]]
        assert each["equal"] == (vectors == own).all(axis=1).sum() - 1
        _, first = np.unique(vectors, axis=0, return_index=True)
        different = [row for row in first if (vectors[row] != own).any()]
        scores = np.sort(unit[different] @ unit[each["row"]])[::-1]
        np.testing.assert_allclose([score for _, score in each["near"]], scores[:3], atol=1e-3)
    assert page["neighbours"][0]["equal"] > 0


def test_extra_columns_become_colours(page):
    lang, year = page["documents"]["columns"]
    assert (lang["kind"], lang["labels"]) == ("category", ["en", "de"])
    assert [lang["labels"][value] for value in lang["values"][1:4]] == ["en", "en", "de"]
    assert (year["kind"], year["values"][:3]) == ("number", [1990, 1991, 1992])


def test_equal_runs_give_equal_pages(page, corpus, run, monkeypatch):
    monkeypatch.setattr(sample, "UNASKED", 2000)
    other = content(run(corpus, **FLAGS))
    outputs = page["run"]["output"], other["run"]["output"]
    same = json.loads(json.dumps(other).replace(outputs[1], outputs[0]))
    assert same | {"ended": page["ended"]} == page


def test_texts_are_shown_unless_switched_off_and_only_to_the_owner(output, page, made, tmp_path):
    assert page["documents"]["texts"] is None
    before = (output / "report.html").read_bytes()
    found = made()
    assert found["documents"]["texts"][0] == "the same river"
    assert "river" in {word for each in found["clusters"] for word in each["words"]}
    places = [place for each in found["rejected"] for place in each["places"]]
    assert {place.get("text") for place in places} >= {"no json of a secret word"}
    file = tmp_path / "page.html"
    assert file.stat().st_mode & 0o077 == 0
    assert (output / "report.html").read_bytes() == before
    without = made("--no_texts")
    assert without["documents"] == page["documents"]
    assert without["rejected"] == page["rejected"]
    assert file.stat().st_mode & 0o044 == 0o044


def test_clusters_are_named_by_the_words_that_set_them_apart(run):
    draw = np.random.default_rng(2)
    subjects = [("red", "river"), ("money", "bank"), ("seven", "stars")]
    common = ("the", "of", "and")
    texts = [
        " ".join([*draw.choice(common, 6), *draw.choice(subjects[n % 3], 6)]) for n in range(90)
    ]
    made = content(run({"in.jsonl": [{"text": text} for text in texts]}))
    assert len(made["clusters"]) > 1
    for cluster in made["clusters"]:
        assert cluster["words"]
        assert not {*cluster["words"]} & {*common}


def test_the_map_is_that_of_tsne_where_it_is_installed(made, output, command, monkeypatch):
    monkeypatch.setattr(sample, "UNASKED", 2000)

    def names(page):
        return [projection["name"] for projection in page["map"]["projections"]]

    if sample.find_spec("openTSNE") is not None:
        page = made()
        assert names(page) == ["t-SNE", "PCA"]
        assert page["map"]["projections"][0]["package"] == "openTSNE"
        assert names(made("--projection=pca")) == ["PCA"]
        monkeypatch.setattr(sample, "find_spec", lambda package: None)
    page = made()
    assert names(page) == ["PCA"]
    assert page["map"]["lacks_tsne"]
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    said = command("report", output, projection="tsne", code=2).err
    expected = "--projection tsne requires openTSNE, which is not installed here: "
    assert f"{expected}pip install openTSNE\n" in said


def test_a_large_output_is_sampled_over_all_of_it(output, tmp_path, monkeypatch):
    """Ten files, all copies of one part, in a run that says it has a million rows."""
    monkeypatch.setattr(sample, "MOST_FILES", 8)
    (tmp_path / "embeddings").mkdir()
    part = output / "embeddings" / "part-0000000-00000.parquet"
    for block in range(10):
        shutil.copy(part, tmp_path / "embeddings" / f"part-{block:07d}-00000.parquet")
    kept = record(output)
    kept["written"]["embeddings"] |= {"files": 10, "rows": 1_000_000}
    (tmp_path / "run.json").write_text(json.dumps(kept))
    assert main(["report", str(tmp_path)]) == 0
    rows = pyarrow.parquet.read_metadata(part).num_rows
    assert content(tmp_path)["sampled"] == {"rows": 8 * rows, "total": 1_000_000}


def test_the_page_stays_small_and_takes_nothing_from_elsewhere(output):
    text = (output / "report.html").read_text("utf-8")
    assert len(text) < 200_000
    assert "default-src 'none'" in text
    for sign in ("src=", "href=", "@import", "url(", "fetch(", "innerHTML", "eval("):
        assert sign not in text.replace("default-src", ""), sign
