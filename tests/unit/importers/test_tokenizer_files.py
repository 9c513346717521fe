"""Tokenizer files of Hugging Face folders: which tokenizer they make, and what is refused."""

import json

import numpy as np
import pytest
import tokenizers

from bert_embed.bundle.bundle import read_bundle
from bert_embed.importers import import_model
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, imported, refused
from tests.support.models.google import write_tiny_google
from tests.support.models.tiny import BERT_NORMALIZER, small_vocabulary, write_tiny_huggingface


def template(single="[CLS] A [SEP]", pair="[CLS] A [SEP] B.1 [SEP].1"):
    """A post-processor as save_pretrained writes it; a type behind a dot."""

    def items(text):
        for word in text.split():
            name, _, number = word.partition(".")
            kind = "Sequence" if name in "AB" else "SpecialToken"
            yield {kind: {"id": name, "type_id": int(number or 0)}}

    numbers = {"[CLS]": 2, "[SEP]": 3, "[UNK]": 1}
    special = {
        name: {"id": name, "ids": [number], "tokens": [name]} for name, number in numbers.items()
    }
    parts = {"single": list(items(single)), "pair": list(items(pair)), "special_tokens": special}
    return {"type": "TemplateProcessing", **parts}


FAST = {
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
    "normalizer": BERT_NORMALIZER,
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": template(),
}
PLAIN: dict = {"added_tokens": []}
PROCESSOR = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
TOKEN = {"content": "covid19", "normalized": True, "special": False}
USUAL = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True}
RENAMED = {"[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>"}
OTHER_FILES = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "merges.txt")
LOWER = {"type": "Lowercase"}
META = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
SPLIT = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, META]}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
ENDS = "must put one token before a text, and one after it"
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
WHOLE = {"max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1}}
MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
READ = {"model": MODEL | WHOLE, **PLAIN}
SLOW, FAST_FILE = "tokenizer_config.json", "tokenizer.json"
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


def write_fast(source, vocab=None, max_word=None, **parts):
    entries = small_vocabulary() if vocab is None else vocab
    longest = {"max_input_chars_per_word": max_word} if max_word else {}
    model = MODEL | longest | {"vocab": {entry: number for number, entry in enumerate(entries)}}
    (source / FAST_FILE).write_text(json.dumps(FAST | {"model": model} | parts))


def model_of(source):
    return json.loads((source / FAST_FILE).read_text())["model"]


def test_the_vocabulary_of_tokenizer_json_is_that_of_vocab_txt(tmp_path, tiny_bundle):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source")
    names = ["input_ids", "token_type_ids", "attention_mask"]
    slow = {"tokenizer_class": "TokenizersBackend", "model_input_names": names}
    change(tmp_path / "source", {SLOW: slow, "vocab.txt": None})
    bundle = imported(tmp_path)
    assert bundle.fingerprint == read_bundle(tiny_bundle).fingerprint
    assert load_tokenizer(bundle).vocab == tuple(small_vocabulary())


def test_ids_of_a_hub_model_are_those_of_its_own_library(tmp_path):
    """google-research's rules make [UNK] of the word that a bullet of a PDF touches."""
    write_tiny_huggingface(tmp_path / "source")
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("\uf0b7 the\uf0b7 bank") == tokenizer.encode("the bank")


def test_two_vocabularies_that_differ_are_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    vocabulary = small_vocabulary()
    vocabulary[7], vocabulary[8] = vocabulary[8], vocabulary[7]
    write_fast(tmp_path / "source", vocabulary)
    refused(tmp_path, r"vocab\.txt and tokenizer\.json differ at id 7")


def test_a_vocabulary_with_a_gap_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    vocab = {entry: number for number, entry in enumerate(small_vocabulary())}
    del vocab["bank"]
    write_fast(tmp_path / "source", model=MODEL | {"vocab": vocab})
    (tmp_path / "source" / "vocab.txt").unlink()
    refused(tmp_path, "ids from 0 on, has 210, the last is 210")


@pytest.mark.parametrize("fast", [True, False])
def test_a_word_table_may_have_more_rows_than_entries_but_not_fewer(tmp_path, fast):
    entries = small_vocabulary()
    for name, listed in (("more", entries[:-11]), ("fewer", [*entries, "new"])):
        source = tmp_path / name / "source"
        write_tiny_huggingface(source)
        (source / "vocab.txt").write_text("\n".join(listed), "utf-8")
        if fast:
            write_fast(source, listed)
            (source / "vocab.txt").unlink()
    tokenizer = load_tokenizer(imported(tmp_path / "more"))
    assert tokenizer.vocab == tuple(entries[:-11])
    refused(tmp_path / "fewer", "at most 211 entries as config.json says, .*has 212")


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source", vocab=["<s>", "</s>", "[UNK]", "a"])
    refused(tmp_path, r"the vocabulary lacks \[CLS\], \[SEP\]")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        *[(name, "", f"{name}: only tokenizer.json is read of such") for name in OTHER_FILES],
        *[
            (file, {"tokenizer_class": name}, f"must be BertTokenizer, got {name}; take a model")
            for name in ("XLMRobertaTokenizer", "RobertaTokenizerFast", "BertJapaneseTokenizer")
            for file in (SLOW, "config.json")
        ],
        (SLOW, {"cls_token": "<s>"}, "cls_token must be an entry of the vocabulary, got '<s>'"),
        (SLOW, {"sep_token": {"content": "</s>"}}, "sep_token must be an entry of the vocabulary"),
        (SLOW, {"sep_token": ["[SEP]"]}, rf"{SLOW}: sep_token must be a token, got \['"),
        (SLOW, {"extra_special_tokens": "x"}, "special_tokens must be a list of tokens, got 'x'"),
        (SLOW, {"do_basic_tokenize": False}, "do_basic_tokenize must be true, is false"),
        (SLOW, {"do_lower_case": "false"}, "do_lower_case must be true or false, got 'false'"),
        (SLOW, {"strip_accents": 1}, f"{SLOW}: strip_accents must be true or false"),
        (SLOW, {"truncation_side": "left"}, f"{SLOW}: truncation_side must be right"),
        (SLOW, {"padding_side": "left"}, f"{SLOW}: padding_side must be right"),
        (SLOW, {"a_new_setting": 3}, "a_new_setting is not supported"),
        (SLOW, {"added_tokens_decoder": {"211": "x"}}, "_decoder must map ids to objects"),
        (SLOW, {"added_tokens_decoder": {"211": TOKEN}}, "at most 211 entries as config.json says"),
        *[
            (SLOW, {"model_max_length": length}, f"{SLOW}: model_max_length must be")
            for length in ("16", True, -5, 0, [16])
        ],
    ],
)
def test_other_tokenizers_and_their_settings_are_refused_by_name(tmp_path, file, content, message):
    write_tiny_huggingface(tmp_path / "source")
    change(tmp_path / "source", {file: content})
    refused(tmp_path, message)


