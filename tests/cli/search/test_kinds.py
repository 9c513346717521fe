"""Search by each kind of vectors: exact in unit/search, here from the texts to the hits."""

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed, write_json
from tests.support.models.heads import write_splade
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.tiny import bundle_of

WORDS = ["river", "bank", "money", "robber", "vault", "water", "people", "number"]
TEXTS = [f"{WORDS[n % 8]} {WORDS[n // 8 % 8]} of {n}" for n in range(60)]
QUERIES = ["the bank of the river", "money"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A sparse model, and one of late interaction."""
    folder = tmp_path_factory.mktemp("models")
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    return {
        "sparse": bundle_of(folder / "splade", write_splade, **pooling),
        "multi": bundle_of(folder / "colbert", write_multi_vectors, "stanford"),
    }


@pytest.fixture(scope="module")
def outputs(tmp_path_factory, models):
    """Runs by what they hold, in several files."""
    folder = tmp_path_factory.mktemp("outputs")
    records = [{"id": f"d{number}", "text": text} for number, text in enumerate(TEXTS)]
    corpus = write_json(folder / "in.jsonl", *records)
    made = {}
    for name, kind, flags in (
        ("both", "sparse", {"vectors": "dense,sparse"}),
        ("sparse", "sparse", {"keep_text": True}),
        ("multi", "multi", {}),
        ("int8", "multi", {"output_dtype": "int8"}),
    ):
        made[name] = str(folder / name)
        assert embed(folder / name, models[kind], corpus, part_docs=17, **flags) == 0
    return made


@pytest.mark.parametrize(
    ("name", "kind"), [("both", "sparse"), ("multi", "multi"), ("int8", "multi")]
)
def test_hits_are_those_of_all_products(outputs, models, name, kind):
    encoder = bert_embed.load(models[kind])
    queries = encoder.encode_query(QUERIES, kind=kind)
    if kind == "multi":
        assert (np.diff(queries.splits) == 16).all()  # filled up
        documents = [each.astype(np.float64) for _, each in bert_embed.read_multi(outputs[name])]
        parts = np.split(queries.vectors, queries.splits[1:-1])
        scores = np.array(
            [[(each @ part.T).max(axis=0).sum() for part in parts] for each in documents]
        )
    else:
        scores = encoder.similarity(encoder.encode(TEXTS, kind=kind), queries)
    found = bert_embed.nearest(outputs[name], QUERIES, 20, by=kind)
    for number, hits in enumerate(found):
        order = np.argsort(-scores[:, number], kind="stable")[:20]
        assert [hit.id for hit in hits] == [f"d{row}" for row in order]
        np.testing.assert_allclose([hit.score for hit in hits], scores[order, number], rtol=1e-5)
        assert [hit.text for hit in hits] == [TEXTS[row] for row in order]
        assert hits[0].file.startswith(f"{kind}/part-")


def test_what_an_output_holds_is_searched_by_default(outputs, models, run, capsys):
    both, sparse = outputs["both"], outputs["sparse"]

    def scores(output, by=None):
        return [
            [hit.score for hit in hits] for hits in bert_embed.nearest(output, QUERIES, 5, by=by)
        ]

    assert scores(sparse) == scores(sparse, "sparse") == scores(both, "sparse")
    assert scores(both) == scores(both, "dense")
    assert scores(outputs["multi"]) == scores(outputs["multi"], "multi")
    assert main(["search", both, sparse, "money", "--k=1"]) == 0  # what both hold
    none = run({"empty.jsonl": ""}, "none", model=models["sparse"])
    assert main(["search", str(none), "money"]) == 0
    assert "none has no vectors" in capsys.readouterr().err
    for output, by, messages in (
        (sparse, "dense", ["--by dense requires dense vectors", "that makes them, such as BAAI"]),
        (both, "multi", [f"multi vectors, but {both} holds dense and sparse"]),
        (both, "words", ["--by must be one of dense, sparse, multi"]),
    ):
        assert main(["search", output, "money", f"--by={by}"]) == 2
        said = capsys.readouterr().err
        assert all(message in said for message in messages)
