"""People who wait for a first block see what the process does."""

from bert_embed.backends.choose import load_engine
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.infer import BlockModelHandler
from bert_embed.transforms.steps import activity, current_activity


def test_the_activity_that_began_last_is_shown():
    assert current_activity() is None
    with activity("planning"):
        with activity("loading the model"):
            assert current_activity() == "loading the model"
        assert current_activity() == "planning"
    assert current_activity() is None


def test_loading_the_model_is_shown(tiny_bundle):
    seen = []

    def load(*settings):
        seen.append(current_activity())
        return load_engine(*settings)

    text_spec = TextSpec(max_seq_length=16)
    BlockModelHandler(tiny_bundle, "", VectorSpec(), text_spec, load_engine=load).load_model()
    assert seen == ["loading the model"]
    assert current_activity() is None
