"""Tokenizer files of Hugging Face folders: which tokenizer they make, and what is refused."""

import json

import numpy as np
import pytest
import tokenizers

from bert_embed.bundle.bundle import read_bundle
from bert_embed.importers import import_model
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.architectures import write_architecture
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
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
WHOLE = {"max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1}}
MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}


def write_fast(source, vocab=None, max_word=None, **parts):
    """Writes tokenizer.json."""
    entries = small_vocabulary() if vocab is None else vocab
    longest = {"max_input_chars_per_word": max_word} if max_word else {}
    model = MODEL | longest | {"vocab": {entry: number for number, entry in enumerate(entries)}}
    (source / "tokenizer.json").write_text(json.dumps(FAST | {"model": model} | parts))


def edit_json(path, **changes):
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


def imported(folder):
    return import_huggingface(str(folder / "source"), str(folder / "bundle"))


def refused(folder, message):
    with pytest.raises(ValueError, match=message):
        imported(folder)
    assert not (folder / "bundle").exists()


def test_the_vocabulary_of_tokenizer_json_is_that_of_vocab_txt(tmp_path, tiny_bundle):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source")
    names = ["input_ids", "token_type_ids", "attention_mask"]
    slow = tmp_path / "source" / "tokenizer_config.json"
    edit_json(slow, tokenizer_class="TokenizersBackend", model_input_names=names)
    (tmp_path / "source" / "vocab.txt").unlink()
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
    write_fast(
        tmp_path / "source", [*vocabulary[:7], vocabulary[8], vocabulary[7], *vocabulary[9:]]
    )
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
    "name", ["sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "merges.txt"]
)
def test_files_of_other_tokenizers_are_refused_by_name(tmp_path, name):
    write_tiny_huggingface(tmp_path / "source")
    (tmp_path / "source" / name).write_text("")
    refused(tmp_path, rf"{name}: only tokenizer.json is read of such tokenizers; write one")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize(
    "name", ["XLMRobertaTokenizer", "RobertaTokenizerFast", "BertJapaneseTokenizer"]
)
def test_other_tokenizer_classes_are_refused_by_name(tmp_path, file, name):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / file, tokenizer_class=name)
    refused(tmp_path, rf"{file}: tokenizer_class must be BertTokenizer, got {name}; take a model")


@pytest.mark.parametrize("name", ["BertTokenizerFast", "DistilBertTokenizer", "BertTokenizer"])
def test_berts_tokenizer_classes_are_read(tmp_path, name):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer_config.json", tokenizer_class=name)
    assert imported(tmp_path).tokenizer_settings["lower_case"]


PROCESSOR = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
TOKEN = {"content": "covid19", "normalized": True, "special": False}
USUAL = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True}
RENAMED = {"[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>"}


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
    (tmp_path / "source" / "vocab.txt").unlink()
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "source" / "tokenizer_config.json").write_text(json.dumps(generic))
    path = tmp_path / "source" / "tokenizer.json"
    path.write_text(
        json.dumps({"version": "1.0", **FAST, "added_tokens": [], **parts, "model": model})
    )
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
        (
            {
                "model": MODEL | WHOLE,
                "post_processor": template() | {"special_tokens": {}},
                **PLAIN,
            },
            "post_processor cannot be followed",
        ),
        (
            {"model": MODEL | WHOLE, "normalizer": None, "post_processor": None, **PLAIN},
            "must put one token before a text",
        ),
        ({"normalizer": CHARSMAP, **PLAIN}, "cannot be read: Precompiled: "),  # the library panics
        ({"model": MODEL | WHOLE | {"unk_token": "<u>"}, **PLAIN}, "unk_token must be an entry"),
    ],
)
def test_another_tokenizer_json_is_refused_by_its_part(tmp_path, parts, message):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", **parts)
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    edit_json(tmp_path / "source" / "tokenizer_config.json", **generic)
    refused(tmp_path, rf"tokenizer\.json: .*{message}")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("changes", [{"strip_accents": True}, {"tokenize_chinese_chars": False}])
