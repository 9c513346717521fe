"""Reads what the files of a Hugging Face folder say of its tokenizer, and checks the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_embed.base.errors import InputError, refusal
from bert_embed.importers.weights import object_in, optional_object, read_object, refuse_unknown
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
_KNOWN = frozenset(
    (
        # Those that are followed; the others change no id of a text.
        *("tokenizer_class", "do_lower_case", "strip_accents", "tokenize_chinese_chars"),
        *("model_max_length", "max_len", "add_prefix_space", "do_basic_tokenize"),
        *("added_tokens_decoder", *LISTED),
        *("truncation_side", "padding_side", "model_input_names", *NAMED),
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

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns a part of tokenizer.json, an empty one if there is none."""
        return object_in(self.folder / FAST, self.fast, name)

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        """The tokens that tokenizer.json adds to its vocabulary."""
        added = self.fast.get("added_tokens") or []
        if not isinstance(added, list):
            raise self.error(FAST, f"added_tokens must be a list, got {added!r}")
        for token in added:
            if not isinstance(token, dict) or not isinstance(token.get("content"), str):
                raise self.error(FAST, f"cannot be read: {token!r} of added_tokens is no token")
        return added

    @property
    def vocab(self) -> Mapping[str, Any]:
        """The ids in tokenizer.json by their entries; empty if there is none."""
        return object_in(self.folder / FAST, self.part("model"), "vocab")

    @property
    def longest_word(self) -> int:
        """The most characters of a word that is not [UNK]."""
        longest = self.part("model").get("max_input_chars_per_word", MAX_WORD_CHARS)
        if type(longest) is not int or longest < 1:
            problem = f"max_input_chars_per_word must be a positive integer, got {longest!r}"
            raise self.error(FAST, problem)
        return longest

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
        if isinstance(length, bool) or not isinstance(length, int | float):
            raise self.error(SLOW, f"model_max_length must be a number, got {length!r}")
        if not length >= 3:
            raise self.error(SLOW, f"model_max_length must be at least 3, got {length!r}")
        # transformers writes 1e30 for an unknown length.
        return int(min(length, config.max_position_embeddings))

    def check(self) -> None:
        """Checks that every setting of tokenizer_config.json is followed, or changes no id."""
        # Special tokens, whatever they are called, are text.
        tokens = {
            name
            for name, value in self.slow.items()
            if name.endswith("_token") and isinstance(value, str | dict)
        }
        refuse_unknown(self.folder / SLOW, self.slow, _KNOWN | tokens)
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
            raise InputError(f"{path}: {name} must be {what}, got {value!r}")
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