@pytest.mark.parametrize("name", ["BertTokenizerFast", "DistilBertTokenizer", "BertTokenizer"])
def test_berts_tokenizer_classes_are_read(tmp_path, name):
    write_tiny_huggingface(tmp_path / "source")
    change(tmp_path / "source", {SLOW: {"tokenizer_class": name}})
    assert imported(tmp_path).tokenizer_settings["lower_case"]


def entries_of(parts):
    """The tiny vocabulary, renamed as the parts of tokenizer.json name it."""
    model = parts.get("model", {})
    names = RENAMED if model.get("unk_token") == "<unk>" else {}
    prefix = model.get("continuing_subword_prefix", "##")
    entries = [names.get(entry, entry) for entry in small_vocabulary()]
    return [prefix + entry[2:] if entry.startswith("##") else entry for entry in entries]


@pytest.mark.parametrize(
    "parts",
    [
        {"model": MODEL | {"unk_token": "<unk>"}},
        {"model": MODEL | {"continuing_subword_prefix": "@@"}},
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": None},
        {"normalizer": FAST["normalizer"] | {"clean_text": False}},
        {"normalizer": FAST["normalizer"] | {"strip_accents": False}},
        {"normalizer": FAST["normalizer"] | {"handle_chinese_chars": False}},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        {"added_tokens": [{"id": 20, "content": "<user>", "special": False, **USUAL}]},
        {"added_tokens": [{"id": 9, "content": "", "special": False, **USUAL}]},
    ],
    ids=["unk", "prefix", "nfkc", "none", "clean", "accents", "chinese", "space", "new", "entry"],
)
def test_a_word_piece_that_is_not_berts_has_the_librarys_ids(tmp_path, parts):
    parts, entries = dict(parts), entries_of(parts)
    sep, cls = ([entries[number], number] for number in (3, 2))
    parts["post_processor"] = PROCESSOR | {"sep": sep, "cls": cls}
    model = MODEL | WHOLE | parts.pop("model", {})
    model["vocab"] = {entry: number for number, entry in enumerate(entries)}
    for token in parts.get("added_tokens", ()):
        if token["content"]:  # beyond the vocabulary, as save_pretrained writes them
            token["id"] = len(entries)
        else:
            token |= {"content": "bank", "id": entries.index("bank")}
    write_tiny_huggingface(tmp_path / "source", vocab=[*entries, "<user>"])
    fast = {"version": "1.0", **FAST, "added_tokens": [], **parts, "model": model}
    files = {FAST_FILE: fast, SLOW: json.dumps(GENERIC), "vocab.txt": None}
    change(tmp_path / "source", files)
    path = tmp_path / "source" / "tokenizer.json"
    bundle = imported(tmp_path)
    assert bundle.tokenizer_settings["kind"] == "WordPiece"
    assert read_bundle(bundle.path).tokenizer_file == "tokenizer.json"
    tokenizer, library = load_tokenizer(bundle), tokenizers.Tokenizer.from_file(str(path))
    for text in ("The BANKS\x07 of école", "the river,money", "北京 bank 北", "<user> thebank"):
        assert tokenizer.encode(text) == library.encode(text).ids, text


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"model": {"type": "WordLevel"}}, "must be one of WordPiece, Unigram, BPE, got WordLevel"),
        ({"model": {"type": "BPE"}}, "cannot be read"),
        ({"post_processor": {"type": "RobertaProcessing"}}, "cannot be read"),
        ({"post_processor": {"type": "TemplateProcessing", "single": True}}, "cannot be read"),
        ({"post_processor": template() | {"special_tokens": {}}} | READ, "r cannot be followed"),
        ({"normalizer": None, "post_processor": None} | READ, ENDS),
        ({"normalizer": CHARSMAP, **PLAIN}, "cannot be read: Precompiled: "),  # the library panics
        ({"model": MODEL | WHOLE | {"unk_token": "<u>"}, **PLAIN}, "unk_token must be an entry"),
        # Rows of a text have one token at each end, of type 0.
        *[
            ({"max_word": 100, "post_processor": template(single), **PLAIN}, ENDS)
            for single in (
                *("[CLS] A", "[CLS] [UNK] A [SEP]", "[CLS] A [SEP] [SEP]", "[CLS].1 A [SEP]"),
                *("[CLS] A.1 [SEP]", "A [SEP]"),
            )
        ],
    ],
)
def test_another_tokenizer_json_is_refused_by_its_part(tmp_path, parts, message):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", **parts)
    change(tmp_path / "source", {SLOW: GENERIC})
    refused(tmp_path, rf"tokenizer\.json: .*{message}")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("changes", [{"strip_accents": True}, {"tokenize_chinese_chars": False}])
