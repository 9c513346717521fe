"""Reads vocabulary and settings of the tokenizer of a Hugging Face folder."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import VOCABULARY
from bert_embed.importers.weights import (
    number_in,
    object_in,
    optional_object,
    read_object,
    refuse_unknown,
)
from bert_embed.models.encoder import EncoderConfig
from bert_embed.text.documents import TextTokenizer
from bert_embed.text.json_tokenizer import JsonTokenizer, library_errors
from bert_embed.text.tokenizer import SPECIAL_TOKENS, Tokenizer

_OWN = "WordPiece"
_PADDED = 64  # rows, to a multiple of which google-research's word tables are padded at most
_CONFIG = "config.json"
_SLOW = "tokenizer_config.json"
_FAST = "tokenizer.json"
_ADDED = "added_tokens.json"
_SPECIAL_MAP = "special_tokens_map.json"
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
_MAX_WORD_CHARS = 100  # of Hugging Face's WordPiece; google-research has 200
# Classes with BERT's tokenizer, and classes that only mean "see tokenizer.json".
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer")
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_OF_LIBRARY = ("Unigram", "BPE")  # kinds of pieces that only the tokenizers library makes
_WRITE_FAST = (
    "write one with AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
)
_OTHER_FILES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
    "merges.txt",
)
_MASKS = ("[MASK]", "<mask>")
_BYTE_LEVEL = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer")
_METASPACE = ("XLMRobertaTokenizer", "CamembertTokenizer")
# That of a model whose files name none.
_BY_MODEL = {
    **dict.fromkeys(("bert", "distilbert", "electra", "nomic_bert"), "BertTokenizer"),
    **dict.fromkeys(("xlm-roberta", "gte"), "XLMRobertaTokenizer"),
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "camembert": "CamembertTokenizer",
}
_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_HERBERT = "HerbertTokenizer"
_AS_THEY_ARE = ("", "PreTrainedTokenizer")
# Those that say which tokens are a second text's, unless model_input_names says another thing.
_WITH_TYPES = ("", "BertTokenizer", "ElectraTokenizer")
_OFF = ("byte_fallback", "fuse_unk", "ignore_merges")  # of a model of these classes
_NAMED = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
)
_LISTED = ("additional_special_tokens", "extra_special_tokens")
# Settings of tokenizer_config.json: those that are followed, and those that change no id of a text.
_FOLLOWED = frozenset(
    (
        *("tokenizer_class", "do_lower_case", "strip_accents", "tokenize_chinese_chars"),
        *("model_max_length", "max_len", "add_prefix_space", "do_basic_tokenize"),
        *("added_tokens_decoder", *_LISTED),
        *("truncation_side", "padding_side", "model_input_names", *_NAMED),
    )
)
_HARMLESS = frozenset(
    (
        # Special tokens in a text are text, and a tokenizer.json decides what is put around one.
        *("split_special_tokens", "add_bos_token", "add_eos_token", "never_split"),
        *("add_special_tokens", "special_tokens_map_file", "sp_model_kwargs", "trim_offsets"),
        # Where files come from, who reads them, and what becomes of ids.
        *("name_or_path", "vocab_file", "merges_file", "tokenizer_file", "full_tokenizer_file"),
        *("auto_map", "processor_class", "chat_template", "use_fast", "from_slow", "legacy"),
        *("is_local", "local_files_only", "backend", "init_inputs", "errors"),
        *("clean_up_tokenization_spaces", "fast_tokenizer_files", "slow_tokenizer_class"),
        *("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "verbose"),
        # Of calls, which name their own, and of the model.
        *("max_length", "stride", "truncation", "truncation_strategy", "padding", "return_tensors"),
        *("pad_to_multiple_of", "pad_token_type_id", "pad_token_id", "model_type"),
        "max_seq_length",
        # Of slow tokenizers, whose file is not read.
        *("keep_accents", "remove_space", "lowercase", "normalization", "vocab_size", "do_lower"),
        *("transformers_version", "tokenizer_type", "special_tokens", "device_map", "revision"),
        *("model_specific_special_tokens", "response_template", "response_schema", "language"),
        *("use_default_system_prompt", "_commit_hash", "trust_remote_code", "files_loaded", "repo"),
    )
)
# What puts special tokens around a text, beside templates, by the tokens.
_PROCESSORS = {"bert": "BertProcessing", "mpnet": "RobertaProcessing"}
_PARTS = {
    "model": (("type", "WordPiece"), ("continuing_subword_prefix", "##"), ("unk_token", "[UNK]")),
    "normalizer": (("type", "BertNormalizer"), ("clean_text", True)),
    "pre_tokenizer": (("type", "BertPreTokenizer"),),
}


@dataclass(frozen=True)
class _Files:
    """What the files of a tokenizer say; those that are not there say nothing."""

    folder: Path
    slow: Mapping[str, Any]
    fast: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of pieces that texts are split into."""
        return self.part("model").get("type", _OWN)

    @property
    def class_name(self) -> str:
        """The class of transformers that they name, or an empty text."""
        return str(self.slow.get("tokenizer_class") or self.config.get("tokenizer_class") or "")

    @property
    def special(self) -> str:
        """Which of `SPECIAL_TOKENS` BERT's own tokenizer would put around texts."""
        return "mpnet" if self.config["model_type"] == "mpnet" else "bert"

    @property
    def as_it_is(self) -> bool:
        """Whether tokenizer.json counts alone: BERT's classes change what it says of casing."""
        return bool(self.fast) and self.class_name in _GENERIC

    @property
    def lower_case(self) -> bool | None:
        """Whether texts are lowered; None where letters change as `Normalizer` never does."""
        normalizer = self.part("normalizer")
        lower_case = normalizer.get("lowercase") in (None, True)
        strips = normalizer.get("strip_accents") in (None, lower_case)
        return lower_case if strips and normalizer.get("handle_chinese_chars", True) else None

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns a part of tokenizer.json, an empty one if there is none."""
        return object_in(self.folder / _FAST, self.fast, name)

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """The tokens that tokenizer.json adds to its vocabulary."""
        path, added = self.folder / _FAST, self.fast.get("added_tokens") or []
        if not isinstance(added, list):
            raise InputError(f"{path}: added_tokens must be a list, got {added!r}")
        for token in added:
            if not isinstance(token, dict) or not isinstance(token.get("content"), str):
                raise InputError(f"{path}: cannot be read: {token!r} of added_tokens is no token")
        return added

    @property
    def vocab(self) -> Mapping[str, Any]:
        """The ids in tokenizer.json by their entries; empty if there is none."""
        return object_in(self.folder / _FAST, self.part("model"), "vocab")

    @property
    def longest_word(self) -> int:
        """The most characters of a word that is not [UNK]."""
        longest = self.part("model").get("max_input_chars_per_word", _MAX_WORD_CHARS)
        if type(longest) is not int or longest < 1:
            raise InputError(
                f"{self.folder / _FAST}: max_input_chars_per_word must be a positive integer, got "
                f"{longest!r}"
            )
        return longest

    @property
    def usual_tokens(self) -> dict[str, str]:
        """BERT's special tokens, by their settings."""
        tokens = SPECIAL_TOKENS[self.special]
        return {"cls_token": tokens.begin, "sep_token": tokens.end, "unk_token": "[UNK]"}