def test_casing_that_berts_own_tokenizer_lacks_is_the_librarys(tmp_path, changes, fast):
    """BERT's classes take casing from tokenizer_config.json, whatever tokenizer.json says."""
    write_tiny_huggingface(tmp_path / "source", cased=True)
    edit_json(tmp_path / "source" / "tokenizer_config.json", **changes)
    if fast:
        write_fast(
            tmp_path / "source",
            small_vocabulary(cased=True),
            max_word=100,
            post_processor=PROCESSOR,
            normalizer=FAST["normalizer"] | {"lowercase": True},
            added_tokens=[],
        )
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.kind == "WordPiece"
    chinese = changes.get("tokenize_chinese_chars", True)
    assert len(tokenizer.encode("北京")) == (4 if chinese else 3)
    assert tokenizer.encode("The bánk") != tokenizer.encode("the bánk")
    assert (tokenizer.encode("bánk") == tokenizer.encode("bank")) is ("strip_accents" in changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cls_token": "<s>"}, "cls_token must be an entry of the vocabulary, got '<s>'"),
        ({"sep_token": {"content": "</s>"}}, "sep_token must be an entry of the vocabulary, got"),
        ({"sep_token": ["[SEP]"]}, r"tokenizer_config\.json: sep_token must be a token, got \['"),
        ({"extra_special_tokens": "x"}, "extra_special_tokens must be a list of tokens, got 'x'"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be true, is false"),
        ({"do_lower_case": "false"}, "do_lower_case must be true or false, got 'false'"),
        ({"strip_accents": 1}, r"tokenizer_config\.json: strip_accents must be true or false"),
        ({"truncation_side": "left"}, r"tokenizer_config\.json: truncation_side must be right"),
        ({"padding_side": "left"}, r"tokenizer_config\.json: padding_side must be right"),
        ({"a_new_setting": 3}, "a_new_setting is not supported"),
        ({"added_tokens_decoder": {"211": "x"}}, "added_tokens_decoder must map ids to objects"),
        (
            {"added_tokens_decoder": {"211": TOKEN}},
            "at most 211 entries as config.json says, has 2",
        ),
    ],
)
def test_other_settings_of_the_tokenizer_are_refused(tmp_path, changes, message):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer_config.json", **changes)
    refused(tmp_path, message)


def test_lowering_before_a_cased_tokenizer_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source", cased=True, pooling={})
    edit_json(tmp_path / "source" / "sentence_bert_config.json", do_lower_case=True)
    refused(tmp_path, "do_lower_case of sentence-transformers with a cased tokenizer is not supp")


@pytest.mark.parametrize(("lowered", "cased"), [(True, False), (False, False), (False, True)])
def test_lowering_that_changes_nothing_is_read(tmp_path, lowered, cased):
    write_tiny_huggingface(tmp_path / "source", cased=cased, pooling={})
    edit_json(tmp_path / "source" / "sentence_bert_config.json", do_lower_case=lowered)
    assert imported(tmp_path).tokenizer_settings["lower_case"] is not cased


def test_a_tokenizer_that_says_no_casing_lowers(tmp_path):
    """As transformers' BertTokenizer; sentence-transformers' false only means: not before it."""
    write_tiny_huggingface(tmp_path / "source", pooling={})
    (tmp_path / "source" / "tokenizer_config.json").unlink()
    edit_json(tmp_path / "source" / "sentence_bert_config.json", do_lower_case=False)
    assert imported(tmp_path).tokenizer_settings["lower_case"]


@pytest.mark.parametrize(("length", "wanted"), [(1e30, 64), (20, 20), (512, 64), (None, 64)])
def test_the_length_is_the_tokenizers_within_the_positions(tmp_path, length, wanted):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer_config.json", model_max_length=length)
    assert imported(tmp_path).max_seq_length == wanted


