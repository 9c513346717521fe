"""The encoder in the hands of other libraries: run by `make test-ecosystem`, which installs them.

Nothing is downloaded: the model is the packaged one, and the texts are these. LangChain and
scikit-learn get it by the recipes of docs/python.md, as they stand there.
"""

import json
import pickle
import re
from pathlib import Path

import datasets
import keybert
import mteb
import numpy as np
import pandas as pd
import pytest
import torch
from bertopic import BERTopic
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from model2vec import StaticModel
from mteb.abstasks.classification import AbsTaskClassification
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import bert_embed
from bert_embed.integrations.sentence_transformers import as_sentence_transformer
from bert_embed.pipeline.report.sample import main_directions, projections
from tests.support.models import static
from tests.support.models.heads import write_splade
from tests.support.models.sentence_transformers import write_sentence_transformers

KITCHEN = ("bread", "soup", "cake", "rice", "fish stew", "an omelette", "pasta", "a salad")
GARAGE = ("a car", "a truck", "a motorcycle", "a van", "a tractor", "a bus", "a taxi", "a scooter")
TEXTS = [
    *(f"The cook tastes {dish} {when}." for dish in KITCHEN for when in ("today", "at noon")),
    *(f"The mechanic repairs {it} {when}." for it in GARAGE for when in ("today", "at noon")),
]
_CONFIG = "config_sentence_transformers.json"
LABELS = [0] * 16 + [1] * 16
# Its own reduction of vectors compiles for half a minute.
QUICK = {"min_topic_size": 5, "umap_model": PCA(5, random_state=0)}


def recipe(first_words):
    """The names that a block of docs/python.md defines."""
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"bert_embed": bert_embed, "__name__": "recipe"}
    exec(next(block for block in blocks if block.startswith(first_words)), names)
    return names


LANGCHAIN, SKLEARN = recipe("from langchain_core"), recipe("from sklearn")


@pytest.fixture(scope="module")
def encoder():
    return bert_embed.load("minilm")


@pytest.fixture(scope="module")
def model(encoder):
    return as_sentence_transformer(encoder)


@pytest.mark.parametrize(
    "estimator", [KMeans(2, random_state=0), SVC(), SGDClassifier(random_state=0)]
)
def test_sparse_vectors_are_what_scikit_learn_takes(tmp_path, estimator):
    """It refuses indices of int64."""
    write_splade(tmp_path / "source")
    rows = bert_embed.load(tmp_path / "source").encode(TEXTS, kind="sparse").to_scipy()
    fitted = estimator.fit(rows, LABELS)
    assert np.array_equal(fitted.predict(rows[::2]), fitted.predict(rows.toarray()[::2]))


def test_a_sentence_transformer_has_the_vectors_of_the_encoder(encoder, model):
    wanted = encoder.encode(TEXTS)
    assert isinstance(model, SentenceTransformer)
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=5), wanted, atol=1e-5)
    tensor = model.encode("one text", convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor.numpy(), encoder.encode("one text"), atol=1e-5)
    cosines = model.similarity(wanted[:2], wanted[:3]).numpy()
    np.testing.assert_allclose(cosines, encoder.similarity(wanted[:2], wanted[:3]), atol=1e-5)
    assert model.get_embedding_dimension() == encoder.dimension == 384
    assert model.max_seq_length == encoder.max_seq_length
    prompted = model.encode(["one text"], prompt="query: ")
    np.testing.assert_allclose(prompted, encoder.encode(["query: one text"]), atol=1e-5)


def test_a_sentence_transformer_is_called_as_one(tmp_path):
    write_sentence_transformers(
        tmp_path / "model", prompts={"clustering": "find: "}, default_prompt="clustering"
    )
    settings = json.loads((tmp_path / "model" / _CONFIG).read_text())
    (tmp_path / "model" / _CONFIG).write_text(json.dumps({**settings, "similarity_fn_name": "dot"}))
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    ours = as_sentence_transformer(bert_embed.load(tmp_path / "model"))
    texts = ["the bank of the river", "money", "a vault for people"]
    for method in ("encode", "encode_query", "encode_document"):
        for prompt in (None, "", "so: "):
            found = getattr(ours, method)(texts, prompt=prompt)
            wanted = getattr(theirs, method)(texts, prompt=prompt)
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(
        ours.similarity(found, found), theirs.similarity(found, found), atol=1e-4
    )
    pairs = list(zip(texts, texts[::-1], strict=True))
    np.testing.assert_allclose(ours.encode(pairs), theirs.encode(pairs), atol=1e-5)
    found = ours.encode(texts, output_value="token_embeddings")
    wanted = theirs.encode(texts, output_value="token_embeddings")
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    for features in (texts, pairs):
        found, wanted = (one.preprocess(features, prompt="") for one in (ours, theirs))
        for name in ("input_ids", "attention_mask"):
            np.testing.assert_array_equal(found[name], wanted[name])
    each = ours.encode(texts, output_value=None)
    np.testing.assert_allclose(each[1]["sentence_embedding"], ours.encode(texts)[1], atol=1e-6)
    with pytest.raises(bert_embed.SettingError, match="processing_kwargs is not offered here"):
        ours.encode(texts, processing_kwargs={"text": {"max_length": 4}})
    with pytest.raises(bert_embed.SettingError, match=r"inputs must be str, number 1 is missing"):
        ours.encode(["the bank", None])


