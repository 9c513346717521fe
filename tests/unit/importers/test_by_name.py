"""Models by their names, in folders with the files that the real ones have beside their weights.

Weights are random and small: lengths, pooling, prompts and normalization are those of the files.
"""

import json

import pytest

from bert_embed.bundle.bundle import document_prompt, query_prompt
from bert_embed.importers import import_model
from tests.support.command import embed, record
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, snapshot_folder, write
from tests.support.models.sentence_transformers import (
    dense,
    write_kinds,
    write_sentence_transformers,
)

pytestmark = pytest.mark.slow

COMMIT = "0a" * 20
SEARCHING = "Represent this sentence for searching relevant passages: "
MODERN = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
POOLING, SLOW = "1_Pooling/config.json", "tokenizer_config.json"
TRANSFORMER, MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"
AUTO_MAP = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "modeling_own.OwnConfig"}
CODE = {
    "config.json": {"auto_map": AUTO_MAP},
    "modeling_own.py": "raise SystemExit('code of the model ran')\n",
}
UNIGRAM = {SLOW: {"tokenizer_class": "BertTokenizer", "do_lower_case": True}}
LOWERED = {TRANSFORMER: {"do_lower_case": True}}
CAMEMBERT = {TRANSFORMER: None, "sentence_camembert_config.json": {"max_seq_length": 128}}
ARCTIC = CODE | {TRANSFORMER: {"model_args": {"add_pooling_layer": False}}}
E5, NOMIC = ("query: ", "passage: "), ("search_query: ", "search_document: ")


def model(pooling="mean", length=512, normalize=True, files=None, **more):
    usual = {"prompts": None, "trained": ("", ""), "dense": 0, "files": files or {}}
    return usual | {"pooling": pooling, "length": length, "normalize": normalize} | more


# One for each way in which their files, their encoders or their prompts differ.
MODELS = {
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": (
        "multilingual",
        model("mean", 128, False, UNIGRAM),
    ),
    "sentence-transformers/LaBSE": ("bert", model("cls", 256, dense=32)),
    "sentence-transformers/distiluse-base-multilingual-cased-v2": (
        "distilbert",
        model("mean", 128, False, dense=16),
    ),
    "intfloat/e5-base-v2": ("bert", model(trained=E5)),
    "BAAI/bge-small-en-v1.5": ("bert", model("cls", files=LOWERED, trained=(SEARCHING, ""))),
    "dangvantuan/sentence-camembert-base": ("camembert", model("mean", 128, False, CAMEMBERT)),
    "nomic-ai/nomic-embed-text-v1.5": ("nomic_bert", model("mean", 700, True, CODE, trained=NOMIC)),
    "Snowflake/snowflake-arctic-embed-m-long": (
        "nomic_bert",
        model("cls", 700, True, ARCTIC, prompts={"query": SEARCHING}),
    ),
    "nomic-ai/modernbert-embed-base": ("modernbert", model(length=700, trained=NOMIC)),
    "jinaai/jina-embeddings-v2-base-en": ("jina", model("mean", 700, False, CODE)),
    "a-team/saved-by-release-6": (
        "xlm-roberta",
        model(prompts={"query": "query: ", "document": "passage: "}),
    ),
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    for name, (kind, about) in MODELS.items():
        write_model(snapshot_folder(folder, name, COMMIT), kind, about)
    return folder


@pytest.fixture(autouse=True)
def caches(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "imported"))


def write_model(folder, kind, about):
    modules = [dense(32, about["dense"])] if about["dense"] else []
    write_sentence_transformers(folder, modules=modules, positions=512)
    if kind != "bert":
        (folder / "vocab.txt").unlink()
        write_architecture(folder, kind, hub=kind == "nomic_bert" or None)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(modules), "Normalize"]
    write_kinds(folder, kinds if about["normalize"] else kinds[:-1])
    save = write_release_6 if kind == "xlm-roberta" else write_release_2
    save(folder, about)
    change(folder, about["files"])


def write_release_2(folder, about):
    """What `save_pretrained` of sentence-transformers 2.7 writes."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    pooling = {f"pooling_mode_{mode}": mode.startswith(f"{about['pooling']}_t") for mode in modes}
    pooling |= {"word_embedding_dimension": 32, "include_prompt": True}
    transformer = {"max_seq_length": about["length"], "do_lower_case": False}
    versions = {"sentence_transformers": "2.7.0.dev0", "transformers": "4.39.3", "pytorch": "2.1.0"}
    said = {"__version__": versions}
    if about["prompts"] is not None:
        said |= {"prompts": about["prompts"], "default_prompt_name": None}
    write(folder, {POOLING: pooling, TRANSFORMER: transformer, MODEL: said})


def write_release_6(folder, about):
    """What that of release 6.2 writes."""
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = MODERN[module["type"].rpartition(".")[2]]
    pooling = {"embedding_dimension": 32, "pooling_mode": about["pooling"], "include_prompt": True}
    names = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    output = {"method": "forward", "method_output_name": "last_hidden_state"}
    transformer = {"transformer_task": "feature-extraction", "modality_config": {"text": output}}
    transformer |= {"module_output_name": "token_embeddings"}
    said = {"model_type": "SentenceTransformer", "__version__": {}, "prompts": about["prompts"]}
    said |= {"default_prompt_name": None, "similarity_fn_name": "cosine"}
    files = {"modules.json": modules, "2_Normalize/config.json": names, POOLING: pooling}
    write(folder, files | {TRANSFORMER: transformer, MODEL: said})
    slow = {"model_max_length": about["length"], "chat_template": "no text is put into it"}
    change(folder, {SLOW: slow})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_cache_is_computed_as_its_files_say(name, tmp_path):
    about = MODELS[name][1]
    bundle = import_model(name, str(tmp_path / "bundle"))
    assert bundle.source == f"hf://{name}@{COMMIT}"
    spec = bundle.defaults
    assert (spec.pooling, spec.normalize) == (about["pooling"], about["normalize"])
    assert spec.dense == about["dense"]
    assert bundle.max_seq_length == about["length"]
    assert bundle.prompts == (about["prompts"] or {})
    query, document = about["trained"]
    if about["prompts"]:
        query = about["prompts"]["query"]
        document = about["prompts"].get("document", "")
        assert document_prompt(bundle, None) == document
    assert query_prompt(bundle, document) == query


def test_code_beside_the_weights_never_runs(tmp_path):
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w').close()\n"
    folder = tmp_path / "model"
    write_sentence_transformers(folder)
    names = ("modeling_own", "configuration_own", "tokenization_own", "custom_st", "__init__")
    names += ("sitecustomize", "json", "numpy", "tokenizers", "1_Pooling/__init__")
    auto_map = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "configuration_own.OwnConfig"}
    tokenizers = {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}
    trusting = {name: {"trust_remote_code": True} for name in ("model_args", "config_args")}
    files = {f"{name}.py": code for name in names}
    files["config.json"] = {"auto_map": auto_map, "trust_remote_code": True}
    files["tokenizer_config.json"] = {"auto_map": tokenizers}
    change(folder, files | {"sentence_bert_config.json": json.dumps(trusting)})
    (tmp_path / "in.txt").write_text("the bank\n")
    assert embed(tmp_path / "out", str(folder), tmp_path / "in.txt") == 0
    assert record(tmp_path / "out")["counts"]["embedded"] == 1
    assert not marker.exists()