def read_tokenizer(
    folder: Path, config: EncoderConfig, lowered: bool, markers: Container[str] = ()
) -> tuple[TextTokenizer, int | None]:
    """Returns the tokenizer of the files that are there, and the most tokens of a row, or None.

    `markers` are entries that no text contains, whatever the files say.
    """
    slow, fast = _slow_settings(folder), optional_object(folder / _FAST)
    files = _Files(folder, slow, fast, read_object(folder / _CONFIG))
    _check_settings(files)
    if files.kind == _OWN:
        _refuse_other_tokenizers(files)
    if files.kind == _OWN and not files.as_it_is:
        files = replace(files, fast=_as_bert(files))
    elif files.kind in _OF_LIBRARY:
        files = replace(files, fast=_as_class(files))
    _check_merges(files)
    files = replace(files, fast=_with_added_tokens(files))
    if files.kind in _OF_LIBRARY or (files.kind == _OWN and not _is_own(files)):
        tokenizer = _json_tokenizer(files, config, lowered, markers)
    else:
        tokenizer = _word_piece(files, config, lowered)
    tokenizer.has_segments &= _gives_types(files)
    return tokenizer, _max_length(folder / _SLOW, slow, config)


def mask_tokens(folder: Path) -> tuple[str, ...]:
    """Returns the token that the files name as the mask, or the usual ones."""
    named = _content(_slow_settings(folder).get("mask_token"))
    return _MASKS if named is None else (named,)


