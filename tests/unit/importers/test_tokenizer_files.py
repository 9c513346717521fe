"""Tokenizer files of Hugging Face folders: which tokenizer they make, and what is refused."""

import json

import pytest
import tokenizers

from bert_embed.bundle.bundle import read_bundle
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, imported, refused
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.models.tiny import BERT_NORMALIZER, small_vocabulary, write_tiny_huggingface


def template(single="[CLS] $A [SEP]"):
    """A post-processor as save_pretrained writes it."""
    special = [("[CLS]", 2), ("[SEP]", 3), ("[UNK]", 1)]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    made = tokenizers.processors.TemplateProcessing(single, pair, special)
    return json.loads(made.__getstate__())


FLAGS = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
OF_TEXTS, SPECIAL = FLAGS | {"normalized": True}, FLAGS | {"special": True}
FAST = {
    "added_tokens": [{"id": 0, "content": "[PAD]", **SPECIAL | {"normalized": True}}],
    "normalizer": BERT_NORMALIZER,
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": template(),
}
PLAIN: dict = {"added_tokens": []}
PROCESSOR = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
OUTSIDE = PROCESSOR | {"sep": ["[SEP]", 999]}
TOKEN = {"content": "covid19", "normalized": True, "special": False}
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

VOCABULARY = small_vocabulary()
SWAPPED = [*VOCABULARY[:7], VOCABULARY[8], VOCABULARY[7], *VOCABULARY[9:]]
GAP = {entry: number for number, entry in enumerate(VOCABULARY) if entry != "bank"}
BROKEN = [*VOCABULARY[:20], "a\nb", *VOCABULARY[21:]]
FAR = {"[UNK]": 0, "a": 4 * 10**9}  # with an entry for each id, 32 GB


def fast_of(vocab=VOCABULARY, max_word=None, **parts):
    """The contents of a tokenizer.json."""
    longest = {"max_input_chars_per_word": max_word} if max_word else {}
    model = MODEL | longest | {"vocab": {entry: number for number, entry in enumerate(vocab)}}
    return FAST | {"model": model} | parts


def fast_alone(*vocab, **parts):
    return {FAST_FILE: fast_of(*vocab, **parts), "vocab.txt": None}


def model_of(source):
    return json.loads((source / FAST_FILE).read_text())["model"]


def test_the_vocabulary_of_tokenizer_json_is_that_of_vocab_txt(tmp_path, tiny_bundle):
    write_tiny_huggingface(tmp_path / "source")
    names = ["input_ids", "token_type_ids", "attention_mask"]
    slow = {"tokenizer_class": "TokenizersBackend", "model_input_names": names}
    bundle = imported(tmp_path, files=fast_alone(max_word=100) | {SLOW: slow})
    assert bundle.fingerprint == read_bundle(tiny_bundle).fingerprint
    assert load_tokenizer(bundle).vocab == tuple(VOCABULARY)


