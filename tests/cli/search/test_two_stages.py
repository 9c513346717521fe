"""Search in two stages: candidates by small vectors, scored by larger ones; and what that loses."""

import json
import re
from pydoc_data.topics import topics

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.results import outputs as outputs_module
from tests.support.command import embed

pytestmark = pytest.mark.slow

K, CANDIDATES, SAMPLE = 5, 20, 8
QUERIES = ["the river bank", "make an object callable"]


@pytest.fixture(scope="module")
def texts():
    parts = [
        " ".join(part.split())[:100] for text in topics.values() for part in text.split("\n\n")
    ]
    return list(dict.fromkeys(part for part in parts if len(part) > 60))[:240]


@pytest.fixture(scope="module")
def outputs(tiny_bundle, tmp_path_factory, texts):
    """One corpus as each number type, and as chunks; `half` has every second document."""
    folder = tmp_path_factory.mktemp("stages")
    lines = [json.dumps({"id": f"{row}", "text": text}) for row, text in enumerate(texts)]
    (folder / "in.jsonl").write_text("\n".join(lines))
    (folder / "half.jsonl").write_text("\n".join(lines[::2]))
    for name, dtype in (("ubinary", "ubinary"), ("int8", "int8"), ("float32", "float32")):
        assert embed(folder / name, tiny_bundle, folder / "in.jsonl", output_dtype=dtype) == 0
    assert embed(folder / "half", tiny_bundle, folder / "half.jsonl") == 0
    flags = {"chunk": "tokens", "chunk_tokens": 8}
    for name, dtype in (("chunks8", "int8"), ("chunks", "float32")):
        assert (
            embed(folder / name, tiny_bundle, folder / "in.jsonl", output_dtype=dtype, **flags) == 0
        )
    return folder


@pytest.fixture(scope="module")
def vectors(tiny_bundle, texts):
    encoder = bert_embed.load(tiny_bundle)
    return (
        encoder.encode(texts, normalize=True, long_text="truncate"),
        encoder.encode(QUERIES, normalize=True),
    )


def found(*arguments, **settings):
    return [
        [(hit.id, hit.start, hit.score) for hit in hits]
        for hits in bert_embed.nearest(
            *arguments, QUERIES, K, recall_sample=0 if settings else None, **settings
        )
    ]


@pytest.mark.parametrize("small", ["ubinary", "int8"])
def test_with_all_documents_as_candidates_it_is_the_exact_search(outputs, small):
    two = found(str(outputs / small), candidates=240, rescore_with=str(outputs / "float32"))
    assert two == found(str(outputs / "float32"))
    if small == "ubinary":
        assert found(str(outputs / small), candidates=240) == found(str(outputs / small))


def test_chunks_are_scored_by_those_of_the_same_place(outputs):
    settings = {"candidates": 5000, "rescore_with": str(outputs / "chunks")}
    assert found(str(outputs / "chunks8"), **settings) == found(str(outputs / "chunks"))


def test_few_candidates_are_those_of_most_equal_signs(outputs, vectors):
    documents, queries = vectors
    settings = {"candidates": CANDIDATES, "rescore_with": str(outputs / "float32")}
    for hits, query in zip(found(str(outputs / "ubinary"), **settings), queries, strict=True):
        wanted = by_two_stages(documents, query, K)
        assert [int(name) for name, _, _ in hits] == wanted
        np.testing.assert_allclose([hit[2] for hit in hits], documents[wanted] @ query, atol=1e-5)


def by_two_stages(documents, query, k):
    differ = ((documents > 0) != (query > 0)).sum(axis=1)
    candidates = np.argsort(differ, kind="stable")[:CANDIDATES]
    scores = documents[candidates].astype(np.float64) @ query
    return candidates[np.argsort(-scores, kind="stable")][:k].tolist()