def test_casing_that_berts_own_tokenizer_lacks_is_the_librarys(tmp_path, changes, fast):
    """BERT's classes take casing from tokenizer_config.json, whatever tokenizer.json says."""
    write_tiny_huggingface(tmp_path / "source", cased=True)
    change(tmp_path / "source", {SLOW: changes})
    if fast:
        parts = PLAIN | {"normalizer": FAST["normalizer"] | {"lowercase": True}}
        parts |= {"post_processor": PROCESSOR, "max_word": 100}
        write_fast(tmp_path / "source", small_vocabulary(cased=True), **parts)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.kind == "WordPiece"
    chinese = changes.get("tokenize_chinese_chars", True)
    assert len(tokenizer.encode("北京")) == (4 if chinese else 3)
    assert tokenizer.encode("The bánk") != tokenizer.encode("the bánk")
    assert (tokenizer.encode("bánk") == tokenizer.encode("bank")) is ("strip_accents" in changes)


def test_lowering_before_a_cased_tokenizer_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source", cased=True, pooling={})
    change(tmp_path / "source", {"sentence_bert_config.json": {"do_lower_case": True}})
    refused(tmp_path, "do_lower_case of sentence-transformers with a cased tokenizer is not supp")


@pytest.mark.parametrize(("lowered", "cased"), [(True, False), (False, False), (False, True)])
def test_lowering_that_changes_nothing_is_read(tmp_path, lowered, cased):
    write_tiny_huggingface(tmp_path / "source", cased=cased, pooling={})
    change(tmp_path / "source", {"sentence_bert_config.json": {"do_lower_case": lowered}})
    assert imported(tmp_path).tokenizer_settings["lower_case"] is not cased