def test_ids_of_a_hub_model_are_those_of_its_own_library(tmp_path):
    """google-research's rules make [UNK] of the word that a bullet of a PDF touches.

    Blank lines at the end of vocab.txt, and white space behind an entry, are none of it.
    """
    write_tiny_huggingface(tmp_path / "source")
    plain = imported(tmp_path, "plain")
    spaced = {"vocab.txt": lambda data: data.replace(b"\nbank\n", b"\nbank \t\r\n") + b"\n \n"}
    bundle = imported(tmp_path, files=spaced)
    assert bundle.fingerprint == plain.fingerprint
    tokenizer = load_tokenizer(bundle)
    assert tokenizer.encode("\uf0b7 the\uf0b7 bank") == tokenizer.encode("the bank")
    assert tokenizer.encode("bank")[1] == VOCABULARY.index("bank")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "fast", "wanted"),
    [
        ({}, None, (True, 100)),
        ({"do_lower_case": False}, True, (False, 100)),
        ({}, False, (True, 100)),
        ({"tokenizer_class": "BertTokenizerFast"}, False, (True, 100)),
        (GENERIC | {"do_lower_case": True}, False, (False, 50)),
    ],
)
def test_casing_and_longest_word_are_those_of_the_class(tmp_path, slow, fast, wanted):
    """BERT's of transformers lowers unless it says no; a generic one takes tokenizer.json's."""
    write_tiny_huggingface(tmp_path / "source")
    files = {SLOW: json.dumps(slow)}
    if fast is not None:
        files[FAST_FILE] = fast_of(max_word=50, normalizer=BERT_NORMALIZER | {"lowercase": fast})
    settings = imported(tmp_path, files=files).tokenizer_settings
    assert (settings["lower_case"], settings["max_word_chars"]) == wanted


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({FAST_FILE: fast_of(SWAPPED)}, r"vocab\.txt and tokenizer\.json differ at id 7"),
        (fast_alone(model=MODEL | {"vocab": GAP}), "ids from 0 on, has 210, the last is 210"),
        (fast_alone([*VOCABULARY, "new"]), "at most 211 entries as config.json says, .*has 212"),
        # vocab.txt, which the bundle keeps, would have an entry more, and all ids behind it shift.
        (fast_alone(BROKEN), r"tokenizer\.json: entry 20 holds a line break"),
        ({"vocab.txt": "<s>\n</s>\n[UNK]\na"}, r"the vocabulary lacks \[CLS\], \[SEP\]"),
        ({FAST_FILE: fast_of(normalizer=[1])}, "normalizer must be an object, got a list"),
        ({FAST_FILE: fast_of(added_tokens=1)}, "added_tokens must be a list, got 1"),
        *[
            ({FAST_FILE: fast_of(added_tokens=[{"id": number, "content": content}])}, "annot be re")
            for number, content in (("0", "[PAD]"), (-1, "##ed"))
        ],
        *[
            ({FAST_FILE: fast_of(model=MODEL | {"vocab": vocab}, **PLAIN)}, message)
            for vocab, message in (
                (["a"], "vocab must be an object, got a list"),
                ({"a": -1}, "the id of 'a' must be a whole number"),
            )
        ],
        *[({name: ""}, f"{name}: only tokenizer.json is read of such") for name in OTHER_FILES],
        *[
            ({file: {"tokenizer_class": name}}, f"must be BertTokenizer, got {name}; take a model")
            for name in ("XLMRobertaTokenizer", "RobertaTokenizerFast", "BertJapaneseTokenizer")
            for file in (SLOW, "config.json")
        ],
        ({SLOW: {"added_tokens_decoder": {"211": TOKEN}}}, "at most 211 entries as config.json"),
        *[
            ({SLOW: changes}, f"{SLOW}: {message}")
            for changes, message in (
                ({"cls_token": "<s>"}, "cls_token must be an entry of the vocabulary, got '<s>'"),
                ({"sep_token": {"content": "</s>"}}, "sep_token must be an entry of the vocabul"),
                ({"sep_token": ["[SEP]"]}, r"sep_token must be a token, got \['"),
                ({"extra_special_tokens": "x"}, ".*_tokens must be a list of tokens, got 'x'"),
                ({"do_basic_tokenize": False}, "do_basic_tokenize must be true, is false"),
                ({"do_lower_case": "false"}, "do_lower_case must be true or false, got 'false'"),
                ({"padding_side": "left"}, "padding_side must be right"),
                ({"a_new_setting": 3}, "a_new_setting is not supported"),
                ({"added_tokens_decoder": {"211": "x"}}, ".*_decoder must map ids to objects"),
                *[
                    ({"model_max_length": length}, "model_max_length must be")
                    for length in ("16", True, -5, 0, [16])
                ],
            )
        ],
    ],
)
def test_other_tokenizers_and_their_settings_are_refused_by_name(tmp_path, files, message):
    write_tiny_huggingface(tmp_path / "source")
    refused(tmp_path, message, files)


