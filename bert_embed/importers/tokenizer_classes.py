"""Changes a tokenizer.json as the class of transformers does that reads only parts of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import VOCABULARY
from bert_embed.importers.tokenizer_settings import (
    CONFIG,
    FAST,
    GENERIC,
    LISTED,
    MAX_WORD_CHARS,
    NAMED,
    OF_LIBRARY,
    SLOW,
    WORD_PIECE,
    TokenizerFiles,
    content,
    listed,
    read_entries,
)
from bert_embed.importers.weights import object_in, optional_object
from bert_embed.text.json_tokenizer import library_errors

_ADDED = "added_tokens.json"
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
_BERTS = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer")
_BYTE_LEVEL = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer")
_METASPACE = ("XLMRobertaTokenizer", "CamembertTokenizer")
_HERBERT = "HerbertTokenizer"
# Of RoBERTa's classes, where the files name no other tokens.
_USUAL = {
    **{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>"},
    **{"pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>"},
}
# That of a model whose files name none.
_BY_MODEL = {
    **dict.fromkeys(("bert", "distilbert", "electra", "nomic_bert"), "BertTokenizer"),
    **dict.fromkeys(("xlm-roberta", "gte"), "XLMRobertaTokenizer"),
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "camembert": "CamembertTokenizer",
}
_AS_THEY_ARE = ("", "PreTrainedTokenizer")
_OTHER_FILES = (
    *("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model", "merges.txt"),
)
_OFF = ("byte_fallback", "fuse_unk", "ignore_merges")  # of a model of these classes
# What puts special tokens around a text, beside templates, by the tokens.
PROCESSORS = {"bert": "BertProcessing", "mpnet": "RobertaProcessing"}


def as_loaded(files: TokenizerFiles) -> TokenizerFiles:
    """Returns the files with the tokenizer.json that their class in transformers makes of them."""
    if files.kind == WORD_PIECE:
        _refuse_other_tokenizers(files)
    if files.kind == WORD_PIECE and not files.as_it_is:
        files = replace(files, fast=_as_bert(files))
    elif files.kind in OF_LIBRARY:
        files = replace(files, fast=_as_class(files))
    files.check_merges()
    return replace(files, fast=_with_added_tokens(files))


def _refuse_other_tokenizers(files: TokenizerFiles) -> None:
    for name in _OTHER_FILES:
        if (files.folder / name).is_file():
            raise files.error(
                name,
                f"only {FAST} is read of such tokenizers; write one with "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers",
            )
    for name, values in ((SLOW, files.slow), (CONFIG, files.config)):
        kind = values.get("tokenizer_class")
        plain = str(kind).removesuffix("Fast")
        generic = kind in GENERIC and files.fast
        if kind is None or plain in _BERTS or generic or files.as_it_is:
            continue
        raise files.error(
            name,
            f"tokenizer_class must be BertTokenizer, got {kind}; take a model whose tokenizer is "
            "BERT's",
        )
    if files.slow.get("do_basic_tokenize") is False:
        raise files.error(SLOW, "do_basic_tokenize must be true, is false")


def _as_bert(files: TokenizerFiles) -> Mapping[str, Any]:
    """Returns what BERT's classes make: of tokenizer.json they read the vocabulary alone."""
    slow = files.slow
    for name in ("normalizer", "pre_tokenizer", "post_processor"):
        files.part(name)  # must be objects
    if not (vocab := files.vocab):
        entries = read_entries(files.folder / VOCABULARY, files.config["vocab_size"])
        vocab = {entry: number for number, entry in enumerate(entries)}
    placed = files.usual_tokens
    for name in placed:
        if (token := files.named(name)) is not None:
            if token not in vocab:
                raise _no_entry(files, name, token)
            placed[name] = token
    begin, end, unknown = placed.values()
    ends = {"sep": [end, vocab.get(end, 0)], "cls": [begin, vocab.get(begin, 0)]}
    trims = {"trim_offsets": True, "add_prefix_space": False} if files.special == "mpnet" else {}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": files.added_tokens,
        "normalizer": _bert_normalizer(
            slow.get("tokenize_chinese_chars") is not False,
            slow.get("strip_accents"),
            slow.get("do_lower_case") is not False,
        ),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": PROCESSORS[files.special], **ends, **trims},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": WORD_PIECE,
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD_CHARS,
            "vocab": vocab,
        },
    }