def _slow_settings(folder: Path) -> Mapping[str, Any]:
    slow = _settings_in(folder / _SLOW)
    if "added_tokens_decoder" in slow:  # the other file is of an older version, and not read
        return slow
    return {**slow, **_settings_in(folder / _SPECIAL_MAP)}


def _settings_in(path: Path) -> Mapping[str, Any]:
    """Returns a file's settings, none if it is not there; checks those that name tokens."""
    values = optional_object(path)
    for name in (*_NAMED, *_LISTED):
        value, is_list = values.get(name), name in _LISTED
        tokens = _listed(value) if is_list else [value]
        if value is not None and not all(isinstance(_content(token), str) for token in tokens):
            what = "a list of tokens" if is_list else "a token"
            raise InputError(f"{path}: {name} must be {what}, got {value!r}")
    return values


def _listed(tokens: Any) -> list[Any]:
    """Returns the tokens of a list or an object; None in place of something else."""
    tokens = [*tokens.values()] if isinstance(tokens, dict) else tokens
    return tokens if isinstance(tokens, list) else [None]


def _check_settings(files: _Files) -> None:
    """Checks that every setting of tokenizer_config.json is followed, or changes no id."""
    path = files.folder / _SLOW
    for name, value in files.slow.items():
        tokens = name.endswith("_token") and isinstance(value, str | dict)  # special ones are text
        if name not in _FOLLOWED and name not in _HARMLESS and not tokens:
            refuse_unknown(path, {name: value}, frozenset())
    for name in _SWITCHES:
        if not isinstance(files.slow.get(name), bool | None):
            raise InputError(f"{path}: {name} must be true or false, got {files.slow[name]!r}")
    sides = {
        "truncation_side": files.part("truncation").get("direction", "right"),
        "padding_side": files.part("padding").get("direction", "right"),
    }
    for name, of_fast in sides.items():
        if (side := str(files.slow.get(name, of_fast)).lower()) != "right":
            source = path if name in files.slow else files.folder / _FAST
            raise InputError(
                f"{source}: {name} must be right, got {side}; rows keep a text's start"
            )


def _check_merges(files: _Files) -> None:
    """Checks that merges are of words that go on, without which the tokenizers library panics."""
    model = files.part("model")
    prefix = model.get("continuing_subword_prefix")
    with library_errors(f"{files.folder / _FAST}: cannot be read"):
        for number, pair in enumerate((prefix and model.get("merges")) or ()):
            second = pair.rpartition(" ")[2] if isinstance(pair, str) else pair[-1]
            if not second.startswith(prefix):
                raise ValueError(
                    f"the second part of merges[{number}] must begin with "
                    f"continuing_subword_prefix {prefix!r}, got {second!r}"
                )


def _gives_types(files: _Files) -> bool:
    """Returns whether the model learns which tokens are a second text's."""
    with_types = files.class_name.removesuffix("Fast") in _WITH_TYPES
    usual = ["input_ids", "attention_mask", *(["token_type_ids"] if with_types else [])]
    names = files.slow.get("model_input_names", usual)
    if not isinstance(names, list) or not {*usual[:2]} <= {*map(str, names)}:
        raise InputError(
            f"{files.folder / _SLOW}: model_input_names must list {' and '.join(usual[:2])}, got "
            f"{names!r}"
        )
    return "token_type_ids" in names