def library_of(source):
    return tokenizers.Tokenizer.from_file(str(source / FAST_FILE))


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
        {"added_tokens": [{"id": len(VOCABULARY), "content": "<user>", **OF_TEXTS}]},
        {"added_tokens": [{"id": VOCABULARY.index("bank"), "content": "bank", **OF_TEXTS}]},
    ],
)
def test_a_word_piece_that_is_not_berts_has_the_librarys_ids(tmp_path, parts):
    model = MODEL | WHOLE | parts.get("model", {})
    names = {"[UNK]": model["unk_token"]}
    names |= {
        entry: model["continuing_subword_prefix"] + entry[2:]
        for entry in VOCABULARY
        if entry.startswith("##")
    }
    entries = [names.get(entry, entry) for entry in VOCABULARY]
    model["vocab"] = {entry: number for number, entry in enumerate(entries)}
    write_tiny_huggingface(tmp_path / "source", vocab=[*entries, "<user>"])
    own = {"post_processor": PROCESSOR, **parts, "model": model}
    fast = {"version": "1.0", **FAST, **PLAIN, **own}
    files = {FAST_FILE: fast, SLOW: json.dumps(GENERIC), "vocab.txt": None}
    bundle = imported(tmp_path, files=files)
    assert bundle.tokenizer_settings["kind"] == "WordPiece"
    assert read_bundle(bundle.path).tokenizer_file == "tokenizer.json"
    tokenizer, library = load_tokenizer(bundle), library_of(tmp_path / "source")
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
        ({"max_word": 100, "post_processor": None, **PLAIN}, ENDS),
        ({"normalizer": CHARSMAP, **PLAIN}, "cannot be read: Precompiled: "),  # the library panics
        ({"model": MODEL | WHOLE | {"unk_token": "<u>"}, **PLAIN}, "unk_token must be an entry"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}, **PLAIN}, "around texts, got id 3"),
        ({"max_word": 100, "post_processor": OUTSIDE, **PLAIN}, "around texts, got id 999"),
        ({"model": MODEL | WHOLE | {"vocab": FAR}, **PLAIN}, "below 16,777,216, got 4,000,000,000"),
        # Rows of a text have one token at each end, of type 0.
        *[
            ({"max_word": 100, "post_processor": template(single), **PLAIN}, ENDS)
            for single in (
                *("[CLS] $A", "[CLS] [UNK] $A [SEP]", "[CLS] $A [SEP] [SEP]", "[CLS]:1 $A [SEP]"),
                *("[CLS] $A:1 [SEP]", "$A [SEP]"),
            )
        ],
    ],
)
def test_another_tokenizer_json_is_refused_by_its_part(tmp_path, parts, message):
    write_tiny_huggingface(tmp_path / "source")
    files = {SLOW: GENERIC, FAST_FILE: fast_of(**parts)}
    refused(tmp_path, rf"tokenizer\.json: .*{message}", files)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("changes", [{"strip_accents": True}, {"tokenize_chinese_chars": False}])
def test_casing_that_berts_own_tokenizer_lacks_is_the_librarys(tmp_path, changes, fast):
    """BERT's classes take casing from tokenizer_config.json, whatever tokenizer.json says."""
    write_tiny_huggingface(tmp_path / "source", cased=True)
    parts = PLAIN | {"normalizer": BERT_NORMALIZER, "post_processor": PROCESSOR, "max_word": 100}
    files = {FAST_FILE: fast_of(small_vocabulary(cased=True), **parts)} if fast else {}
    tokenizer = load_tokenizer(imported(tmp_path, files=files | {SLOW: changes}))
    assert tokenizer.kind == "WordPiece"
    chinese = changes.get("tokenize_chinese_chars", True)
    assert len(tokenizer.encode("北京")) == (4 if chinese else 3)
    assert tokenizer.encode("The bánk") != tokenizer.encode("the bánk")
    assert (tokenizer.encode("bánk") == tokenizer.encode("bank")) is ("strip_accents" in changes)


@pytest.mark.parametrize(
    ("lowered", "slow", "lowers"),
    [
        (True, {"do_lower_case": True}, True),
        (False, {"do_lower_case": True}, True),
        (False, {"do_lower_case": False}, False),
        (False, {}, True),  # as transformers' BertTokenizer; false only means: not before it
        (True, {"do_lower_case": False}, None),
    ],
)
def test_lowering_of_sentence_transformers_must_change_nothing(tmp_path, lowered, slow, lowers):
    write_sentence_transformers(tmp_path / "source", cased=not lowers)
    files = {SLOW: json.dumps(slow), "sentence_bert_config.json": {"do_lower_case": lowered}}
    if lowers is None:
        message = "do_lower_case of sentence-transformers with a cased tokenizer is not supp"
        refused(tmp_path, message, files)
    else:
        assert imported(tmp_path, files=files).tokenizer_settings["lower_case"] is lowers


@pytest.mark.parametrize(("length", "wanted"), [(1e30, 64), (20, 20), (512, 64), (None, 64)])
def test_the_length_is_the_tokenizers_within_the_positions(tmp_path, length, wanted):
    write_tiny_huggingface(tmp_path / "source")
    assert imported(tmp_path, files={SLOW: {"model_max_length": length}}).max_seq_length == wanted