@pytest.mark.parametrize(
    ("cased", "text", "pieces"),
    [
        (False, "The Bank", ["the", "bank"]),
        (True, "The bank", ["The", "bank"]),
        (False, "北京bank", ["北", "京", "bank"]),
    ],
    ids=["uncased", "cased", "chinese"],
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
    edit_json(tmp_path / "source" / "config.json", architectures=[architecture])
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


@pytest.mark.parametrize("length", ["16", True, -5, 0, [16]])
def test_a_length_that_is_none_is_refused(tmp_path, length):
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer_config.json", model_max_length=length)
    refused(tmp_path, r"tokenizer_config\.json: model_max_length must be")


def test_an_entry_with_a_line_break_is_refused(tmp_path):
    """vocab.txt, which the bundle keeps, would have an entry more, and all ids behind it shift."""
    vocabulary = small_vocabulary()
    vocabulary[20] = "a\nb"
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", vocabulary)
    (tmp_path / "source" / "vocab.txt").unlink()
    refused(tmp_path, r"tokenizer\.json: entry 20 holds a line break")


@pytest.mark.parametrize("place", ["added_tokens.json", "tokenizer_config.json"])
@pytest.mark.parametrize("special", [False, True])
def test_added_tokens_of_every_file_are_tokens(tmp_path, place, special):
    """A special one in a text is text."""
    entries = small_vocabulary()
    write_tiny_huggingface(tmp_path / "source", vocab=[*entries, "covid19"])
    (tmp_path / "source" / "vocab.txt").write_text("\n".join(entries), "utf-8")
    number = len(entries)
    if place == "added_tokens.json":
        edit_json(tmp_path / "source" / place, covid19=number)
        names = {"additional_special_tokens": ["covid19"] if special else []}
        edit_json(tmp_path / "source" / "special_tokens_map.json", **names)
    else:
        token = TOKEN | {"special": special}
        changes = {"added_tokens_decoder": {str(number): token}}
        edit_json(tmp_path / "source" / place, **changes)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert (number in tokenizer.encode("the COVID19, bank")) is not special
    assert (number in tokenizer.encode("xcovid19x")) is not special


def test_an_added_token_may_be_a_whole_word_alone(tmp_path):
    entries = small_vocabulary()
    write_tiny_huggingface(tmp_path / "source", vocab=[*entries, "covid19"])
    (tmp_path / "source" / "vocab.txt").write_text("\n".join(entries), "utf-8")
    token = TOKEN | {"single_word": True}
    changes = {"added_tokens_decoder": {str(len(entries)): token}}
    edit_json(tmp_path / "source" / "tokenizer_config.json", **changes)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert len(entries) in tokenizer.encode("the covid19 bank")
    assert len(entries) not in tokenizer.encode("xcovid19x")


def test_the_flags_of_an_added_token_are_those_of_tokenizer_config(tmp_path):
    """As transformers takes them, whatever tokenizer.json says of the same token."""
    write_architecture(tmp_path / "source", "roberta")
    path = tmp_path / "source" / "tokenizer.json"
    values = json.loads(path.read_text())
    number = values["model"]["vocab"]["a"]
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    token = {"content": "a", **flags}
    edit_json(path, added_tokens=[*values["added_tokens"], {"id": number, **token}])
    changes = {"added_tokens_decoder": {str(number): token | {"lstrip": True, "rstrip": True}}}
    edit_json(tmp_path / "source" / "tokenizer_config.json", **changes)
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("the a bank") == tokenizer.encode("theabank")


def test_a_generic_tokenizer_that_puts_nothing_around_texts_is_refused(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", max_word=100, post_processor=None, added_tokens=[])
    edit_json(tmp_path / "source" / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    refused(tmp_path, r"tokenizer\.json: must put one token before a text, and one after it")


@pytest.mark.parametrize(("slow", "fast"), [(True, False), (False, True), (None, True)])
def test_add_prefix_space_is_that_of_tokenizer_config(tmp_path, slow, fast):
    """As transformers' class does, which takes false where it is not named."""
    write_architecture(tmp_path / "source", "roberta")
    changes = {} if slow is None else {"add_prefix_space": slow}
    edit_json(tmp_path / "source" / "tokenizer_config.json", **changes)
    path = tmp_path / "source" / "tokenizer.json"
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    edit_json(path, pre_tokenizer=byte_level | {"add_prefix_space": fast})
    tokenizer = load_tokenizer(imported(tmp_path))
    same = tokenizer.encode("the bank") == tokenizer.encode(" the bank")
    assert same is bool(slow)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
@pytest.mark.parametrize("padding", [None, 0, 2, 20])
def test_padding_that_rows_hold_is_refused(tmp_path, kind, padding):
    write_architecture(tmp_path / "source", kind, pad_token_id=padding)
    refused(tmp_path, r"config\.json: pad_token_id must be")


def test_mpnet_counts_positions_as_if_its_padding_were_1(tmp_path):
    write_architecture(tmp_path / "usual" / "source", "mpnet")
    write_architecture(tmp_path / "other" / "source", "mpnet", pad_token_id=0)
    fingerprints = {imported(tmp_path / name).fingerprint for name in ("usual", "other")}
    assert len(fingerprints) == 1


@pytest.mark.parametrize(
    "processor",
    [
        template(single="[CLS] A"),
        template(single="[CLS] [UNK] A [SEP]"),
        template(single="[CLS] A [SEP] [SEP]"),
        template(single="[CLS].1 A [SEP]"),
        template(single="[CLS] A.1 [SEP]"),
        template(single="A [SEP]"),
    ],
    ids=["no end", "more", "twice", "type", "text type", "no begin"],
)
def test_rows_of_a_text_without_one_token_at_each_end_are_refused(tmp_path, processor):
    write_tiny_huggingface(tmp_path / "source")
    write_fast(tmp_path / "source", max_word=100, post_processor=processor, added_tokens=[])
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    edit_json(tmp_path / "source" / "tokenizer_config.json", **generic)
    refused(tmp_path, r"tokenizer\.json: must put one token before a text, and one after it")


def test_special_tokens_of_an_older_version_win_over_those_of_tokenizer_config(tmp_path):
    """As in transformers, where tokenizer_config.json has no added_tokens_decoder."""
    write_tiny_huggingface(tmp_path / "source")
    edit_json(tmp_path / "source" / "tokenizer_config.json", cls_token="bank")
    first = load_tokenizer(import_huggingface(str(tmp_path / "source"), str(tmp_path / "one")))
    edit_json(tmp_path / "source" / "special_tokens_map.json", cls_token="[CLS]")
    then = load_tokenizer(import_huggingface(str(tmp_path / "source"), str(tmp_path / "two")))
    assert [first.vocab[first.cls_id], then.vocab[then.cls_id]] == ["bank", "[CLS]"]


LOWER = {"type": "Lowercase"}
META = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
SPLIT = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, META]}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


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
    path = source / "tokenizer.json"
    edit_json(path, **usual)
    right = tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
    edit_json(path, **parts)
    as_it_is = tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
    for each in ((f"{name}TokenizerFast" if named else None), "PreTrainedTokenizerFast"):
        (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": each}))
        bundle = import_huggingface(str(source), str(tmp_path / str(each)))
        seen.append(load_tokenizer(bundle).encode(text))
    assert seen == [right, as_it_is]
    assert right != as_it_is


@pytest.mark.parametrize("name", ["BertTokenizer", "GPT2TokenizerFast", "XLMRobertaTokenizer"])
def test_a_class_of_other_pieces_is_refused(tmp_path, name):
    write_architecture(tmp_path / "source", "roberta")
    edit_json(tmp_path / "source" / "tokenizer_config.json", tokenizer_class=name)
    refused(tmp_path, f"tokenizer_class {name} makes other pieces than the BPE of tokenizer.json")


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("bert", "Bert"), ("electra", "Bert"), ("nomic_bert", "Bert"), ("mpnet", "MPNet")],
)
def test_a_model_that_names_no_class_has_that_of_its_type(tmp_path, model_type, name):
    write_architecture(tmp_path / "bytes", "roberta")
    source = tmp_path / "source"
    write_architecture(source, "multilingual" if model_type == "bert" else model_type)
    (source / "tokenizer.json").write_text((tmp_path / "bytes" / "tokenizer.json").read_text())
    (source / "tokenizer_config.json").write_text("{}")
    refused(tmp_path, f"tokenizer_class is missing, and {name}Tokenizer makes other pieces than")


