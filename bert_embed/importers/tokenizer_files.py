"""Reads vocabulary and settings of the tokenizer of a Hugging Face folder."""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.bundle.files import VOCABULARY
from bert_embed.importers.json_files import object_in, optional_object, read_object
from bert_embed.storage.errors import InputError
from bert_embed.tokenization.json_tokenizer import JsonTokenizer
from bert_embed.tokenization.protocol import TextTokenizer
from bert_embed.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

_OWN = "WordPiece"
_PADDED = 64  # rows, to a multiple of which word tables are padded, for speed in training
_CONFIG = "config.json"
_SLOW = "tokenizer_config.json"
_FAST = "tokenizer.json"
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
# Settings of the normalizer, by what tokenizer_config.json calls them.
_NORMALIZING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# What puts special tokens around a text, by the tokens.
_PROCESSORS = {
    "bert": ("TemplateProcessing", "BertProcessing"),
    "mpnet": ("TemplateProcessing", "RobertaProcessing"),
}
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
    def special(self) -> str:
        """Which of `SPECIAL_TOKENS` BERT's own tokenizer would put around texts."""
        return "mpnet" if self.config["model_type"] == "mpnet" else "bert"

    @property
    def as_it_is(self) -> bool:
        """Whether tokenizer.json counts alone: BERT's classes change what it says of casing."""
        kind = self.slow.get("tokenizer_class") or self.config.get("tokenizer_class")
        return bool(self.fast) and kind in _GENERIC

    @property
    def normalizer(self) -> Mapping[str, Any]:
        """What tokenizer.json says of casing, accents and Chinese, changed by the settings."""
        said = {} if self.as_it_is else self.slow
        changes = {
            theirs: said[name]
            for name, theirs in _NORMALIZING.items()
            if said.get(name) is not None or (name == "strip_accents" and name in said)
        }
        return {**self.part("normalizer"), **changes}

    @property
    def lower_case(self) -> bool | None:
        """Whether texts are lowered; None where letters change as `Normalizer` never does."""
        lower_case = self.normalizer.get("lowercase") in (None, True)
        strips = self.normalizer.get("strip_accents") in (None, lower_case)
        return lower_case if strips and self.normalizer.get("handle_chinese_chars", True) else None

    def part(self, name: str) -> Mapping[str, Any]:
        """Returns a part of tokenizer.json, an empty one if there is none."""
        return object_in(self.folder / _FAST, self.fast, name)

    def other_special_tokens(self) -> Iterator[tuple[str, str, Any]]:
        """Yields the name of each special token that is not BERT's, BERT's, and the token."""
        tokens = SPECIAL_TOKENS[self.special]
        usual = {"cls_token": tokens.begin, "sep_token": tokens.end, "unk_token": "[UNK]"}
        for name, wanted in usual.items():
            if (token := _content(self.slow.get(name))) not in (None, wanted):
                yield name, wanted, token


def read_tokenizer(
    folder: Path, config: EncoderConfig, lowered: bool, markers: Container[str] = ()
) -> tuple[TextTokenizer, int | None]:
    """Returns the tokenizer of the files that are there, and the most tokens of a row, or None.

    `markers` are entries that no text contains, whatever the files say.
    """
    slow, fast = optional_object(folder / _SLOW), optional_object(folder / _FAST)
    files = _Files(folder, slow, fast, read_object(folder / _CONFIG))
    if files.kind == _OWN:
        _refuse_other_tokenizers(files)
    if fast and (files.kind in _OF_LIBRARY or (files.kind == _OWN and not _is_own(files))):
        tokenizer = _json_tokenizer(files, config, lowered, markers)
    else:
        tokenizer = _word_piece(files, config, lowered)
    return tokenizer, _max_length(folder / _SLOW, slow, config)


