"""The encoder in the hands of other libraries: run by `make test-ecosystem`, which installs them.

Nothing is downloaded: the model is the packaged one, and the texts are these.
"""

import pickle

import datasets
import keybert
import mteb
import numpy as np
import pandas as pd
import pytest
import torch
from bertopic import BERTopic
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests
from mteb.abstasks.classification import AbsTaskClassification
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer, util
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import bert_embed
from bert_embed.integrations.langchain import EncoderEmbeddings
from bert_embed.integrations.sentence_transformers import as_sentence_transformer
from bert_embed.integrations.sklearn import TextEncoder

KITCHEN = ("bread", "soup", "cake", "rice", "fish stew", "an omelette", "pasta", "a salad")
GARAGE = ("a car", "a truck", "a motorcycle", "a van", "a tractor", "a bus", "a taxi", "a scooter")
TEXTS = [
    *(f"The cook tastes {dish} {when}." for dish in KITCHEN for when in ("today", "at noon")),
    *(f"The mechanic repairs {it} {when}." for it in GARAGE for when in ("today", "at noon")),
]
LABELS = [0] * 16 + [1] * 16
# Its own reduction of vectors compiles for half a minute.
QUICK = {"min_topic_size": 5, "umap_model": PCA(5, random_state=0)}


@pytest.fixture(scope="module")
def encoder():
    return bert_embed.load("minilm")


@pytest.fixture(scope="module")
def model(encoder):
    return as_sentence_transformer(encoder)


def test_a_sentence_transformer_has_the_vectors_of_the_encoder(encoder, model):
    wanted = encoder.encode(TEXTS)
    assert isinstance(model, SentenceTransformer)
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=5), wanted, atol=1e-5)
    tensor = model.encode("one text", convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor.numpy(), encoder.encode("one text"), atol=1e-5)
    cosines = model.similarity(wanted[:2], wanted[:3]).numpy()
    np.testing.assert_allclose(cosines, encoder.similarity(wanted[:2], wanted[:3]), atol=1e-5)
    assert model.get_embedding_dimension() == encoder.get_embedding_dimension() == 384
    assert model.max_seq_length == encoder.max_seq_length
    prompted = model.encode(["one text"], prompt="query: ")
    np.testing.assert_allclose(prompted, encoder.encode(["query: one text"]), atol=1e-5)


def test_tensors_are_returned_where_torch_is_installed(encoder):
    one = encoder.encode("one text", convert_to_tensor=True)
    listed = encoder.encode(["one text", "another"], convert_to_numpy=False)
    assert (one.shape, one.dtype, len(listed)) == ((384,), torch.float32, 2)
    assert encoder.encode("one text", convert_to_numpy=False).shape == (384,)
    np.testing.assert_allclose(listed[0].numpy(), one.numpy(), atol=1e-5)
    hits = util.semantic_search(one, encoder.encode(["some text", "a van"], convert_to_tensor=True))
    assert hits[0][0]["corpus_id"] == 0


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


def test_bertopic_takes_vectors_of_encode(encoder):
    found, _ = BERTopic(**QUICK).fit_transform(TEXTS, embeddings=encoder.encode(TEXTS))
    assert not {-1} & (set(found[:16]) & set(found[16:]))
    assert set(found) - {-1}


def test_keybert_finds_the_keywords(model):
    text = "The mechanic repairs the engine of the old truck before lunch."
    found = keybert.KeyBERT(model=model).extract_keywords(text, top_n=3)
    assert {"mechanic", "repairs", "truck", "engine"} >= {word for word, _ in found}


class TestLangChainUnits(EmbeddingsUnitTests):
    """LangChain's own tests of embeddings."""

    @property
    def embeddings_class(self):
        return EncoderEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "minilm", "normalize": True}


class TestLangChain(EmbeddingsIntegrationTests):
    """LangChain's tests that compute vectors."""

    @property
    def embeddings_class(self):
        return EncoderEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "minilm"}


def test_langchain_searches_with_the_encoder(encoder):
    embeddings = EncoderEmbeddings(encoder, dim=100)
    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    (found,) = store.similarity_search("Somebody repairs a truck.", k=1)
    assert "mechanic repairs a truck" in found.page_content
    assert len(embeddings.embed_query("one")) == 100
    with pytest.raises(
        bert_embed.SettingError, match=r"poling is not a setting; did you mean pooling\?"
    ):
        EncoderEmbeddings(encoder, poling="cls")


def test_scikit_learn_clones_searches_and_pickles_the_transformer(encoder):
    step = TextEncoder(dim=50, normalize=True)
    assert step.get_params()["dim"] == 50
    np.testing.assert_allclose(
        clone(step).fit_transform(TEXTS), encoder.encode(TEXTS, dim=50, normalize=True), atol=1e-5
    )
    model = make_pipeline(TextEncoder(), LogisticRegression())
    search = GridSearchCV(model, {"textencoder__dim": [2, 100]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.95
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert again.predict(
        ["The mechanic looks at a lorry.", "The cook makes pancakes."]
    ).tolist() == [1, 0]


def test_scikit_learn_takes_columns_and_names_the_output():
    table = pd.DataFrame({"text": TEXTS, "number": range(len(TEXTS))})
    columns = ColumnTransformer([("text", TextEncoder(dim=3), "text")], remainder="passthrough")
    found = columns.set_output(transform="pandas").fit_transform(table)
    names = [f"text__textencoder{number}" for number in range(3)]
    assert list(found.columns) == [*names, "remainder__number"]
    with pytest.raises(
        bert_embed.SettingError, match="texts must be a list of texts, got a DataFrame"
    ):
        TextEncoder().fit_transform(table)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "best"}, "pooling must be one of"),
        ({"layer_combine": "stack"}, "layer_combine stack gives several vectors a text"),
        ({"model": 3}, "model must be a str, got 3"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
    ],
)
def test_fit_names_a_wrong_parameter(settings, message):
    with pytest.raises(bert_embed.SettingError, match=message):
        TextEncoder(**settings).fit(TEXTS)