def _bert_normalizer(chinese: bool, accents: bool | None, lowercase: bool) -> dict[str, Any]:
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": chinese,
        "strip_accents": accents,
        "lowercase": lowercase,
    }


def _as_class(files: TokenizerFiles) -> Mapping[str, Any]:
    """Returns what transformers' class makes: of tokenizer.json it reads the vocabulary alone."""
    kind, name = files.class_name, _class_of(files)
    if name in _AS_THEY_ARE or files.as_it_is:
        return files.fast
    if (files.kind, name) == ("Unigram", "BertTokenizer"):
        # So says paraphrase-multilingual-MiniLM-L12-v2. WordPieces of such a vocabulary know no
        # word; the file is what its vectors were made with.
        return files.fast
    if name not in {"BPE": (*_BYTE_LEVEL, _HERBERT), "Unigram": _METASPACE}[files.kind]:
        raise files.error(
            SLOW,
            f"tokenizer_class {kind or f'is missing, and {name}'} makes other pieces than the "
            f"{files.kind} of {FAST}; write PreTrainedTokenizerFast there if that file is right",
        )
    prefix = files.slow.get("add_prefix_space", name in _METASPACE)
    if not isinstance(prefix, bool):
        raise files.error(SLOW, f"add_prefix_space must be true or false, got {prefix!r}")
    if name == _HERBERT:
        parts = _herbert(files)
    else:
        parts = _byte_level(files, prefix) if files.kind == "BPE" else _metaspace(files, prefix)
    model = {**files.part("model")}
    if files.kind == "Unigram":
        unknown = 3 if name == "XLMRobertaTokenizer" else _entry(files, "unk_token", "<unk>")[1]
        if model.get("unk_id") != unknown:
            raise files.error(
                FAST,
                f"unk_id must be {unknown}, which {name} takes whatever it says, got "
                f"{model.get('unk_id')!r}; write PreTrainedTokenizerFast as tokenizer_class into "
                f"{SLOW} if that file is right",
            )
    unset = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "unk_token")
    for setting in (*unset, *_OFF):
        if model.get(setting):
            model[setting] = False if setting in _OFF else None
    if name == _HERBERT:
        named, _ = _entry(files, "unk_token", "<unk>")
        model |= {"end_of_word_suffix": "</w>", "unk_token": named}
    if _canonical(files, parts) != _canonical(files, files.fast):
        return {**files.fast, **parts, "model": model}
    return {**files.fast, "model": model}


def _class_of(files: TokenizerFiles) -> str:
    """Returns the class that the files name, else that of the model."""
    named = files.class_name.removesuffix("Fast")
    return named or _BY_MODEL.get(files.config["model_type"], "")


def _herbert(files: TokenizerFiles) -> dict[str, Any]:
    ends = {name: [token, {"cls": 0, "sep": 2}[name]] for name, (token, _) in _ends(files).items()}
    return {
        "normalizer": _bert_normalizer(chinese=True, accents=False, lowercase=False),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **ends},  # whatever ids the tokens have
    }


def _byte_level(files: TokenizerFiles, prefix: bool) -> dict[str, Any]:
    trims = {"add_prefix_space": prefix, "trim_offsets": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **trims, "use_regex": True},
        "post_processor": {"type": "RobertaProcessing", **_ends(files), **trims},
    }


def _ends(files: TokenizerFiles) -> dict[str, list[Any]]:
    """Returns the tokens around a text, each with its id."""
    ends = (("sep", "sep_token", "</s>"), ("cls", "cls_token", "<s>"))
    return {end: list(_entry(files, name, usual)) for end, name, usual in ends}


def _metaspace(files: TokenizerFiles, prefix: bool) -> dict[str, Any]:
    theirs = files.part("normalizer")
    every = theirs.get("normalizers") or () if theirs.get("type") == "Sequence" else [theirs]
    charsmaps = (part for part in every if part.get("type") == "Precompiled")
    (begin, first), (end, last) = (
        _entry(files, name, usual) for name, usual in (("bos_token", "<s>"), ("eos_token", "</s>"))
    )
    one = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]
    ends = {begin: first, end: last}
    special: dict[str, Any] = {
        name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ends.items()
    }
    opens, closes = ({"SpecialToken": {"id": name, "type_id": 0}} for name in (begin, end))
    return {
        "normalizer": next(charsmaps, None),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {
                    "type": "Metaspace",
                    "replacement": "▁",
                    "prepend_scheme": "always" if prefix else "never",
                    "split": True,
                },
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [opens, one[0], closes],
            "pair": [opens, one[0], closes, closes, one[1], closes],
            "special_tokens": special,
        },
    }