def _max_length(path: Path, slow: Mapping[str, Any], config: EncoderConfig) -> int | None:
    length = slow.get("model_max_length")
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
    path = files.folder / _FAST
    text = path.read_text("utf-8")
    theirs, changes = files.part("normalizer"), dict[str, Any]()
    if theirs.get("type") == "BertNormalizer" and files.normalizer != theirs:
        changes["normalizer"] = files.normalizer
    added = files.fast.get("added_tokens")
    if markers and isinstance(added, list):
        changes["added_tokens"] = [
            {**token, "special": True}
            if isinstance(token, dict) and token.get("content") in markers
            else token
            for token in added
        ]
    if changes:
        text = json.dumps({**files.fast, **changes}, ensure_ascii=False)
    if lowered and not (theirs.get("type") == "BertNormalizer" and files.normalizer["lowercase"]):
        raise InputError(
            f"{files.folder}: do_lower_case of sentence-transformers with {_FAST} is not "
            "supported; lower the texts before, and set it to false"
        )
    try:
        tokenizer = JsonTokenizer(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
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


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _is_own(files: _Files) -> bool:
    """Returns whether a WordPiece tokenizer.json describes what `Tokenizer` computes."""
    for name, settings in _PARTS.items():
        part = files.part(name)
        if not part and files.as_it_is:
            return False
        if any(part.get(setting, usual) != usual for setting, usual in settings):
            return False
    processor, tokens = files.part("post_processor"), SPECIAL_TOKENS[files.special]
    placed = set(object_in(files.folder / _FAST, processor, "special_tokens"))
    if processor.get("type") not in (None, *_PROCESSORS[files.special]):
        return False
    if placed - {tokens.begin, tokens.end} or any(files.other_special_tokens()):
        return False
    numbers = object_in(files.folder / _FAST, files.part("model"), "vocab")
    return files.lower_case is not None and all(
        isinstance(token, dict)
        and token.get("special")
        and numbers.get(str(token.get("content"))) == token.get("id")
        for token in files.fast.get("added_tokens") or ()
    )


def _word_piece(files: _Files, config: EncoderConfig, lowered: bool) -> TextTokenizer:
    """Returns BERT's own tokenizer, if the files describe that."""
    folder, lower_case = files.folder, files.lower_case
    if files.kind != _OWN:
        kinds = ", ".join((_OWN, *_OF_LIBRARY))
        raise InputError(
            f"{folder / _FAST}: type of the model must be one of {kinds}, got {files.kind}"
        )
    for name, wanted, token in files.other_special_tokens():
        raise InputError(
            f"{folder / _SLOW}: {name} must be {wanted}, got {token!r}, unless there is a {_FAST}; "
            f"{_WRITE_FAST}"
        )
    if lower_case is None:
        raise InputError(
            f"{folder / _SLOW}: strip_accents must be as do_lower_case, and tokenize_chinese_chars "
            f"true, unless there is a {_FAST}; {_WRITE_FAST}"
        )
    if lowered and not lower_case:
        raise InputError(
            f"{folder}: do_lower_case of sentence-transformers with a cased tokenizer is not "
            "supported; lower the texts before, and set it to false"
        )
    longest = files.part("model").get("max_input_chars_per_word", _MAX_WORD_CHARS)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
        raise InputError(
            f"{folder / _FAST}: max_input_chars_per_word must be a positive integer, "
            f"got {longest!r}"
        )
    vocabulary = _vocabulary(folder, config, files.fast)
    return Tokenizer(vocabulary, lower_case, longest, files.special, "hub")


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


def _vocabulary(folder: Path, config: EncoderConfig, fast: Mapping[str, Any]) -> list[str]:
    """Returns the entries of vocab.txt or tokenizer.json; if both are there, they must agree."""
    path = folder / _FAST
    numbers = object_in(path, object_in(path, fast, "model"), "vocab")
    for entry, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"{path}: the id of {entry!r} must be a whole number, got {number!r}")
    if (folder / VOCABULARY).is_file() or not numbers:
        entries = read_vocabulary(folder / VOCABULARY, config, _CONFIG)
    else:
        entries = _listed(folder / _FAST, config, numbers)
    size = len(entries)
    for entry, number in numbers.items():
        if number >= size or entries[number].strip() != entry.strip():
            raise InputError(
                f"{folder}: {VOCABULARY} and {_FAST} differ at id {number}, remove the wrong one"
            )
    return entries


def _listed(path: Path, config: EncoderConfig, numbers: Mapping[str, int]) -> list[str]:
    size, count = config.vocab_size, len(numbers)
    if not _fits(count, size) or set(numbers.values()) != set(range(count)):
        raise InputError(
            f"{path}: must have the ids 0 to {size - 1} as {_CONFIG} says, has {count} entries"
        )
    if broken := [numbers[entry] for entry in numbers if "\n" in entry]:
        raise InputError(f"{path}: entry {min(broken)} holds a line break, which no word can have")
    return sorted(numbers, key=lambda entry: numbers[entry])


def _fits(entries: int, rows: int) -> bool:
    """Returns whether a word table of so many rows has one an entry, or is padded as usual."""
    return entries == rows or (rows % _PADDED == 0 and 0 < rows - entries < _PADDED)


def read_vocabulary(path: Path, config: EncoderConfig, source: str) -> list[str]:
    """Reads as many entries as `config` from file `source` says, or fewer if it is padded."""
    vocabulary = read_entries(path)
    if not _fits(len(vocabulary), config.vocab_size):
        raise InputError(
            f"{path}: must have {config.vocab_size} entries as {source} says, has {len(vocabulary)}"
        )
    return vocabulary


def no_casing(source: str) -> InputError:
    """The error of a source that does not say whether the model is uncased."""
    return InputError(
        f"{source} does not say whether the model lowers case; import it with `model import "
        "SOURCE DEST` and lower_case or cased",
        "lower_case",
        "cased",
    )


def read_entries(path: Path) -> list[str]:
    """Reads all entries; InputError if the file cannot be read."""
    try:
        # Not in text mode: an entry may be one of Unicode's line separators.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8") from error
    vocabulary = [line.removesuffix("\r") for line in lines]
    if vocabulary[-1] == "":
        vocabulary.pop()
    return vocabulary
