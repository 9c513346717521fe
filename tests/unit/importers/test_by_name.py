"""Models by their names, in folders with the files that the real ones have beside their weights.

Weights are random and small: lengths, pooling, prompts and normalization are those of the files.
"""

import json

import pytest

from bert_embed.bundle.bundle import document_prompt, query_prompt
from bert_embed.importers import import_model
from tests.support.command import embed, record
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, snapshot_folder
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
NO_POOLER = {"model_args": {"add_pooling_layer": False}}


def files(pooling="mean", length=512, normalize=True, prompts=None, **more):
    return {"pooling": pooling, "length": length, "normalize": normalize, "prompts": prompts} | more


E5, NOMIC = ("query: ", "passage: "), ("search_query: ", "search_document: ")
# One for each way in which their files, their encoders or their prompts differ.
MODELS = {
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": (
        "multilingual",
        files(length=128, normalize=False, tokenizer_class="BertTokenizer"),
    ),
    "sentence-transformers/LaBSE": ("bert", files("cls", 256, dense=32)),
    "sentence-transformers/distiluse-base-multilingual-cased-v2": (
        "distilbert",
        files(length=128, normalize=False, dense=16),
    ),
    "intfloat/e5-base-v2": ("bert", files(trained=E5)),
    "BAAI/bge-small-en-v1.5": ("bert", files("cls", lowered=True, trained=(SEARCHING, ""))),
    "dangvantuan/sentence-camembert-base": (
        "camembert",
        files(length=128, normalize=False, file="sentence_camembert_config.json"),
    ),
    "nomic-ai/nomic-embed-text-v1.5": ("nomic_bert", files(length=700, code=True, trained=NOMIC)),
    "Snowflake/snowflake-arctic-embed-m-long": (
        "nomic_bert",
        files("cls", 700, prompts={"query": SEARCHING}, transformer=NO_POOLER, code=True),
    ),
    "nomic-ai/modernbert-embed-base": ("modernbert", files(length=700, trained=NOMIC)),
    "jinaai/jina-embeddings-v2-base-en": ("jina", files(length=700, normalize=False, code=True)),
    "a-team/saved-by-release-6": (
        "xlm-roberta",
        files(prompts={"query": "query: ", "document": "passage: "}, modern=True),
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
    modules = [dense(32, about["dense"])] if "dense" in about else []
    if kind == "bert":
        write_sentence_transformers(folder, modules=modules, positions=512)
    else:
        if modules:  # whose folder this writes
            write_sentence_transformers(folder, modules=modules)
            (folder / "vocab.txt").unlink()
        write_architecture(folder, kind, hub=True if kind in ("nomic_bert", "new") else None)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(modules)]
    write_kinds(folder, [*kinds, *(["Normalize"] if about["normalize"] else [])])
    if "tokenizer_class" in about:
        slow = {"tokenizer_class": about["tokenizer_class"], "do_lower_case": True}
        change(folder, {"tokenizer_config.json": slow})
    if about.get("code"):
        auto_map = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "modeling_own.OwnConfig"}
        code = "raise SystemExit('code of the model ran')\n"
        change(folder, {"config.json": {"auto_map": auto_map}, "modeling_own.py": code})
    if about.get("modern"):
        return write_release_6(folder, about)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    used = {"mean": "mean_tokens", "cls": "cls_token"}[about["pooling"]]
    pooling = {f"pooling_mode_{mode}": mode == used for mode in modes}
    pooling |= {"word_embedding_dimension": 32, "include_prompt": True}
    (folder / "sentence_bert_config.json").unlink(missing_ok=True)
    transformer = {"max_seq_length": about["length"], "do_lower_case": about.get("lowered", False)}
    transformer |= about.get("transformer", {})
    versions = {"sentence_transformers": "2.7.0.dev0", "transformers": "4.39.3", "pytorch": "2.1.0"}
    model = {"__version__": versions}
    if about["prompts"] is not None:
        model |= {"prompts": about["prompts"], "default_prompt_name": None}
    replace(folder, pooling, transformer, model, about.get("file", "sentence_bert_config.json"))
    return None


def replace(folder, pooling, transformer, model, file="sentence_bert_config.json"):
    """Writes the settings of a model's modules, in place of those that are there."""
    texts = {"1_Pooling/config.json": pooling, file: transformer}
    texts["config_sentence_transformers.json"] = model
    change(folder, {name: json.dumps(values) for name, values in texts.items()})


def write_release_6(folder, about):
    """What `save_pretrained` of sentence-transformers 6.2 writes."""
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = MODERN[module["type"].rpartition(".")[2]]
    pooling = {"embedding_dimension": 32, "pooling_mode": about["pooling"], "include_prompt": True}
    names = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    slow = {"model_max_length": about["length"], "chat_template": "no text is put into it"}
    files = {"modules.json": modules, "2_Normalize/config.json": names}
    change(folder, files | {"tokenizer_config.json": slow})
    output = {"method": "forward", "method_output_name": "last_hidden_state"}
    transformer = {"transformer_task": "feature-extraction", "modality_config": {"text": output}}
    transformer |= {"module_output_name": "token_embeddings"}
    model = {"model_type": "SentenceTransformer", "__version__": {}, "prompts": about["prompts"]}
    model |= {"default_prompt_name": None, "similarity_fn_name": "cosine"}
    replace(folder, pooling, transformer, model)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_cache_is_computed_as_its_files_say(name, tmp_path):
    about = MODELS[name][1]
    bundle = import_model(name, str(tmp_path / "bundle"))
    assert bundle.source == f"hf://{name}@{COMMIT}"
    spec = bundle.defaults
    assert (spec.pooling, spec.normalize) == (about["pooling"], about["normalize"])
    assert spec.dense == about.get("dense", 0)
    assert bundle.max_seq_length == about["length"]
    assert bundle.prompts == (about["prompts"] or {})
    query, document = about.get("trained", ("", ""))
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