@pytest.mark.parametrize("place", ["added_tokens.json", SLOW])
@pytest.mark.parametrize("kind", ["usual", "special", "single_word"])
def test_added_tokens_of_every_file_are_tokens(tmp_path, place, kind):
    """A special one in a text is text; one may be a whole word alone."""
    number = len(VOCABULARY)
    write_tiny_huggingface(tmp_path / "source", vocab=[*VOCABULARY, "covid19"])
    files = {"vocab.txt": "\n".join(VOCABULARY)}
    if place == SLOW:
        files[SLOW] = {"added_tokens_decoder": {str(number): TOKEN | {kind: True}}}
    else:
        names = {"additional_special_tokens": ["covid19"] if kind == "special" else []}
        files |= {place: {"covid19": number}, "special_tokens_map.json": names}
    tokenizer = load_tokenizer(imported(tmp_path, files=files))
    assert (number in tokenizer.encode("the COVID19, bank")) is (kind != "special")
    is_part = kind == "usual" or (kind, place) == ("single_word", "added_tokens.json")
    assert (number in tokenizer.encode("xcovid19x")) is is_part


def test_the_flags_of_an_added_token_are_those_of_tokenizer_config(tmp_path):
    """As transformers takes them, whatever tokenizer.json says of the same token."""
    source = tmp_path / "source"
    write_architecture(source, "roberta")
    values = json.loads((source / FAST_FILE).read_text())
    number = values["model"]["vocab"]["a"]
    token = {"content": "a", **FLAGS}
    slow = {"added_tokens_decoder": {str(number): token | {"lstrip": True, "rstrip": True}}}
    fast = {"added_tokens": [*values["added_tokens"], {"id": number, **token}]}
    tokenizer = load_tokenizer(imported(tmp_path, files={FAST_FILE: fast, SLOW: slow}))
    assert tokenizer.encode("the a bank") == tokenizer.encode("theabank")


@pytest.mark.parametrize(("slow", "fast"), [(True, False), (False, True), (None, True)])
def test_add_prefix_space_is_that_of_tokenizer_config(tmp_path, slow, fast):
    """As transformers' class does, which takes false where it is not named."""
    write_architecture(tmp_path / "source", "roberta")
    said = {} if slow is None else {"add_prefix_space": slow}
    pre_tokenizer = {"pre_tokenizer": BYTES | {"add_prefix_space": fast}}
    tokenizer = load_tokenizer(imported(tmp_path, files={SLOW: said, FAST_FILE: pre_tokenizer}))
    same = tokenizer.encode("the bank") == tokenizer.encode(" the bank")
    assert same is bool(slow)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
@pytest.mark.parametrize("padding", [None, 0, 20])
def test_padding_that_rows_hold_is_refused(tmp_path, kind, padding):
    write_architecture(tmp_path / "source", kind, pad_token_id=padding)
    refused(tmp_path, r"config\.json: pad_token_id must be")


def test_mpnet_counts_positions_as_if_its_padding_were_1(tmp_path):
    write_architecture(tmp_path / "source", "mpnet", pad_token_id=1)
    usual = imported(tmp_path, "usual")
    other = imported(tmp_path, files={"config.json": {"pad_token_id": 0}})
    assert usual.fingerprint == other.fingerprint


def test_special_tokens_of_an_older_version_win_over_those_of_tokenizer_config(tmp_path):
    """As in transformers, where tokenizer_config.json has no added_tokens_decoder."""
    write_tiny_huggingface(tmp_path / "source")
    files = {SLOW: {"cls_token": "bank"}, "special_tokens_map.json": {"cls_token": "[CLS]"}}
    for name, cls in zip(files, ("bank", "[CLS]"), strict=True):
        tokenizer = load_tokenizer(imported(tmp_path, cls, {name: files[name]}))
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
def test_transformers_classes_read_a_vocabulary_alone(tmp_path, kind, parts, usual, named):
    """Ids are those of the class, by its name or by the model; a generic class takes the file."""
    name = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}[kind]
    text, seen = " The  bank\nand THE river ", []
    source = tmp_path / "source"
    write_architecture(source, kind)
    wanted = []
    for changes in (usual, parts):
        change(source, {FAST_FILE: changes})
        wanted.append(library_of(source).encode(text).ids)
    for each in ((f"{name}TokenizerFast" if named else None), "PreTrainedTokenizerFast"):
        slow = {SLOW: json.dumps({"tokenizer_class": each})}
        seen.append(load_tokenizer(imported(tmp_path, str(each), slow)).encode(text))
    assert seen == wanted
    assert wanted[0] != wanted[1]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        *[
            ("roberta", name, f"class {name} makes other pieces than the BPE of tokenizer.json")
            for name in ("BertTokenizer", "GPT2TokenizerFast", "XLMRobertaTokenizer")
        ],
        *[
            (kind, None, f"class is missing, and {name}Tokenizer makes other pieces than")
            for kind, name in (("multilingual", "Bert"), ("electra", "Bert"), ("mpnet", "MPNet"))
        ],
    ],
)
def test_a_class_of_other_pieces_is_refused(tmp_path, kind, name, message):
    """The one of its type where a model names none."""
    write_architecture(tmp_path / "bytes", "roberta")
    write_architecture(tmp_path / "source", kind)
    slow = {} if name is None else {"tokenizer_class": name}
    fast = (tmp_path / "bytes" / FAST_FILE).read_text()
    refused(tmp_path, f"tokenizer_{message}", {FAST_FILE: fast, SLOW: json.dumps(slow)})