def _entry(files: TokenizerFiles, name: str, usual: str) -> tuple[str, int]:
    """Returns a special token that tokenizer_config.json names, and its id."""
    token, numbers = files.named(name) or usual, _numbers(files)
    tokens = (*files.added_tokens, *_added_tokens(files).values())
    added = {one["content"]: one["id"] for one in tokens if "id" in one}
    number = numbers.get(token, added.get(token))
    # Added ones stand behind the vocabulary; another id that files name the library would change.
    if type(number) is not int or (token not in numbers and number < len(numbers)):
        raise _no_entry(files, name, token)
    return token, number


def _numbers(files: TokenizerFiles) -> Mapping[Any, int]:
    """Returns the ids of the model's own entries."""
    vocab = files.part("model").get("vocab") or ()
    if isinstance(vocab, list):
        return {row[0]: at for at, row in enumerate(vocab) if isinstance(row, list) and row}
    return vocab if isinstance(vocab, dict) else {}


def _no_entry(files: TokenizerFiles, name: str, token: str) -> InputError:
    return files.error(
        SLOW,
        f"{name} must be an entry of the vocabulary, got {token!r}; add it there with the id that "
        "the model was trained with, transformers would give it another",
    )


def _canonical(files: TokenizerFiles, parts: Mapping[str, Any]) -> str:
    """Returns the parts around the pieces as the library writes them, also those of old files."""
    import tokenizers

    names = ("normalizer", "pre_tokenizer", "post_processor")
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    whole: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": model}
    whole |= {name: parts.get(name) for name in names}
    with library_errors(f"{files.folder / FAST}: cannot be read"):
        return str(tokenizers.Tokenizer.from_str(json.dumps(whole)).to_str())


def _with_added_tokens(files: TokenizerFiles) -> Mapping[str, Any]:
    """Returns tokenizer.json with the tokens that the other files add, by their flags."""
    import tokenizers

    fast, tokens = files.fast, _added_tokens(files)
    known = {
        token["content"]: {name: token.get(name) for name in (*_FLAGS, "normalized")}
        for token in files.added_tokens
    }
    entries = _numbers(files) if files.kind in OF_LIBRARY else {}

    def changes_nothing(name: str, token: Mapping[str, Any]) -> bool:
        if token["special"]:  # which in a text is text
            return name in known or ("id" not in token and name not in entries)
        return name in known and known[name].items() <= token.items()

    if all(changes_nothing(name, token) for name, token in tokens.items()):
        return fast
    for token in tokens.values():
        token.pop("id", None)
    with library_errors(f"{files.folder}: added tokens cannot be read"):
        library = tokenizers.Tokenizer.from_str(json.dumps(fast))
        library.add_tokens([tokenizers.AddedToken(**token) for token in tokens.values()])
    return json.loads(library.to_str())


def _added_tokens(files: TokenizerFiles) -> dict[str, dict[str, Any]]:
    """Returns the tokens that files beside tokenizer.json add, in the order of their ids."""
    slow, tokens = files.slow, dict[int, dict[str, Any]]()
    decoder = object_in(files.folder / SLOW, slow, "added_tokens_decoder")
    for number, token in decoder.items():
        if not isinstance(token, dict) or not str(number).isdecimal():
            raise files.error(SLOW, "added_tokens_decoder must map ids to objects")
        tokens[int(number)] = dict(token)
    has_usual = not files.as_it_is and _class_of(files) in (*_BYTE_LEVEL, *_METASPACE)
    usual = _USUAL if has_usual else {}
    special = [token for name in NAMED if (token := files.named(name) or usual.get(name))]
    for name in LISTED:
        special += map(content, listed(slow.get(name) or []))
    if "added_tokens_decoder" not in slow:
        for text, number in optional_object(files.folder / _ADDED).items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise files.error(_ADDED, f"the id of {text!r} must be a whole number")
            tokens[number] = {"content": text, "special": text in special}
    added = {
        tokens[number].get("content"): {**tokens[number], "id": number} for number in sorted(tokens)
    }
    added |= {name: {"content": name, "special": True} for name in special if name not in added}
    return {
        str(text): _FLAGS
        | {"normalized": not token.get("special")}
        | {key: value for key, value in token.items() if key != "__type"}
        for text, token in added.items()
    }