def test_the_recall_is_that_of_documents_of_the_run(outputs, vectors, capsys):
    documents, _ = vectors
    words = ["search", str(outputs / "ubinary"), QUERIES[0], f"--k={K}", "--json"]
    words += [f"--candidates={CANDIDATES}", f"--rescore_with={outputs / 'float32'}"]
    assert main([*words, f"--recall_sample={SAMPLE}"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)["hits"]) == K
    shares = []
    for row in np.unique(np.linspace(0, len(documents) - 1, SAMPLE).astype(int)).tolist():
        exact = [one for one in np.argsort(-(documents @ documents[row])).tolist() if one != row]
        some = [one for one in by_two_stages(documents, documents[row], K + 1) if one != row]
        shares.append(len({*exact[:K]} & {*some[:K]}) / K)
    matched = re.search(rf"recall@{K} ([\d.]+) ± ([\d.]+): .* for {SAMPLE} documents", said.err)
    assert 0 < np.mean(shares) < 1
    assert float(matched[1]) == pytest.approx(np.mean(shares), abs=5e-4)
    error = 1.96 * np.std(shares) / np.sqrt(SAMPLE)
    assert float(matched[2]) == pytest.approx(error, abs=5e-4)
    assert main([*words, "--recall_sample=0"]) == 0
    assert "recall" not in capsys.readouterr().err


def test_documents_that_the_larger_output_lacks_are_counted_and_left_out(outputs, capsys):
    settings = {"candidates": CANDIDATES, "rescore_with": str(outputs / "half")}
    for hits in found(str(outputs / "ubinary"), **settings):
        assert all(int(name) % 2 == 0 for name, _, _ in hits)
    said = capsys.readouterr().err
    assert re.search(r"note: \d+ of \d+ candidates are not in .*half, and left out", said)


def test_an_id_of_several_texts_gives_none_the_score_of_another(tmp_path, tiny_bundle, capsys):
    texts = [("a", "the bank"), ("a", "seven stars"), ("b", "a river"), ("b", "a river")]
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    for dtype in ("ubinary", "float32"):
        flags = {"output_dtype": dtype, "block_bytes": 40}
        assert embed(tmp_path / dtype, tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    [exact] = bert_embed.nearest(str(tmp_path / "float32"), ["the bank"], 4)
    larger = str(tmp_path / "float32")
    [hits] = bert_embed.nearest(str(tmp_path / "ubinary"), ["the bank"], 4, rescore_with=larger)
    assert [(hit.id, hit.score) for hit in hits] == [
        (hit.id, hit.score) for hit in exact if hit.id == "b"
    ]
    said = "1 of 2 candidates has the id of several texts in "
    assert said in capsys.readouterr().err
    # Nor if the larger output has one of these texts alone.
    (tmp_path / "in.jsonl").write_text("\n".join(lines[1:]))
    assert embed(tmp_path / "fewer", tiny_bundle, tmp_path / "in.jsonl") == 0
    larger = str(tmp_path / "fewer")
    [hits] = bert_embed.nearest(str(tmp_path / "ubinary"), ["the bank"], 4, rescore_with=larger)
    assert [hit.id for hit in hits] == ["b", "b"]
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("names", ["12", "21"])
def test_of_increments_the_newest_version_is_scored(
    tmp_path, tiny_bundle, capsys, monkeypatch, names
):
    first, second = names
    days = {
        first: {"a": "the bank", "b": "a river", "c": "seven stars"},
        second: {"a": "money in a vault", "b": "a river"},
    }
    for day, documents in days.items():
        lines = [json.dumps({"id": name, "text": text}) for name, text in documents.items()]
        (tmp_path / f"{day}.jsonl").write_text("\n".join(lines))
    for dtype in ("ubinary", "float32"):
        for day in days:
            source = tmp_path / f"{day}.jsonl"
            earlier = {"skip_existing": tmp_path / dtype / first} if day == second else {}
            earlier |= {"max_deleted": "50%"}
            output = tmp_path / dtype / day
            assert embed(output, tiny_bundle, source, output_dtype=dtype, **earlier) == 0
    query, small = "money in a vault", [str(tmp_path / "ubinary" / day) for day in days]
    read, columns_of_files = [], outputs_module.columns_of_files
    monkeypatch.setattr(
        outputs_module,
        "columns_of_files",
        lambda *of: read.append(of[0].folder) or columns_of_files(*of),
    )
    [hits] = bert_embed.nearest(small, [query], 2, rescore_with=str(tmp_path / "float32"))
    assert [(hit.id, hit.text) for hit in hits] == [("a", query), ("b", "a river")]
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert "recall@2 1.000" in capsys.readouterr().err
    ids_of = {f"{tmp_path}/{dtype}/{second}" for dtype in ("ubinary", "float32")}
    assert sorted(read) == sorted(ids_of), "the ids of later outputs are read once"
    # "c" is deleted, also if the candidates are of the first day.
    [hits] = bert_embed.nearest(small[:1], [query], 3, rescore_with=str(tmp_path / "float32"))
    assert [hit.id for hit in hits] == ["a", "b"]
    assert "1 of 3 candidates is not in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["float32", "--candidates=9"], "--candidates is for ubinary vectors, but "),
        (["ubinary", "--candidates=9"], "--candidates must be at least --k, 10, got 9"),
        (["ubinary", "--candidates=0"], "--candidates must be a whole number of at least 1"),
        (["ubinary", "--recall_sample=9"], "--recall_sample requires --candidates or --rescore_"),
        (["ubinary", "--rescore_with=nowhere"], "nowhere is not the output of a run"),
        (["ubinary", "--candidates=20", "--by=sparse"], "--by sparse requires sparse vectors"),
    ],
)
def test_what_has_no_two_stages_is_refused(outputs, capsys, words, said):
    assert main(["search", str(outputs / words[0]), *words[1:], "a river"]) == 2
    assert said in capsys.readouterr().err