def test_herberts_class_reads_the_vocabulary_of_tokenizer_json_alone(tmp_path):
    write_architecture(tmp_path / "source", "roberta")
    model = model_of(tmp_path / "source") | {"merges": []}
    for at, letter in enumerate("abA", 1):  # in place of others, which no text here has
        model["vocab"][f"{letter}</w>"] = model["vocab"].pop(chr(0x100 + at))
    fast, slow = {"model": model, "normalizer": LOWER}, {"tokenizer_class": "HerbertTokenizerFast"}
    found = load_tokenizer(imported(tmp_path, files={FAST_FILE: fast, SLOW: slow}))
    library = library_of(tmp_path / "source")
    library.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    library.model.end_of_word_suffix, library.model.unk_token = "</w>", "<unk>"
    library.post_processor = tokenizers.processors.BertProcessing(("</s>", 2), ("<s>", 0))
    assert found.encode("a b A, ab") == library.encode("a b A, ab").ids


@pytest.mark.parametrize("name", [None, "BertTokenizer", "RobertaTokenizerFast"])
def test_word_pieces_of_modernbert_are_those_of_tokenizer_json(tmp_path, name):
    """As the transformers library does, which reads no class of this model.

    That of Japanese ones names a token that begins no row.
    """
    write_architecture(tmp_path / "source", "modernbert")
    fast = fast_of(max_word=100, normalizer=None, **PLAIN)
    slow = {"tokenizer_class": name, "cls_token": "[MASK]"}
    files = {FAST_FILE: json.dumps(fast), SLOW: json.dumps(slow)}
    tokenizer = load_tokenizer(imported(tmp_path, files=files))
    library = library_of(tmp_path / "source")
    for text in ("The bank", "bánk"):
        assert tokenizer.encode(text) == library.encode(text).ids


def test_berts_tokenizer_of_mpnet_puts_its_own_tokens_around_texts(tmp_path):
    write_architecture(tmp_path / "source", "mpnet")
    vocabulary = ["[UNK]", "[PAD]", *VOCABULARY[2:]]  # no position is of id 1
    slow = json.dumps({"tokenizer_class": "BertTokenizer"})
    files = {"vocab.txt": "\n".join(vocabulary), FAST_FILE: None, SLOW: slow}
    tokenizer = load_tokenizer(imported(tmp_path, files=files))
    assert tokenizer.tokens(tokenizer.encode("bank")) == ["[CLS]", "bank", "[SEP]"]


def test_ends_of_texts_that_are_not_those_of_the_class_are_refused(tmp_path):
    """The transformers library gives them ids behind the table of words."""
    write_architecture(tmp_path / "source", "mpnet")
    files = {FAST_FILE: json.dumps(fast_of(["<s>", "<pad>", "[UNK]", "a"], **PLAIN))}
    files |= {"vocab.txt": None, SLOW: '{"tokenize_chinese_chars": false}'}
    refused(tmp_path, "sep_token is '</s>' by .* class, rows would have '<s>' there", files)
    write_architecture(tmp_path / "herbert" / "source", "roberta")
    slow = {"tokenizer_class": "HerbertTokenizer", "sep_token": "<unk>"}
    message = "sep_token is '<unk>' by .* class, rows would have '</s>'"
    refused(tmp_path / "herbert", message, {SLOW: slow})


def test_robertas_class_has_no_unknown_entry(tmp_path):
    """What its vocabulary cannot write is left out, whatever tokenizer.json says."""
    write_architecture(tmp_path / "source", "roberta")
    model = model_of(tmp_path / "source")
    del model["vocab"]["!"]
    model["vocab"]["never"] = len(model["vocab"])
    merges = [pair for pair in model["merges"] if "!" not in "".join(pair)]
    model |= {"merges": merges, "unk_token": "<unk>"}
    tokenizer = load_tokenizer(imported(tmp_path, files={FAST_FILE: {"model": model}}))
    assert tokenizer.encode("the! bank") == tokenizer.encode("the bank")