def test_a_tokenizer_that_says_no_casing_lowers(tmp_path):
    """As transformers' BertTokenizer; sentence-transformers' false only means: not before it."""
    write_tiny_huggingface(tmp_path / "source", pooling={})
    files = {SLOW: None, "sentence_bert_config.json": {"do_lower_case": False}}
    change(tmp_path / "source", files)
    assert imported(tmp_path).tokenizer_settings["lower_case"]


@pytest.mark.parametrize(("length", "wanted"), [(1e30, 64), (20, 20), (512, 64), (None, 64)])
def test_the_length_is_the_tokenizers_within_the_positions(tmp_path, length, wanted):
    write_tiny_huggingface(tmp_path / "source")
    change(tmp_path / "source", {SLOW: {"model_max_length": length}})
    assert imported(tmp_path).max_seq_length == wanted


@pytest.mark.parametrize(
    ("cased", "text", "pieces"),
    [
        (False, "The Bank", ["the", "bank"]),
        (True, "The bank", ["The", "bank"]),
        (False, "北京bank", ["北", "京", "bank"]),
    ],
)
def test_a_model_of_every_casing_and_script_splits_as_its_vocabulary_says(
    tmp_path, cased, text, pieces
):
    vocabulary = [*small_vocabulary(cased), "北", "京"]
    write_tiny_huggingface(tmp_path / "source", cased=cased, vocab=vocabulary)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.tokens(tokenizer.encode(text)[1:-1]) == pieces


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("BertForMaskedLM", ["cls.predictions.bias", "cls.predictions.transform.dense.weight"]),
        ("BertForQuestionAnswering", ["qa_outputs.weight", "qa_outputs.bias"]),
        ("BertForPreTraining", ["cls.seq_relationship.weight", "cls.predictions.decoder.weight"]),
    ],
)
def test_a_checkpoint_with_a_head_is_its_encoder(tmp_path, tiny_bundle, architecture, head):
    heads = {name: np.ones((2, 3), np.float32) for name in head}
    write_tiny_huggingface(tmp_path / "source", prefix="bert.", changes=heads)
    change(tmp_path / "source", {"config.json": {"architectures": [architecture]}})
    assert imported(tmp_path).fingerprint == read_bundle(tiny_bundle).fingerprint


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"normalizer": [1]}, "normalizer must be an object, got a list"),
        ({"model": "WordPiece"}, "model must be an object, got a str"),
        ({"model": MODEL | {"vocab": ["a"]}}, "vocab must be an object, got a list"),
        ({"model": MODEL | {"vocab": {"a": "1"}}, **PLAIN}, "the id of 'a' must be a whole numb"),
        ({"model": MODEL | {"vocab": {"a": -1}}, **PLAIN}, "the id of 'a' must be a whole number"),
        ({"post_processor": "x"}, "post_processor must be an object, got a str"),
        ({"added_tokens": 1}, "added_tokens must be a list, got 1"),
        ({"added_tokens": ["x"]}, "cannot be read"),
        ({"added_tokens": [{"id": "0", "content": "[PAD]"}]}, "cannot be read"),
        ({"added_tokens": [{"id": -1, "content": "##ed"}]}, "cannot be read"),
    ],
)
def test_parts_of_another_type_are_refused(tmp_path, parts, message):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", **parts)
    refused(tmp_path, message)


def test_an_entry_with_a_line_break_is_refused(tmp_path):
    """vocab.txt, which the bundle keeps, would have an entry more, and all ids behind it shift."""
    vocabulary = small_vocabulary()
    vocabulary[20] = "a\nb"
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", vocabulary)
    (tmp_path / "source" / "vocab.txt").unlink()
    refused(tmp_path, r"tokenizer\.json: entry 20 holds a line break")


