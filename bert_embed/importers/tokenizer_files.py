"""Reads vocabulary and settings of the tokenizer of a Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.bundle.files import VOCABULARY
from bert_embed.importers.json_files import object_in, optional_object, read_object
from bert_embed.storage.errors import InputError
from bert_embed.tokenization.json_tokenizer import JsonTokenizer
from bert_embed.tokenization.protocol import TextTokenizer
from bert_embed.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

_CONFIG = "config.json"
_SLOW = "tokenizer_config.json"
_FAST = "tokenizer.json"
_MAX_WORD_CHARS = 100  # of Hugging Face's WordPiece; google-research has 200
# Classes with BERT's tokenizer, and classes that only mean "see tokenizer.json".
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer")
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_OF_LIBRARY = ("Unigram", "BPE")  # kinds of pieces that the tokenizers library splits texts into
_OTHER_FILES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
    "merges.txt",
)
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


def read_tokenizer(
    folder: Path, config: EncoderConfig, lowered: bool
) -> tuple[TextTokenizer, int | None]:
    """Reads those of vocab.txt, tokenizer_config.json and tokenizer.json that are there.

    Returns the tokenizer, and the maximum number of tokens of a row; None where no file says.
    """
    slow, fast = optional_object(folder / _SLOW), optional_object(folder / _FAST)
    values = read_object(folder / _CONFIG)
    kind = object_in(folder / _FAST, fast, "model").get("type", "WordPiece")
    if fast and kind in _OF_LIBRARY:
        tokenizer = _json_tokenizer(folder, slow, config, lowered)
    else:
        tokenizer = _word_piece(folder, slow, fast, config, values, lowered)
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
    folder: Path, slow: Mapping[str, Any], config: EncoderConfig, lowered: bool
) -> TextTokenizer:
    """Returns the tokenizer of a tokenizer.json that is not WordPiece's."""
    path = folder / _FAST
    if lowered:
        raise InputError(
            f"{folder}: do_lower_case of sentence-transformers with {_FAST} is not supported; "
            "lower the texts before, and set it to false"
        )
    try:
        tokenizer = JsonTokenizer(path.read_text("utf-8"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"{path}: must have at most {config.vocab_size} entries as {_CONFIG} says, has "
            f"{len(tokenizer)}"
        )
    placed = {"cls_token": tokenizer.cls_id, "sep_token": tokenizer.sep_id}
    for name, number in placed.items():
        if (token := _content(slow.get(name))) not in (None, tokenizer.vocab[number]):
            raise InputError(
                f"{folder}: {_SLOW} says that {name} is {token!r}, {_FAST} puts "
                f"{tokenizer.vocab[number]!r} there; remove what is wrong"
            )
    return tokenizer


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _word_piece(
    folder: Path,
    slow: Mapping[str, Any],
    fast: Mapping[str, Any],
    config: EncoderConfig,
    values: Mapping[str, Any],
    lowered: bool,
) -> TextTokenizer:
    """Returns BERT's own tokenizer, if the files describe that."""
    special = "mpnet" if values["model_type"] == "mpnet" else "bert"
    _refuse_other_tokenizers(folder, slow, fast, values)
    _refuse_other_special_tokens(folder / _SLOW, slow, special)
    _refuse_other_parts(folder / _FAST, fast, special)
    normalizer, model = (object_in(folder / _FAST, fast, name) for name in ("normalizer", "model"))
    # BERT's classes change the normalizer by do_lower_case and its like; a generic one reads
    # tokenizer.json as it is.
    kind = slow.get("tokenizer_class") or values.get("tokenizer_class")
    said = {} if fast and kind in _GENERIC else slow
    settings = (said.get("do_lower_case"), normalizer.get("lowercase"))
    lower_case = next((bool(value) for value in settings if value is not None), True)
    if lowered and not lower_case:
        raise InputError(
            f"{folder}: do_lower_case of sentence-transformers with a cased tokenizer is not "
            "supported; lower the texts before, and set it to false"
        )
    strip = said.get("strip_accents", normalizer.get("strip_accents"))
    if strip not in (None, lower_case):
        raise InputError(f"{folder}: strip_accents must be as do_lower_case, is {strip}")
    if not said.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)):
        raise InputError(f"{folder}: tokenize_chinese_chars must be true, is false")
    longest = model.get("max_input_chars_per_word", _MAX_WORD_CHARS)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
        raise InputError(
            f"{folder / _FAST}: max_input_chars_per_word must be a positive integer, "
            f"got {longest!r}"
        )
    return Tokenizer(_vocabulary(folder, config, fast), lower_case, longest, special)