def test_herberts_class_reads_the_vocabulary_of_tokenizer_json_alone(tmp_path):
    write_architecture(tmp_path / "source", "roberta")
    path = tmp_path / "source" / "tokenizer.json"
    model = json.loads(path.read_text())["model"]
    for at, letter in enumerate("abA", 1):  # in place of others, which no text here has
        model["vocab"][f"{letter}</w>"] = model["vocab"].pop(chr(0x100 + at))
    edit_json(path, model=model | {"merges": []}, normalizer=LOWER)
    edit_json(tmp_path / "source" / "tokenizer_config.json", tokenizer_class="HerbertTokenizerFast")
    library = tokenizers.Tokenizer.from_file(str(path))
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
    edit_json(tmp_path / "source" / "tokenizer_config.json", **slow)
    refused(tmp_path, "sep_token is '<unk>' by .* class, rows would have '</s>'")


@pytest.mark.parametrize("name", [None, "BertTokenizer", "RobertaTokenizerFast"])
def test_word_pieces_of_modernbert_are_those_of_tokenizer_json(tmp_path, name):
    """As the transformers library does, which reads no class of this model."""
    source = tmp_path / "source"
    write_architecture(source, "modernbert")
    write_fast(source, max_word=100, normalizer=None, **PLAIN)
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    library = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer = load_tokenizer(imported(tmp_path))
    for text in ("The bank", "bánk"):
        assert tokenizer.encode(text) == library.encode(text).ids