@pytest.mark.parametrize("place", ["added_tokens.json", SLOW])
@pytest.mark.parametrize("kind", ["usual", "special", "single_word"])
def test_added_tokens_of_every_file_are_tokens(tmp_path, place, kind):
    """A special one in a text is text; one may be a whole word alone."""
    entries = small_vocabulary()
    number = len(entries)
    write_tiny_huggingface(tmp_path / "source", vocab=[*entries, "covid19"])
    files = {"vocab.txt": "\n".join(entries)}
    if place == SLOW:
        files[SLOW] = {"added_tokens_decoder": {str(number): TOKEN | {kind: True}}}
    else:
        names = {"additional_special_tokens": ["covid19"] if kind == "special" else []}
        files |= {place: {"covid19": number}, "special_tokens_map.json": names}
    change(tmp_path / "source", files)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert (number in tokenizer.encode("the COVID19, bank")) is (kind != "special")
    is_part = kind == "usual" or (kind, place) == ("single_word", "added_tokens.json")
    assert (number in tokenizer.encode("xcovid19x")) is is_part


def test_the_flags_of_an_added_token_are_those_of_tokenizer_config(tmp_path):
    """As transformers takes them, whatever tokenizer.json says of the same token."""
    source = tmp_path / "source"
    write_architecture(source, "roberta")
    values = json.loads((source / FAST_FILE).read_text())
    number = values["model"]["vocab"]["a"]
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    token = {"content": "a", **flags}
    slow = {"added_tokens_decoder": {str(number): token | {"lstrip": True, "rstrip": True}}}
    fast = {"added_tokens": [*values["added_tokens"], {"id": number, **token}]}
    change(source, {FAST_FILE: fast, SLOW: slow})
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("the a bank") == tokenizer.encode("theabank")


def test_a_generic_tokenizer_that_puts_nothing_around_texts_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", max_word=100, post_processor=None, added_tokens=[])
    change(tmp_path / "source", {SLOW: {"tokenizer_class": "TokenizersBackend"}})
    refused(tmp_path, rf"tokenizer\.json: {ENDS}")


@pytest.mark.parametrize(("slow", "fast"), [(True, False), (False, True), (None, True)])
def test_add_prefix_space_is_that_of_tokenizer_config(tmp_path, slow, fast):
    """As transformers' class does, which takes false where it is not named."""
    write_architecture(tmp_path / "source", "roberta")
    said = {} if slow is None else {"add_prefix_space": slow}
    pre_tokenizer = BYTES | {"add_prefix_space": fast}
    change(tmp_path / "source", {SLOW: said, FAST_FILE: {"pre_tokenizer": pre_tokenizer}})
    tokenizer = load_tokenizer(imported(tmp_path))
    same = tokenizer.encode("the bank") == tokenizer.encode(" the bank")
    assert same is bool(slow)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
@pytest.mark.parametrize("padding", [None, 0, 2, 20])
def test_padding_that_rows_hold_is_refused(tmp_path, kind, padding):
    write_architecture(tmp_path / "source", kind, pad_token_id=padding)
    refused(tmp_path, r"config\.json: pad_token_id must be")


def test_mpnet_counts_positions_as_if_its_padding_were_1(tmp_path):
    fingerprints = set()
    for number in (1, 0):
        write_architecture(tmp_path / "source", "mpnet", pad_token_id=number)
        fingerprints.add(imported(tmp_path, str(number)).fingerprint)
    assert len(fingerprints) == 1


def test_special_tokens_of_an_older_version_win_over_those_of_tokenizer_config(tmp_path):
    """As in transformers, where tokenizer_config.json has no added_tokens_decoder."""
    write_tiny_huggingface(tmp_path / "source")
    files = {SLOW: {"cls_token": "bank"}, "special_tokens_map.json": {"cls_token": "[CLS]"}}
    for name, cls in zip(files, ("bank", "[CLS]"), strict=True):
        change(tmp_path / "source", {name: files[name]})
        tokenizer = load_tokenizer(imported(tmp_path, cls))
        assert tokenizer.vocab[tokenizer.cls_id] == cls