def _refuse_other_tokenizers(
    folder: Path, slow: Mapping[str, Any], fast: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    for name in _OTHER_FILES:
        if (folder / name).is_file():
            raise InputError(
                f"{folder / name}: only {_FAST} is read of such tokenizers; write one with "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
            )
    for path, values in ((folder / _SLOW, slow), (folder / _CONFIG, config)):
        kind = values.get("tokenizer_class")
        plain = str(kind).removesuffix("Fast")
        if kind is None or plain in _CLASSES or (kind in _GENERIC and fast):
            continue
        raise InputError(
            f"{path}: tokenizer_class must be BertTokenizer, got {kind}; take a model whose "
            "tokenizer is BERT's"
        )
    if slow.get("do_basic_tokenize") is False:
        raise InputError(f"{folder / _SLOW}: do_basic_tokenize must be true, is false")


def _refuse_other_special_tokens(path: Path, slow: Mapping[str, Any], special: str) -> None:
    tokens = SPECIAL_TOKENS[special]
    usual = {"cls_token": tokens.begin, "sep_token": tokens.end, "unk_token": "[UNK]"}
    for name, wanted in usual.items():
        token = _content(slow.get(name))
        if token not in (None, wanted):
            raise InputError(f"{path}: {name} must be {wanted}, got {token!r}")


def _refuse_other_parts(path: Path, fast: Mapping[str, Any], special: str) -> None:
    for part, settings in _PARTS.items():
        values = object_in(path, fast, part)
        for name, usual in settings:
            if values.get(name, usual) != usual:
                raise InputError(
                    f"{path}: {name} of the {part} must be {usual}, as BERT's is, "
                    f"got {values[name]}"
                )

    processor = object_in(path, fast, "post_processor")
    begin, end, *_ = SPECIAL_TOKENS[special]
    others = set(object_in(path, processor, "special_tokens")) - {begin, end}
    if processor.get("type") not in (None, *_PROCESSORS[special]) or others:
        raise InputError(
            f"{path}: post_processor must put {begin} and {end} around a text, as BERT's does"
        )


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
    for token in fast.get("added_tokens") or ():
        values = token if isinstance(token, dict) else {}
        number = values.get("id")
        added = entries[number] if isinstance(number, int) and 0 <= number < size else None
        if added is None or added.strip() != values.get("content"):
            raise InputError(
                f"{path}: added token {number} is not in the vocabulary, such tokens are not "
                "supported"
            )
    return entries


def _listed(path: Path, config: EncoderConfig, numbers: Mapping[str, int]) -> list[str]:
    size = config.vocab_size
    if len(numbers) != size or set(numbers.values()) != set(range(size)):
        raise InputError(
            f"{path}: must have the ids 0 to {size - 1} as {_CONFIG} says, has {len(numbers)} "
            "entries"
        )
    if broken := [numbers[entry] for entry in numbers if "\n" in entry]:
        raise InputError(f"{path}: entry {min(broken)} holds a line break, which no word can have")
    return sorted(numbers, key=lambda entry: numbers[entry])


def read_vocabulary(path: Path, config: EncoderConfig, source: str) -> list[str]:
    """Reads the entries, in the order of their ids.

    Args:
        path: The file.
        config: Says how many there must be.
        source: The configuration's file, for the message.

    Raises:
        InputError: The file cannot be read, or has another number of entries.
    """
    vocabulary = read_entries(path)
    if len(vocabulary) != config.vocab_size:
        raise InputError(
            f"{path}: must have {config.vocab_size} entries as {source} says, has {len(vocabulary)}"
        )
    return vocabulary


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
