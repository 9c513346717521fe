"""Reads what the files of a Hugging Face folder say of its tokenizer, and checks the settings.

A tokenizer.json is changed as the class of transformers does that reads only parts of it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert_embed.base.errors import InputError, refusal
from bert_embed.bundle.bundle import VOCABULARY
from bert_embed.importers.weights import FileSettings, optional_object, read_object
from bert_embed.models.encoder import EncoderConfig
from bert_embed.text.json_tokenizer import library_errors
from bert_embed.text.tokenizer import SPECIAL_TOKENS

CONFIG, SLOW, FAST = "config.json", "tokenizer_config.json", "tokenizer.json"
_SPECIAL_MAP = "special_tokens_map.json"
WORD_PIECE = "WordPiece"
OF_LIBRARY = ("Unigram", "BPE")  # kinds of pieces that only the tokenizers library makes
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that are what FAST says
MAX_WORD_CHARS = 100  # of Hugging Face's WordPiece; google-research has 200
MASKS = ("[MASK]", "<mask>")
_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
# Those that say which tokens are a second text's, unless model_input_names says another thing.
_WITH_TYPES = ("", "BertTokenizer", "ElectraTokenizer")
NAMED = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
)
LISTED = ("additional_special_tokens", "extra_special_tokens")
# Settings of tokenizer_config.json.
_KNOWN = {
    # Those that are followed; the others change no id of a text.
    *("tokenizer_class", "do_lower_case", "strip_accents", "tokenize_chinese_chars", "max_len"),
    *("model_max_length", "add_prefix_space", "do_basic_tokenize", "added_tokens_decoder"),
    *("truncation_side", "padding_side", "model_input_names", *NAMED, *LISTED),
    # Special tokens in a text are text, and a tokenizer.json decides what is put around one.
    *("split_special_tokens", "add_bos_token", "add_eos_token", "never_split", "trim_offsets"),
    *("add_special_tokens", "special_tokens_map_file", "sp_model_kwargs"),
    # Where files come from, who reads them, and what becomes of ids.
    *("name_or_path", "vocab_file", "merges_file", "tokenizer_file", "full_tokenizer_file"),
    *("auto_map", "processor_class", "chat_template", "use_fast", "from_slow", "legacy"),
    *("is_local", "local_files_only", "backend", "init_inputs", "errors", "verbose"),
    *("clean_up_tokenization_spaces", "fast_tokenizer_files", "slow_tokenizer_class"),
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    # Of calls, which name their own, and of the model.
    *("max_length", "stride", "truncation", "truncation_strategy", "padding", "return_tensors"),
    *("pad_to_multiple_of", "pad_token_type_id", "pad_token_id", "model_type", "max_seq_length"),
    # Of slow tokenizers, whose file is not read.
    *("keep_accents", "remove_space", "lowercase", "normalization", "vocab_size", "do_lower"),
    "clean_text",
    *("transformers_version", "tokenizer_type", "special_tokens", "device_map", "revision"),
    *("model_specific_special_tokens", "response_template", "response_schema", "language"),
    *("use_default_system_prompt", "_commit_hash", "trust_remote_code", "files_loaded", "repo"),
}


@dataclass(frozen=True)
class TokenizerFiles:
    """What the files of a tokenizer say; those that are not there say nothing."""

    folder: Path
    slow: Mapping[str, Any]  # of tokenizer_config.json
    fast: Mapping[str, Any]  # of tokenizer.json, or as a class of transformers changes it
    config: Mapping[str, Any]

    def error(self, name: str, problem: str) -> InputError:
        """The error of one of the files."""
        return InputError(f"{self.folder / name}: {problem}")

    @property
    def kind(self) -> str:
        """The kind of pieces that texts are split into."""
        return self.part("model").get("type", WORD_PIECE)

    @property
    def class_name(self) -> str:
        """The class of transformers that they name, or an empty text."""
        return str(self.slow.get("tokenizer_class") or self.config.get("tokenizer_class") or "")

    @property
    def special(self) -> str:
        """Which of `SPECIAL_TOKENS` BERT's own tokenizer would put around texts."""
        of_model = self.config["model_type"] == "mpnet" and self.class_name in ("", *GENERIC)
        is_mpnet = of_model or self.class_name.removesuffix("Fast") == "MPNetTokenizer"
        return "mpnet" if is_mpnet else "bert"

    @property
    def as_it_is(self) -> bool:
        """Whether tokenizer.json counts alone, as always for ModernBERT: classes change it."""
        is_modern = self.config.get("model_type") == "modernbert"
        return bool(self.fast) and (is_modern or self.class_name in GENERIC)

    @property
    def lower_case(self) -> bool | None:
        """Whether texts are lowered; None where letters change as `Normalizer` never does."""
        normalizer = self.part("normalizer")
        lower_case = normalizer.get("lowercase") in (None, True)
        strips = normalizer.get("strip_accents") in (None, lower_case)
        return lower_case if strips and normalizer.get("handle_chinese_chars", True) else None

    def part(self, name: str) -> FileSettings:
        """Returns a part of tokenizer.json, an empty one if there is none."""
        return FileSettings(self.folder / FAST, self.fast).object(name)

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """The tokens that tokenizer.json adds to its vocabulary."""
        added = self.fast.get("added_tokens") or []
        if not isinstance(added, list):
            raise self.error(FAST, f"added_tokens must be a list, got {added!r}")
        for token in added:
            if not (isinstance(token, dict) and isinstance(content(token), str)):
                raise self.error(FAST, f"cannot be read: {token!r} of added_tokens is no token")
        return added

    @property
    def vocab(self) -> Mapping[str, int]:
        """The ids in tokenizer.json by their entries; empty if there is none."""
        numbers = self.part("model").object("vocab")
        for entry, number in numbers.items():
            if type(number) is not int or number < 0:
                problem = f"the id of {entry!r} must be a whole number, got {number!r}"
                raise self.error(FAST, problem)
        return numbers

    @property
    def longest_word(self) -> int:
        """The most characters of a word that is not [UNK]."""
        return self.part("model").number("max_input_chars_per_word") or MAX_WORD_CHARS

    @property
    def usual_tokens(self) -> dict[str, str]:
        """BERT's special tokens, by their settings."""
        tokens = SPECIAL_TOKENS[self.special]
        return {"cls_token": tokens.begin, "sep_token": tokens.end, "unk_token": "[UNK]"}

    def named(self, name: str) -> str | None:
        """The token that a setting of tokenizer_config.json names, None without one."""
        return content(self.slow.get(name))

    @property
    def gives_types(self) -> bool:
        """Whether the model learns which tokens are a second text's."""
        with_types = self.class_name.removesuffix("Fast") in _WITH_TYPES
        usual = ["input_ids", "attention_mask", *(["token_type_ids"] if with_types else [])]
        names = self.slow.get("model_input_names", usual)
        if not isinstance(names, list) or not {*usual[:2]} <= {*map(str, names)}:
            problem = f"model_input_names must list {' and '.join(usual[:2])}, got {names!r}"
            raise self.error(SLOW, problem)
        return "token_type_ids" in names

    def max_length(self, config: EncoderConfig) -> int | None:
        """Returns the most tokens of a row, None where the files do not say it."""
        length = self.slow.get("model_max_length", self.slow.get("max_len"))
        if length is None:
            return None
        if isinstance(length, bool) or not isinstance(length, int | float) or not length >= 3:
            problem = f"model_max_length must be a number of at least 3, got {length!r}"
            raise self.error(SLOW, problem)
        # transformers writes 1e30 for an unknown length.
        return int(min(length, config.max_position_embeddings)) if length < 1e20 else None

    def check(self) -> None:
        """Checks that every setting of tokenizer_config.json is followed, or changes no id."""
        tokens = (name for name in self.slow if name.endswith("_token"))
        # Special tokens, whatever they are called, are text.
        known = {name for name in tokens if isinstance(self.slow[name], str | dict)}
        FileSettings(self.folder / SLOW, self.slow).refuse_unknown(_KNOWN | known)
        for name in _SWITCHES:
            if not isinstance(self.slow.get(name), bool | None):
                problem = f"{name} must be true or false, got {self.slow[name]!r}"
                raise self.error(SLOW, problem)
        for name in ("truncation_side", "padding_side"):
            of_fast = self.part(name.removesuffix("_side")).get("direction", "right")
            if (side := str(self.slow.get(name, of_fast)).lower()) != "right":
                source = SLOW if name in self.slow else FAST
                problem = f"{name} must be right, got {side}; rows keep a text's start"
                raise self.error(source, problem)

    def check_merges(self) -> None:
        """Checks that merges are of words that go on, else the tokenizers library panics."""
        model = self.part("model")
        prefix = model.get("continuing_subword_prefix") or ""
        with library_errors(f"{self.folder / FAST}: cannot be read"):
            for number, pair in enumerate((prefix and model.get("merges")) or ()):
                second = pair.rpartition(" ")[2] if isinstance(pair, str) else pair[-1]
                if not second.startswith(prefix):
                    raise ValueError(
                        f"the second part of merges[{number}] must begin with "
                        f"continuing_subword_prefix {prefix!r}, got {second!r}"
                    )