def _as_bert(files: _Files) -> Mapping[str, Any]:
    """Returns what BERT's classes make: of tokenizer.json they read the vocabulary alone."""
    slow = files.slow
    for name in ("normalizer", "pre_tokenizer", "post_processor"):
        files.part(name)  # must be objects
    if not (vocab := files.vocab):
        entries = read_entries(files.folder / VOCABULARY, files.config["vocab_size"])
        vocab = {entry: number for number, entry in enumerate(entries)}
    placed = files.usual_tokens
    for name in placed:
        if (token := _content(slow.get(name))) is not None:
            if token not in vocab:
                raise InputError(
                    f"{files.folder / _SLOW}: {name} must be an entry of the vocabulary, got "
                    f"{token!r}"
                )
            placed[name] = token
    begin, end, unknown = placed.values()
    kind = _PROCESSORS[files.special]
    ends = {"sep": [end, vocab.get(end, 0)], "cls": [begin, vocab.get(begin, 0)]}
    trims = {"trim_offsets": True, "add_prefix_space": False} if files.special == "mpnet" else {}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": files.added_tokens,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": slow.get("tokenize_chinese_chars") is not False,
            "strip_accents": slow.get("strip_accents"),
            "lowercase": slow.get("do_lower_case") is not False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": kind, **ends, **trims},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": _OWN,
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": _MAX_WORD_CHARS,
            "vocab": vocab,
        },
    }


def _as_class(files: _Files) -> Mapping[str, Any]:
    """Returns what transformers' class makes: of tokenizer.json it reads the vocabulary alone."""
    kind = files.class_name
    name = kind.removesuffix("Fast") or _BY_MODEL.get(files.config["model_type"], "")
    if name in _AS_THEY_ARE or kind in _GENERIC or files.config["model_type"] == "modernbert":
        return files.fast
    if (files.kind, name) == ("Unigram", "BertTokenizer"):
        # So says paraphrase-multilingual-MiniLM-L12-v2. WordPieces of such a vocabulary know no
        # word; the file is what its vectors were made with.
        return files.fast
    if (files.kind, name) not in {
        *(("BPE", known) for known in (*_BYTE_LEVEL, _HERBERT)),
        *(("Unigram", known) for known in _METASPACE),
    }:
        raise InputError(
            f"{files.folder / _SLOW}: tokenizer_class {kind or f'is missing, and {name}'} makes "
            f"other pieces than the {files.kind} of {_FAST}; write PreTrainedTokenizerFast there "
            "if that file is right"
        )
    prefix = files.slow.get("add_prefix_space", name in _METASPACE)
    if not isinstance(prefix, bool):
        raise InputError(
            f"{files.folder / _SLOW}: add_prefix_space must be true or false, got {prefix!r}"
        )
    if name == _HERBERT:
        parts = _herbert(files)
    else:
        parts = _byte_level(files, prefix) if files.kind == "BPE" else _metaspace(files, prefix)
    model = {**files.part("model")}
    if files.kind == "Unigram":
        unknown = 3 if name == "XLMRobertaTokenizer" else _entry(files, "unk_token", "<unk>")[1]
        if model.get("unk_id") != unknown:
            raise InputError(
                f"{files.folder / _FAST}: unk_id must be {unknown}, which {name} takes whatever it "
                f"says, got {model.get('unk_id')!r}; write PreTrainedTokenizerFast as "
                f"tokenizer_class into {_SLOW} if that file is right"
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


def _herbert(files: _Files) -> dict[str, Any]:
    ends = (("sep", "sep_token", "</s>"), ("cls", "cls_token", "<s>"))
    placed = {end: list(_entry(files, name, usual)) for end, name, usual in ends}
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": False,
            "lowercase": False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **placed},
    }