TAKES = r"tokenizer\.json: unk_id must be 3, which \w+ takes whatever it says, got"


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("roberta", {"dropout": 0.5}, "dropout must be null"),
        ("roberta", {"continuing_subword_prefix": "##"}, r"of merges\[0\] must begin with"),
        ("roberta", {"continuing_subword_prefix": "##", "merges": [7]}, "cannot be read"),
        ("xlm-roberta", {"unk_id": None}, "unk_id must be the id of an entry"),
        ("xlm-roberta", {"unk_id": ...}, "unk_id must be the id of an entry"),  # no such key
        ("xlm-roberta", {"unk_id": 0}, TAKES),
        ("camembert", {"unk_id": 0}, TAKES),
        ("camembert", {"unk_id": None}, TAKES),
        ("camembert", {"vocab": [[{}, 0.0]]}, "cannot be read"),
    ],
)
def test_pieces_that_are_drawn_or_missing_are_refused(tmp_path, kind, setting, message):
    write_architecture(tmp_path / "source", kind)
    model = model_of(tmp_path / "source") | setting
    model = {name: value for name, value in model.items() if value is not ...}
    slow = {} if message == TAKES else {"tokenizer_class": "TokenizersBackend"}
    refused(tmp_path, message, {FAST_FILE: {"model": model}, SLOW: slow})


@pytest.mark.parametrize("where", ["named", "map", "decoder", "nowhere", "without a class"])
@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_special_tokens_that_tokenizer_json_does_not_list_are_special(tmp_path, kind, where):
    """As in transformers, whose classes have them; padding is theirs, for which no position is."""
    source = tmp_path / "source"
    write_architecture(source, kind)
    plain = load_tokenizer(imported(tmp_path, "plain"))
    entries = {token: plain.vocab.index(token) for token in ("<s>", "<pad>", "</s>", "<unk>")}
    slow = json.loads((source / "tokenizer_config.json").read_text())
    slow = {"tokenizer_class": slow["tokenizer_class"]} if where != "without a class" else {}
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    if where == "decoder":
        tokens = {str(number): SPECIAL | {"content": token} for token, number in entries.items()}
        slow["added_tokens_decoder"] = tokens
    slow |= names if where == "named" else {}
    files = {"special_tokens_map.json": names if where == "map" else {}}
    files |= {"tokenizer_config.json": json.dumps(slow), "tokenizer.json": {"added_tokens": []}}
    tokenizer = load_tokenizer(imported(tmp_path, files=files))
    for text in ("the bank", "a <pad> b</s><unk>"):
        assert tokenizer.encode(text) == plain.encode(text)


@pytest.mark.parametrize("where", ["tokenizer.json", "added_tokens_decoder", "added_tokens.json"])
def test_special_tokens_may_stand_behind_the_vocabulary(tmp_path, where):
    source = tmp_path / "source"
    write_architecture(source, "roberta")
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    kept = sorted(model["vocab"].keys() - {*special}, key=lambda entry: model["vocab"][entry])
    model["vocab"] = {entry: number for number, entry in enumerate(kept)}
    numbers = {token: len(kept) + number for number, token in enumerate(special)}
    tokens = [{"id": number, **SPECIAL, "content": token} for token, number in numbers.items()]
    slow, listed = {"tokenizer_class": "RobertaTokenizer"}, []
    if where == "tokenizer.json":
        listed = tokens
    elif where == "added_tokens_decoder":
        slow[where] = {str(token.pop("id")): token for token in tokens}
    files = {"tokenizer.json": {"model": model, "added_tokens": listed}}
    files |= {"added_tokens.json": numbers} if where == "added_tokens.json" else {}
    files |= {"tokenizer_config.json": json.dumps(slow)}
    files |= {"config.json": {"pad_token_id": numbers["<pad>"]}}
    tokenizer = load_tokenizer(imported(tmp_path, "behind", files))
    assert tokenizer.encode("a") == [numbers["<s>"], kept.index("a"), numbers["</s>"]]
    # transformers takes the next free ids
    files = dict.fromkeys(("tokenizer_config.json", "added_tokens.json"), "{}")
    files |= {"tokenizer.json": {"added_tokens": []}}
    refused(tmp_path, r"sep_token must be an entry .* got '</s>'; add it there", files)