@pytest.mark.parametrize(
    ("kind", "parts", "usual"),
    [
        ("roberta", {"normalizer": LOWER}, {"normalizer": None}),
        ("roberta", {"pre_tokenizer": {"type": "Whitespace"}}, {"pre_tokenizer": BYTES}),
        ("xlm-roberta", {"normalizer": LOWER}, {"normalizer": None}),
        ("xlm-roberta", {"pre_tokenizer": META}, {"pre_tokenizer": SPLIT}),
        ("camembert", {"pre_tokenizer": META}, {"pre_tokenizer": SPLIT}),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_transformers_classes_read_the_vocabulary_of_tokenizer_json_alone(
    tmp_path, kind, parts, usual, named
):
    """Ids are those of the class, by its name or by the model; a generic class takes the file."""
    name = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}[kind]
    text, seen = " The  bank\nand THE river ", []
    source = tmp_path / "source"
    write_architecture(source, kind)
    wanted = []
    for changes in (usual, parts):
        change(source, {FAST_FILE: changes})
        library = tokenizers.Tokenizer.from_file(str(source / FAST_FILE))
        wanted.append(library.encode(text).ids)
    for each in ((f"{name}TokenizerFast" if named else None), "PreTrainedTokenizerFast"):
        change(source, {SLOW: json.dumps({"tokenizer_class": each})})
        seen.append(load_tokenizer(imported(tmp_path, str(each))).encode(text))
    assert seen == wanted
    assert wanted[0] != wanted[1]


@pytest.mark.parametrize("name", ["BertTokenizer", "GPT2TokenizerFast", "XLMRobertaTokenizer"])
def test_a_class_of_other_pieces_is_refused(tmp_path, name):
    write_architecture(tmp_path / "source", "roberta")
    change(tmp_path / "source", {SLOW: {"tokenizer_class": name}})
    refused(tmp_path, f"tokenizer_class {name} makes other pieces than the BPE of tokenizer.json")


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("bert", "Bert"), ("electra", "Bert"), ("nomic_bert", "Bert"), ("mpnet", "MPNet")],
)
def test_a_model_that_names_no_class_has_that_of_its_type(tmp_path, model_type, name):
    write_architecture(tmp_path / "bytes", "roberta")
    source = tmp_path / "source"
    write_architecture(source, "multilingual" if model_type == "bert" else model_type)
    change(source, {FAST_FILE: (tmp_path / "bytes" / FAST_FILE).read_text(), SLOW: "{}"})
    refused(tmp_path, f"tokenizer_class is missing, and {name}Tokenizer makes other pieces than")


def test_herberts_class_reads_the_vocabulary_of_tokenizer_json_alone(tmp_path):
    write_architecture(tmp_path / "source", "roberta")
    model = model_of(tmp_path / "source") | {"merges": []}
    for at, letter in enumerate("abA", 1):  # in place of others, which no text here has
        model["vocab"][f"{letter}</w>"] = model["vocab"].pop(chr(0x100 + at))
    fast, slow = {"model": model, "normalizer": LOWER}, {"tokenizer_class": "HerbertTokenizerFast"}
    change(tmp_path / "source", {FAST_FILE: fast, SLOW: slow})
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "source" / FAST_FILE))
    library.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    library.model.end_of_word_suffix, library.model.unk_token = "</w>", "<unk>"
    library.post_processor = tokenizers.processors.BertProcessing(("</s>", 2), ("<s>", 0))
    text = "a b A, ab"
    found = load_tokenizer(imported(tmp_path)).encode(text)
    assert found == library.encode(text).ids


def test_herberts_class_knows_its_ends_by_their_ids(tmp_path):
    write_architecture(tmp_path / "source", "roberta")
    slow = {"tokenizer_class": "HerbertTokenizer", "sep_token": "<unk>"}
    change(tmp_path / "source", {SLOW: slow})
    refused(tmp_path, "sep_token is '<unk>' by .* class, rows would have '</s>'")


@pytest.mark.parametrize("name", [None, "BertTokenizer", "RobertaTokenizerFast"])
def test_word_pieces_of_modernbert_are_those_of_tokenizer_json(tmp_path, name):
    """As the transformers library does, which reads no class of this model."""
    source = tmp_path / "source"
    write_architecture(source, "modernbert")
    write_fast(source, max_word=100, normalizer=None, **PLAIN)
    change(source, {SLOW: json.dumps({"tokenizer_class": name})})
    library = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer = load_tokenizer(imported(tmp_path))
    for text in ("The bank", "bánk"):
        assert tokenizer.encode(text) == library.encode(text).ids