def read_files(folder: Path, model: Path | None = None) -> TokenizerFiles:
    """Returns what a folder's files say; InputError for a setting that is not followed.

    `model` is the folder of the model's config.json where that is another one.
    """
    slow, fast = _slow_settings(folder), optional_object(folder / FAST)
    files = TokenizerFiles(folder, slow, fast, read_object((model or folder) / CONFIG))
    files.check()
    return files


def mask_tokens(folder: Path) -> tuple[str, ...]:
    """Returns the token that the files name as the mask, or the usual ones."""
    named = content(_slow_settings(folder).get("mask_token"))
    return MASKS if named is None else (named,)


def unknown_tokens(folder: Path) -> tuple[str, ...]:
    """Returns the token that the files name as the unknown one, or those of classes."""
    slow = _slow_settings(folder)
    if (named := content(slow.get("unk_token"))) is not None:
        return (named,)
    return () if slow.get("tokenizer_class") in GENERIC else ("[UNK]", "<unk>")


def _slow_settings(folder: Path) -> Mapping[str, Any]:
    slow = _settings_in(folder / SLOW)
    if "added_tokens_decoder" in slow:  # the other file is of an older version, and not read
        return slow
    return {**slow, **_settings_in(folder / _SPECIAL_MAP)}


def _settings_in(path: Path) -> Mapping[str, Any]:
    """Returns a file's settings, none if it is not there; checks those that name tokens."""
    values = optional_object(path)
    for name in (*NAMED, *LISTED):
        value, is_list = values.get(name), name in LISTED
        tokens = listed(value) if is_list else [value]
        if value is not None and not all(isinstance(content(token), str) for token in tokens):
            what = "a list of tokens" if is_list else "a token"
            raise values.error(f"{name} must be {what}, got {value!r}")
    return values