def _byte_level(files: _Files, prefix: bool) -> dict[str, Any]:
    trims = {"add_prefix_space": prefix, "trim_offsets": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **trims, "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": list(_entry(files, "sep_token", "</s>")),
            "cls": list(_entry(files, "cls_token", "<s>")),
            **trims,
        },
    }


def _metaspace(files: _Files, prefix: bool) -> dict[str, Any]:
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


def _entry(files: _Files, name: str, usual: str) -> tuple[str, int]:
    """Returns a special token that tokenizer_config.json names, and its id."""
    token = _content(files.slow.get(name)) or usual
    vocab = files.part("model").get("vocab") or ()
    numbers: Mapping[Any, int] = vocab if isinstance(vocab, dict) else {}
    if isinstance(vocab, list):
        numbers = {row[0]: at for at, row in enumerate(vocab) if isinstance(row, list) and row}
    if token not in numbers:
        raise InputError(
            f"{files.folder / _SLOW}: {name} must be an entry of the vocabulary, got {token!r}"
        )
    return token, numbers[token]


def _canonical(files: _Files, parts: Mapping[str, Any]) -> str:
    """Returns the parts around the pieces as the library writes them, also those of old files."""
    import tokenizers

    names = ("normalizer", "pre_tokenizer", "post_processor")
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    whole: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": model}
    whole |= {name: parts.get(name) for name in names}
    with library_errors(f"{files.folder / _FAST}: cannot be read"):
        return str(tokenizers.Tokenizer.from_str(json.dumps(whole)).to_str())


def _with_added_tokens(files: _Files) -> Mapping[str, Any]:
    """Returns tokenizer.json with the tokens that the other files add, by their flags."""
    import tokenizers

    fast, tokens = files.fast, _added_tokens(files)
    known = {
        token["content"]: {name: token.get(name) for name in (*_FLAGS, "normalized")}
        for token in files.added_tokens
    }
    entries = files.part("model").get("vocab")
    entries = entries if isinstance(entries, dict) else {}

    def changes_nothing(content: str, token: Mapping[str, Any]) -> bool:
        if token["special"]:  # which in a text is text
            return content in known or "id" not in token or content in entries
        return content in known and known[content].items() <= token.items()

    if all(changes_nothing(content, token) for content, token in tokens.items()):
        return fast
    for token in tokens.values():
        token.pop("id", None)
    with library_errors(f"{files.folder}: added tokens cannot be read"):
        library = tokenizers.Tokenizer.from_str(json.dumps(fast))
        library.add_tokens([tokenizers.AddedToken(**token) for token in tokens.values()])
    return json.loads(library.to_str())


def _added_tokens(files: _Files) -> dict[str, dict[str, Any]]:
    """Returns the tokens that files beside tokenizer.json add, in the order of their ids."""
    slow, tokens = files.slow, dict[int, dict[str, Any]]()
    decoder = object_in(files.folder / _SLOW, slow, "added_tokens_decoder")
    for number, token in decoder.items():
        if not isinstance(token, dict) or not str(number).isdecimal():
            raise InputError(
                f"{files.folder / _SLOW}: added_tokens_decoder must map ids to objects"
            )
        tokens[int(number)] = dict(token)
    special = [_content(slow[name]) for name in _NAMED if slow.get(name)]
    for name in _LISTED:
        special += map(_content, _listed(slow.get(name) or []))
    if "added_tokens_decoder" not in slow:
        path = files.folder / _ADDED
        for content, number in optional_object(path).items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise InputError(f"{path}: the id of {content!r} must be a whole number")
            tokens[number] = {"content": content, "special": content in special}
    added = {
        tokens[number].get("content"): {**tokens[number], "id": number} for number in sorted(tokens)
    }
    added |= {name: {"content": name, "special": True} for name in special if name not in added}
    return {
        str(content): _FLAGS
        | {"normalized": not token.get("special")}
        | {key: value for key, value in token.items() if key != "__type"}
        for content, token in added.items()
    }


