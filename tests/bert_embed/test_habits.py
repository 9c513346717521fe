"""What somebody types who comes from another tool gets a lead, not a bare AttributeError."""

import pickle

import pytest

import bert_embed
from bert_embed.transforms.adapters.documents import EmbedDocuments


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle)


@pytest.mark.parametrize(
    ("name", "lead"),
    [
        ("tokenize", r"Encoder has no tokenize: call tokenizer\(texts\)"),
        ("start_multi_process_pool", "Encoder has no start_multi_process_pool: encode uses all"),
        ("layers", r"Encoder has no layers: it is spec\.layers"),
        ("nonsense", "Encoder has no nonsense$"),
    ],
)
def test_attributes_of_others(encoder, name, lead):
    with pytest.raises(AttributeError, match=lead):
        getattr(encoder, name)
    assert not hasattr(encoder, name)


@pytest.mark.parametrize(
    ("name", "lead"), [("SentenceTransformer", r"bert_embed\.load"), ("util", "sim")]
)
def test_names_of_other_packages(name, lead):
    with pytest.raises(
        AttributeError, match=f"module 'bert_embed' has no attribute '{name}': call .*{lead}"
    ):
        getattr(bert_embed, name)


def test_a_checkpoint_is_named_by_its_folder():
    with pytest.raises(
        bert_embed.SettingError, match="must be the folder of a checkpoint: give there"
    ):
        bert_embed.load("there/bert_model.ckpt")


def test_devices_have_the_names_of_pytorch_too(tiny_bundle):
    assert bert_embed.load(tiny_bundle, device=None).device == "cpu"
    with pytest.raises(bert_embed.SettingError, match="device gpu: TensorFlow sees no GPU"):
        bert_embed.load(tiny_bundle, device="cuda")


def test_a_tokenizer_says_what_its_parts_are_called_and_can_be_pickled(encoder):
    tokenizer = encoder.tokenizer
    with pytest.raises(AttributeError, match="Tokenizer has no encode_plus: call the tokenizer i"):
        tokenizer.encode_plus("the bank")
    with pytest.raises(bert_embed.SettingError, match=r"ids must be an integer, got 'a'"):
        tokenizer.tokens(["a"])
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again("the bank", truncation=True) == tokenizer("the bank", truncation=True)


@pytest.mark.parametrize(
    ("settings", "lead"),
    [
        ({"model_name": "a"}, r"model_name is not a setting; did you mean model\?"),
        (
            {"truncate_dim": 8},
            "truncate_dim is called dim here, and what is cut is scaled to length 1",
        ),
        ({"prompts": {"query": "q: "}}, "prompts is not offered: give one as prompt"),
        ({"revision": "a"}, "revision is not offered: give it behind the model's name"),
    ],
)
def test_keywords_of_others(tiny_bundle, settings, lead):
    with pytest.raises(bert_embed.SettingError, match=lead):
        bert_embed.load(tiny_bundle, **settings)
    with pytest.raises(bert_embed.SettingError, match=lead):
        EmbedDocuments(tiny_bundle, **settings)


def test_an_encoder_leaves_settings_of_vectors_to_load(tiny_bundle):
    with pytest.raises(
        bert_embed.SettingError, match=r"normalize is for bert_embed\.load, or for a call"
    ):
        bert_embed.Encoder(tiny_bundle, normalize=True)


@pytest.mark.parametrize(
    ("texts", "settings", "lead"),
    [
        ([("a", "b")], {}, "texts must be str, number 0 is tuple; pairs are two lists of texts"),
        (["a"], {"output_value": None}, "output_value is not offered, encode_tokens gives"),
        (["a"], {"precision": "int8"}, "precision is not offered, vectors are float32 here"),
        (["a"], {"prompt_name": "x"}, "name:x is none of this model's prompts, which has none"),
    ],
)
def test_calls_of_others(encoder, texts, settings, lead):
    with pytest.raises(bert_embed.SettingError, match=lead):
        encoder.encode(texts, **settings)


def test_a_file_is_not_the_output_of_a_run(tmp_path):
    (tmp_path / "v.npy").write_bytes(b"")
    with pytest.raises(
        bert_embed.InputError, match=r"v\.npy is a file; give the output folder of a run"
    ):
        bert_embed.read(tmp_path / "v.npy")