def test_a_model_for_other_vectors_is_no_sentence_transformer(tmp_path):
    write_splade(tmp_path / "source")
    with pytest.raises(bert_embed.SettingError, match="give kind='sparse'"):
        as_sentence_transformer(bert_embed.load(tmp_path / "source"))


class Trades(AbsTaskClassification):
    """A task of mteb over the texts of this file."""

    metadata = TaskMetadata(
        name="Trades",
        description="Which trade a sentence is about.",
        dataset={"path": "local/trades", "revision": "1"},
        type="Classification",
        category="t2c",
        eval_langs=["eng-Latn"],
        main_score="accuracy",
    )

    def load_data(self, **kwargs):
        columns = datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})
        self.dataset = datasets.DatasetDict({"train": columns, "test": columns})
        self.data_loaded = True


def test_mteb_evaluates_the_encoder(model):
    result = mteb.evaluate(model, Trades(), cache=None, show_progress_bar=False)
    (found,) = result.task_results
    assert found.get_score() > 0.95


def test_bertopic_finds_the_topics(model):
    found, _ = BERTopic(embedding_model=model, **QUICK).fit_transform(TEXTS)
    of_trade = [set(found[:16]) - {-1}, set(found[16:]) - {-1}]
    assert all(of_trade)
    assert not of_trade[0] & of_trade[1]


def test_keybert_finds_the_keywords(model):
    text = "The mechanic repairs the engine of the old truck before lunch."
    found = keybert.KeyBERT(model=model).extract_keywords(text, top_n=3)
    assert {"mechanic", "repairs", "truck", "engine"} >= {word for word, _ in found}


class TestLangChain(EmbeddingsIntegrationTests):
    """LangChain's tests that compute vectors."""

    @property
    def embeddings_class(self):
        return LANGCHAIN["EncoderEmbeddings"]

    @property
    def embedding_model_params(self):
        return {"encoder": bert_embed.load("minilm")}


def test_langchain_searches_with_the_encoder():
    store = LANGCHAIN["store"]
    store.add_texts(TEXTS)
    (found,) = store.similarity_search("Somebody repairs a truck.", k=1)
    assert "mechanic repairs a truck" in found.page_content


def test_scikit_learn_clones_searches_and_pickles_the_transformer(encoder):
    step, model = SKLEARN["embed"], SKLEARN["classifier"]
    cut = clone(step).set_params(kw_args={"dim": 50, "normalize": True})
    wanted = encoder.encode(TEXTS, dim=50, normalize=True)
    np.testing.assert_allclose(cut.fit_transform(TEXTS), wanted, atol=1e-5)
    settings = {"functiontransformer__kw_args": [{"dim": 2}, {"dim": 100}]}
    search = GridSearchCV(model, settings, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.95
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert again.predict(
        ["The mechanic looks at a lorry.", "The cook makes pancakes."]
    ).tolist() == [1, 0]


def test_scikit_learn_takes_a_column_of_a_table():
    table = pd.DataFrame({"text": TEXTS, "number": range(len(TEXTS))})
    columns = ColumnTransformer([("text", SKLEARN["embed"], "text")], remainder="passthrough")
    assert columns.fit_transform(table).shape == (len(TEXTS), 385)
    with pytest.raises(
        bert_embed.SettingError, match="texts must be a list of texts, got a DataFrame"
    ):
        SKLEARN["embed"].fit_transform(table)


COLUMN = pd.Series(["a bank", "money"])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both") / "model"
    write_sentence_transformers(folder, prompts={"query": "find: "})
    return SentenceTransformer(str(folder), device="cpu"), bert_embed.load(folder)


def test_a_column_of_pandas(both):
    theirs, ours = both
    with pytest.raises(ValueError, match="Unsupported input type: Series"):
        theirs.encode(COLUMN)
    wanted = theirs.encode(COLUMN.tolist())
    np.testing.assert_allclose(ours.encode(COLUMN), wanted, atol=1e-5)


def test_no_texts(both):
    theirs, ours = (model.encode([]) for model in both)
    assert (theirs.shape, theirs.dtype) == ((0,), np.float64)
    assert (ours.shape, ours.dtype) == ((0, 32), np.float32)


def test_queries_get_the_prompt_that_encode_omits(both):
    theirs, ours = both
    np.testing.assert_allclose(
        ours.encode_query(["money"]), theirs.encode_query(["money"]), atol=1e-5
    )
    np.testing.assert_allclose(
        ours.encode(["money"], prompt=""), theirs.encode(["money"]), atol=1e-5
    )


@pytest.mark.parametrize("kind", ["potion", "weighted", "shared"])
def test_model2vec(tmp_path, kind):
    static.write_static(tmp_path / "model", kind)
    theirs = StaticModel.from_pretrained(str(tmp_path / "model"))
    ours = bert_embed.load(tmp_path / "model")
    texts = [text for text in (*static.TEXTS, "the bank of the river " * 400) if text]
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-6)


def test_tsne_keeps_groups_together_and_is_the_same_every_time():
    draw = np.random.default_rng(5)
    middles = draw.standard_normal((3, 64)) * 4
    of = np.arange(300) % 3
    vectors = (middles[of] + draw.standard_normal((300, 64))).astype(np.float32)
    directions = main_directions(vectors)
    first, second = projections(directions, "tsne")
    assert (first["name"], first["package"], second["name"]) == ("t-SNE", "openTSNE", "PCA")
    assert first["parameters"]["random_state"] == 42
    assert projections(directions, "tsne") == [first, second]
    places = np.array([first["x"], first["y"]]).T
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (of[distances.argmin(axis=1)] == of).mean() > 0.98