def _max_length(path: Path, slow: Mapping[str, Any], config: EncoderConfig) -> int | None:
    length = slow.get("model_max_length", slow.get("max_len"))
    if length is None:
        return None
    if isinstance(length, bool) or not isinstance(length, int | float):
        raise InputError(f"{path}: model_max_length must be a number, got {length!r}")
    if not length >= 3:
        raise InputError(f"{path}: model_max_length must be at least 3, got {length!r}")
    # transformers writes 1e30 for an unknown length.
    return int(min(length, config.max_position_embeddings))


def _json_tokenizer(
    files: _Files, config: EncoderConfig, lowered: bool, markers: Container[str]
) -> TextTokenizer:
    """Returns the tokenizer of a tokenizer.json that the `tokenizers` library reads."""
    path = files.folder / (_FAST if (files.folder / _FAST).is_file() else VOCABULARY)
    theirs, changes = files.part("normalizer"), dict[str, Any]()
    if markers:
        changes["added_tokens"] = [
            {**token, "special": True} if token["content"] in markers else token
            for token in files.added_tokens
        ]
    fast = {**files.fast, **changes}
    text = json.dumps(fast, ensure_ascii=False)
    if path.name == _FAST and fast == optional_object(path):
        text = path.read_text("utf-8")  # its hash is that of the file which people have
    if lowered and not (theirs.get("type") == "BertNormalizer" and theirs["lowercase"]):
        raise InputError(
            f"{files.folder}: do_lower_case of sentence-transformers with {_FAST} is not "
            "supported; lower the texts before, and set it to false"
        )
    tokenizer = _of_library(path, text, files)
    if not tokenizer.special_tokens:
        raise InputError(
            f"{path}: must put one token before a text, and one after it, as BERT's does"
        )
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"{path}: must have at most {config.vocab_size} entries as {_CONFIG} says, has "
            f"{len(tokenizer)}"
        )
    placed = {"cls_token": tokenizer.cls_id, "sep_token": tokenizer.sep_id}
    for name, number in placed.items():
        if (token := _content(files.slow.get(name))) not in (None, tokenizer.vocab[number]):
            raise InputError(
                f"{files.folder}: {_SLOW} says that {name} is {token!r}, {_FAST} puts "
                f"{tokenizer.vocab[number]!r} there; remove what is wrong"
            )
    return tokenizer


def read_bare_tokenizer(folder: Path) -> tuple[TextTokenizer, int | None]:
    """Returns a tokenizer.json's tokenizer, with nothing around a text, and the most tokens.

    As for model2vec and StaticEmbedding, no other file says anything of it.
    """
    path = folder / _FAST
    fast = read_object(path)
    files = _Files(folder, {"tokenizer_class": _GENERIC[0]}, fast, {})
    _check_settings(files)
    _check_merges(files)
    most = number_in(path, files.part("truncation"), "max_length")
    numbers = files.vocab if files.kind == _OWN else {}
    if "[UNK]" in numbers and _is_own(files, bare=True) and _are_listed(numbers):
        entries = sorted(numbers, key=lambda entry: numbers[entry])
        lower_case = bool(files.lower_case)
        return Tokenizer(entries, lower_case, files.longest_word, "none", "hub"), most
    bare = {**fast, "post_processor": None, "truncation": None, "padding": None}
    return _of_library(path, json.dumps(bare, ensure_ascii=False), files), most