def test_without_texts_the_recall_is_not_measured(outputs, tmp_path, tiny_bundle, capsys):
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "a", "text": "the bank"}\n')
    assert embed(tmp_path / "out", tiny_bundle, source, output_dtype="ubinary") == 0
    source.unlink()
    assert main(["search", str(tmp_path / "out"), "bank", "--candidates=50"]) == 0
    said = capsys.readouterr()
    assert "1.  " not in said.err
    assert "is not measured: the run's input" in said.err
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert embed(tmp_path / "none", tiny_bundle, empty, output_dtype="ubinary") == 0
    assert main(["search", str(tmp_path / "none"), "bank", "--candidates=50"]) == 0
    assert "has a text to ask with" in capsys.readouterr().err


def test_python_finds_what_the_command_finds(outputs, capsys):
    ours = {"candidates": CANDIDATES, "recall_sample": 0}
    hits = bert_embed.nearest([outputs / "ubinary"], QUERIES, K, **ours)
    assert [[(hit.id, hit.start, hit.score) for hit in few] for few in hits] == found(
        str(outputs / "ubinary"), candidates=CANDIDATES
    )
    every = bert_embed.nearest(outputs / "half*", QUERIES[:1], 1)  # a glob
    assert [hit.folder for hit in every[0]] == [str(outputs / "half")]
    assert bert_embed.nearest(outputs / "ubinary", [], 1) == []
    with pytest.raises(bert_embed.SettingError, match="must be a list of texts"):
        bert_embed.nearest(outputs / "ubinary", QUERIES[0])
    with pytest.raises(bert_embed.SettingError, match="recall_sample requires candidates"):
        bert_embed.nearest(outputs / "ubinary", QUERIES, recall_sample=3)


def test_an_output_of_other_documents_rescores_none(outputs, tiny_bundle, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"id": "elsewhere", "text": "the river"}\n')
    assert embed(tmp_path / "other", tiny_bundle, tmp_path / "in.jsonl") == 0
    words = ["search", str(outputs / "ubinary"), QUERIES[0], "--candidates=20", "--recall_sample=0"]
    capsys.readouterr()
    assert main([*words, f"--rescore_with={tmp_path / 'other'}"]) == 2
    assert f"{tmp_path / 'other'} has none of the 20 candidates" in capsys.readouterr().err