def listed(tokens: Any) -> list[Any]:
    """Returns the tokens of a list or an object; None in place of something else."""
    tokens = [*tokens.values()] if isinstance(tokens, dict) else tokens
    return tokens if isinstance(tokens, list) else [None]


def content(token: Any) -> Any:
    """Returns the text of a token, which files describe or only name."""
    return token.get("content") if isinstance(token, dict) else token


def read_entries(path: Path, most: int) -> list[str]:
    """Reads all entries but blank ones behind `most`; InputError if the file cannot be read."""
    try:
        # Not in text mode: an entry may be one of Unicode's line separators.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise refusal(error, f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8") from error
    # White space behind a word is none of it; alone it is an entry, which no text has.
    vocabulary = [line.rstrip() or line.removesuffix("\r") for line in lines]
    if vocabulary[-1] == "":
        vocabulary.pop()
    while len(vocabulary) > most and not vocabulary[-1].strip():
        vocabulary.pop()  # lines that editors leave; no text has such an entry
    return vocabulary


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
_OFF = ("byte_fallback", "fuse_unk", "ignore_merges")  # of a model of these classes
# What puts special tokens around a text, by the tokens.
_PROCESSORS = {"bert": "BertProcessing", "mpnet": "RobertaProcessing"}


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
    models = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
    for name in (*models, "merges.txt"):
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
    placed |= {name: token for name in placed if (token := files.named(name)) is not None}
    for name, token in placed.items():
        if token not in vocab and files.named(name) is not None:
            raise _no_entry(files, name, token)
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
        "post_processor": {"type": _PROCESSORS[files.special], **ends, **trims},
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
    switches = {"handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lowercase}
    return {"type": "BertNormalizer", "clean_text": True, **switches}


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
    parts = _herbert(files) if name == _HERBERT else _PARTS[files.kind](files, prefix)
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
    model |= {setting: None for setting in unset if model.get(setting)}
    model |= {setting: False for setting in _OFF if model.get(setting)}
    if name == _HERBERT:
        named, _ = _entry(files, "unk_token", "<unk>")
        model |= {"end_of_word_suffix": "</w>", "unk_token": named}
    same = _canonical(files, parts) == _canonical(files, files.fast)
    return {**files.fast, **({} if same else parts), "model": model}


def _class_of(files: TokenizerFiles) -> str:
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
    ends = (("sep", "sep_token", "</s>"), ("cls", "cls_token", "<s>"))
    return {end: list(_entry(files, name, usual)) for end, name, usual in ends}


def _metaspace(files: TokenizerFiles, prefix: bool) -> dict[str, Any]:
    theirs = files.part("normalizer")
    every = theirs.get("normalizers") or () if theirs.get("type") == "Sequence" else [theirs]
    charsmaps = (part for part in every if part.get("type") == "Precompiled")
    ends = [_entry(files, *token) for token in (("bos_token", "<s>"), ("eos_token", "</s>"))]
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    opens, closes = ({"SpecialToken": {"id": name, "type_id": 0}} for name, _ in ends)
    scheme = {"prepend_scheme": "always" if prefix else "never", "split": True}
    metaspace = {"type": "Metaspace", "replacement": "▁", **scheme}
    return {
        "normalizer": next(charsmaps, None),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [opens, one, closes],
            "pair": [opens, one, closes, closes, other, closes],
            "special_tokens": {
                name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ends
            },
        },
    }


_PARTS = {"BPE": _byte_level, "Unigram": _metaspace}


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
    vocab = files.part("model").get("vocab") or ()
    if isinstance(vocab, list):
        rows = (row[0] if isinstance(row, list) and row else None for row in vocab)
        return {entry: at for at, entry in enumerate(rows) if isinstance(entry, str)}
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
    decoder = FileSettings(files.folder / SLOW, slow).object("added_tokens_decoder")
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
    for token in added.values():
        token.pop("__type", None)
    return {
        str(text): {**_FLAGS, "normalized": not token.get("special"), **token}
        for text, token in added.items()
    }