def _of_library(path: Path, text: str, files: _Files) -> JsonTokenizer:
    if files.part("model").get("dropout"):
        raise InputError(f"{path}: dropout must be null, ids would be drawn by chance")
    try:
        return JsonTokenizer(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _are_listed(numbers: Mapping[str, Any]) -> bool:
    """Returns whether the ids of a vocabulary are those from 0 on."""
    whole = {*map(type, numbers.values())} <= {int}
    return whole and sorted(numbers.values()) == list(range(len(numbers)))


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _is_own(files: _Files, bare: bool = False) -> bool:
    """Returns whether a WordPiece tokenizer.json describes what `Tokenizer` computes.

    Of one that is `bare` it does not count what is put around texts.
    """
    for name, settings in _PARTS.items():
        part = files.part(name)
        if not part and files.as_it_is:
            return False
        if any(part.get(setting, usual) != usual for setting, usual in settings):
            return False
    numbers = files.vocab
    if not bare:
        usual = files.usual_tokens
        if any(_content(files.slow.get(name)) not in (None, usual[name]) for name in usual):
            return False
        if not _puts_usual_tokens(files, numbers):
            return False
    return files.lower_case is not None and all(
        token.get("special") and numbers.get(token["content"]) == token.get("id")
        for token in files.added_tokens
    )


def _puts_usual_tokens(files: _Files, numbers: Mapping[str, Any]) -> bool:
    """Returns whether the special tokens around texts and pairs are those of `Tokenizer`."""
    processor, tokens = files.part("post_processor"), SPECIAL_TOKENS[files.special]
    ends = {"cls": tokens.begin, "sep": tokens.end}
    kind = processor.get("type")
    if kind == _PROCESSORS[files.special]:
        return all(processor.get(key) == [end, numbers.get(end, 0)] for key, end in ends.items())
    templates: list[Any] = [processor.get("single"), processor.get("pair")]
    if kind != "TemplateProcessing" or not all(isinstance(part, list) for part in templates):
        return False
    placed = object_in(files.folder / _FAST, processor, "special_tokens")
    last = 1 if files.special == "bert" else 0  # type of a second text
    one = [(tokens.begin, 0), ("A", 0), (tokens.end, 0)]
    pair = [*one, *one[2:] * (tokens.separators - 1), ("B", last), (tokens.end, last)]
    return [[_placed(item) for item in template] for template in templates] == [one, pair] and all(
        object_in(files.folder / _FAST, placed, end).get("ids") == [numbers.get(end)]
        for end in ends.values()
    )


def _placed(item: Any) -> tuple[Any, Any]:
    """Returns the token or text of an item of a template, and its type."""
    values = list(item.values()) if isinstance(item, dict) else []
    value = values[0] if len(values) == 1 and isinstance(values[0], dict) else {}
    return value.get("id"), value.get("type_id")


def _word_piece(files: _Files, config: EncoderConfig, lowered: bool) -> TextTokenizer:
    """Returns BERT's own tokenizer, if the files describe that."""
    folder, lower_case = files.folder, bool(files.lower_case)
    if files.kind != _OWN:
        kinds = ", ".join((_OWN, *_OF_LIBRARY))
        raise InputError(
            f"{folder / _FAST}: type of the model must be one of {kinds}, got {files.kind}"
        )
    if lowered and not lower_case:
        raise InputError(
            f"{folder}: do_lower_case of sentence-transformers with a cased tokenizer is not "
            "supported; lower the texts before, and set it to false"
        )
    vocabulary = _vocabulary(files, config)
    return Tokenizer(vocabulary, lower_case, files.longest_word, files.special, "hub")


def _refuse_other_tokenizers(files: _Files) -> None:
    for name in _OTHER_FILES:
        if (files.folder / name).is_file():
            raise InputError(
                f"{files.folder / name}: only {_FAST} is read of such tokenizers; {_WRITE_FAST}"
            )
    for name, values in ((_SLOW, files.slow), (_CONFIG, files.config)):
        kind = values.get("tokenizer_class")
        plain = str(kind).removesuffix("Fast")
        if kind is None or plain in _CLASSES or (kind in _GENERIC and files.fast):
            continue
        raise InputError(
            f"{files.folder / name}: tokenizer_class must be BertTokenizer, got {kind}; take a "
            "model whose tokenizer is BERT's"
        )
    if files.slow.get("do_basic_tokenize") is False:
        raise InputError(f"{files.folder / _SLOW}: do_basic_tokenize must be true, is false")


def _vocabulary(files: _Files, config: EncoderConfig) -> list[str]:
    """Returns the entries of vocab.txt or tokenizer.json; if both are there, they must agree."""
    folder, numbers, most = files.folder, files.vocab, config.vocab_size
    path = folder / _FAST
    for entry, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"{path}: the id of {entry!r} must be a whole number, got {number!r}")
    if (folder / VOCABULARY).is_file() or not numbers:
        path = folder / VOCABULARY
        entries = read_entries(path, most)
    elif broken := [numbers[entry] for entry in numbers if "\n" in entry]:
        raise InputError(f"{path}: entry {min(broken)} holds a line break, which no word can have")
    else:
        entries = sorted(numbers, key=lambda entry: numbers[entry])
        if not _are_listed(numbers):
            raise InputError(
                f"{path}: must have entries with the ids from 0 on, has {len(entries)}, the last "
                f"is {numbers[entries[-1]]}"
            )
    if len(entries) > most:
        raise InputError(
            f"{path}: must have at most {most} entries as {_CONFIG} says, has {len(entries)}"
        )
    for entry, number in numbers.items():
        if number >= len(entries) or entries[number].strip() != entry.strip():
            raise InputError(
                f"{folder}: {VOCABULARY} and {_FAST} differ at id {number}, remove the wrong one"
            )
    return entries