def test_berts_tokenizer_of_mpnet_puts_its_own_tokens_around_texts(tmp_path):
    source = tmp_path / "source"
    write_architecture(source, "mpnet")
    vocabulary = ["[UNK]", "[PAD]", *small_vocabulary()[2:]]  # no position is of id 1
    slow = json.dumps({"tokenizer_class": "BertTokenizer"})
    change(source, {"vocab.txt": "\n".join(vocabulary), FAST_FILE: None, SLOW: slow})
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.tokens(tokenizer.encode("bank")) == ["[CLS]", "bank", "[SEP]"]


def test_ends_of_texts_that_are_no_entries_are_refused(tmp_path):
    """The transformers library gives them ids behind the table of words."""
    source = tmp_path / "source"
    write_architecture(source, "mpnet")
    write_fast(source, ["<s>", "<pad>", "[UNK]", "a"], **PLAIN)
    change(source, {"vocab.txt": None, SLOW: '{"tokenize_chinese_chars": false}'})
    refused(tmp_path, "sep_token is '</s>' by .* class, rows would have '<s>' there")


def test_robertas_class_has_no_unknown_entry(tmp_path):
    """What its vocabulary cannot write is left out, whatever tokenizer.json says."""
    write_architecture(tmp_path / "source", "roberta")
    model = model_of(tmp_path / "source")
    del model["vocab"]["!"]
    model["vocab"]["never"] = len(model["vocab"])
    merges = [pair for pair in model["merges"] if "!" not in "".join(pair)]
    model |= {"merges": merges, "unk_token": "<unk>"}
    change(tmp_path / "source", {FAST_FILE: {"model": model}})
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("the! bank") == tokenizer.encode("the bank")


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("roberta", {"dropout": 0.5}, "dropout must be null"),
        ("roberta", {"continuing_subword_prefix": "##"}, r"of merges\[0\] must begin with"),
        ("roberta", {"continuing_subword_prefix": "##", "merges": [7]}, "cannot be read"),
        ("xlm-roberta", {"unk_id": None}, "unk_id must be the id of an entry"),
        ("xlm-roberta", {"unk_id": ...}, "unk_id must be the id of an entry"),  # no such key
    ],
)
def test_pieces_that_are_drawn_or_missing_are_refused(tmp_path, kind, setting, message):
    write_architecture(tmp_path / "source", kind)
    model = model_of(tmp_path / "source") | setting
    model = {name: value for name, value in model.items() if value is not ...}
    slow = {"tokenizer_class": "TokenizersBackend"}
    change(tmp_path / "source", {FAST_FILE: {"model": model}, SLOW: slow})
    refused(tmp_path, message)


@pytest.mark.parametrize(
    ("kind", "number"), [("xlm-roberta", 0), ("camembert", 0), ("camembert", None)]
)
def test_an_unknown_entry_that_transformers_class_does_not_take_is_refused(tmp_path, kind, number):
    write_architecture(tmp_path / "source", kind)
    model = model_of(tmp_path / "source") | {"unk_id": number}
    change(tmp_path / "source", {FAST_FILE: {"model": model}})
    refused(tmp_path, r"tokenizer\.json: unk_id must be 3, which \w+ takes whatever it says, got")


def test_white_space_behind_an_entry_of_vocab_txt_is_none_of_it(tmp_path):
    """As for google-research and the tokenizers library."""
    write_tiny_huggingface(tmp_path / "source")
    spaced = {"vocab.txt": lambda data: data.replace(b"\nbank\n", b"\nbank \t\r\n")}
    change(tmp_path / "source", spaced)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("the bank")[2] == small_vocabulary().index("bank")


def test_blank_lines_at_the_end_of_vocab_txt_are_no_entries(tmp_path):
    write_tiny_google(tmp_path / "uncased_L-2_H-32_A-4")
    for name in ("uncased_L-2_H-32_A-4", "huggingface"):
        plain = import_model(str(tmp_path / name), str(tmp_path / "plain" / name))
        change(tmp_path / name, {"vocab.txt": lambda data: data + b"\n \n"})
        bundle = import_model(str(tmp_path / name), str(tmp_path / "bundle" / name))
        assert bundle.fingerprint == plain.fingerprint