def test_berts_tokenizer_of_mpnet_puts_its_own_tokens_around_texts(tmp_path):
    source = tmp_path / "source"
    write_architecture(source, "mpnet")
    vocabulary = ["[UNK]", "[PAD]", *small_vocabulary()[2:]]  # no position is of id 1
    (source / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
    (source / "tokenizer.json").unlink()
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.tokens(tokenizer.encode("bank")) == ["[CLS]", "bank", "[SEP]"]


def test_ends_of_texts_that_are_no_entries_are_refused(tmp_path):
    """The transformers library gives them ids behind the table of words."""
    source = tmp_path / "source"
    write_architecture(source, "mpnet")
    write_fast(source, ["<s>", "<pad>", "[UNK]", "a"], **PLAIN)
    (source / "vocab.txt").unlink()
    (source / "tokenizer_config.json").write_text('{"tokenize_chinese_chars": false}')
    refused(tmp_path, "sep_token is '</s>' by .* class, rows would have '<s>' there")


def test_robertas_class_has_no_unknown_entry(tmp_path):
    """What its vocabulary cannot write is left out, whatever tokenizer.json says."""
    write_architecture(tmp_path / "source", "roberta")
    path = tmp_path / "source" / "tokenizer.json"
    model = json.loads(path.read_text())["model"]
    del model["vocab"]["!"]
    model["vocab"]["never"] = len(model["vocab"])
    merges = [pair for pair in model["merges"] if "!" not in "".join(pair)]
    edit_json(path, model=model | {"merges": merges, "unk_token": "<unk>"})
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
    path = tmp_path / "source" / "tokenizer.json"
    model = json.loads(path.read_text())["model"] | setting
    edit_json(path, model={name: value for name, value in model.items() if value is not ...})
    edit_json(tmp_path / "source" / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    refused(tmp_path, message)


@pytest.mark.parametrize(
    ("kind", "number"), [("xlm-roberta", 0), ("camembert", 0), ("camembert", None)]
)
def test_an_unknown_entry_that_transformers_class_does_not_take_is_refused(tmp_path, kind, number):
    write_architecture(tmp_path / "source", kind)
    path = tmp_path / "source" / "tokenizer.json"
    edit_json(path, model=json.loads(path.read_text())["model"] | {"unk_id": number})
    refused(tmp_path, r"tokenizer\.json: unk_id must be 3, which \w+ takes whatever it says, got")


def test_white_space_behind_an_entry_of_vocab_txt_is_none_of_it(tmp_path):
    """As for google-research and the tokenizers library."""
    write_tiny_huggingface(tmp_path / "source")
    path = tmp_path / "source" / "vocab.txt"
    path.write_bytes(path.read_bytes().replace(b"\nbank\n", b"\nbank \t\r\n"))
    tokenizer = load_tokenizer(imported(tmp_path))
    assert tokenizer.encode("the bank")[2] == small_vocabulary().index("bank")


def test_blank_lines_at_the_end_of_vocab_txt_are_no_entries(tmp_path):
    write_tiny_google(tmp_path / "uncased_L-2_H-32_A-4")
    for name in ("uncased_L-2_H-32_A-4", "huggingface"):
        plain = import_model(str(tmp_path / name), str(tmp_path / "plain" / name))
        with (tmp_path / name / "vocab.txt").open("a") as file:
            file.write("\n \n")
        bundle = import_model(str(tmp_path / name), str(tmp_path / "bundle" / name))
        assert bundle.fingerprint == plain.fingerprint