def read_vocabulary(path: Path, config: EncoderConfig, source: str) -> list[str]:
    """Reads as many entries as `config` from file `source` says, or fewer if it is padded."""
    rows = config.vocab_size
    vocabulary = read_entries(path, rows)
    padding = rows - len(vocabulary)
    if padding and not (rows % _PADDED == 0 and 0 < padding < _PADDED):
        raise InputError(
            f"{path}: must have {rows} entries as {source} says, has {len(vocabulary)}"
        )
    return vocabulary


def check_prompts(path: Path, prompts: Mapping[str, str], tokenizer: TextTokenizer) -> None:
    """Checks that no prompt holds a special token, which would be read as text."""
    numbers = never_in_texts(tokenizer)
    if tokenizer.special_tokens:
        numbers |= {tokenizer.cls_id, tokenizer.sep_id}
    names = {tokenizer.vocab[number] for number in numbers}
    names |= {name for name in _MASKS if name in tokenizer.vocab}
    for name, prompt in prompts.items():
        if tokens := sorted(token for token in names if token and token in prompt):
            raise InputError(
                f"{path}: prompt {name} holds the special token {tokens[0]}, which is read as text "
                "and would be others; remove it from the prompt, or the prompt from the file"
            )


def never_in_texts(tokenizer: TextTokenizer) -> set[int]:
    """Returns the ids of special tokens, which no text has."""
    if not isinstance(tokenizer, JsonTokenizer):
        return {tokenizer.pad_id}
    added = json.loads(tokenizer.file_text).get("added_tokens") or ()
    # Not by the ids in the file: those that are wrong there the library changes.
    names = {token["content"] for token in added if token["special"]}
    return {number for number, entry in enumerate(tokenizer.vocab) if entry in names}


def no_casing(source: str) -> InputError:
    """The error of a source that does not say whether the model is uncased."""
    return InputError(
        f"{source} does not say whether the model lowers case; import it with `model import "
        "SOURCE DEST` and lower_case or cased",
        "lower_case",
        "cased",
    )


def read_entries(path: Path, most: int) -> list[str]:
    """Reads all entries but blank ones behind `most`; InputError if the file cannot be read."""
    try:
        # Not in text mode: an entry may be one of Unicode's line separators.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8") from error
    # White space behind a word is none of it; alone it is an entry, which no text has.
    vocabulary = [line.rstrip() or line.removesuffix("\r") for line in lines]
    if vocabulary[-1] == "":
        vocabulary.pop()
    while len(vocabulary) > most and not vocabulary[-1].strip():
        vocabulary.pop()  # lines that editors leave; no text has such an entry
    return vocabulary
