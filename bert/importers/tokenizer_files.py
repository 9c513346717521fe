"""The tokenizer files of a Hugging Face folder in, vocabulary and settings out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.bundle import VOCABULARY
from bert.config import BertConfig
from bert.importers.json_files import optional_object, read_object
from bert.importers.vocabulary import read_vocabulary

_CONFIG = "config.json"
_SLOW = "tokenizer_config.json"
_FAST = "tokenizer.json"
_MAX_WORD_CHARS = 100  # of Hugging Face's WordPiece; google-research has 200
# Those that are BERT's under another name, and the one that says nothing but "see tokenizer.json".
_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_OTHER_FILES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
    "merges.txt",
)
_SPECIAL = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
_PARTS = {
    "model": (("type", "WordPiece"), ("continuing_subword_prefix", "##"), ("unk_token", "[UNK]")),
    "normalizer": (("type", "BertNormalizer"), ("clean_text", True)),
    "pre_tokenizer": (("type", "BertPreTokenizer"),),
}


@dataclass(frozen=True)
class TokenizerFiles:
    """What a folder says of its tokenizer.

    Attributes:
        vocabulary: The entries, in order of their ids.
        lower_case: Whether it lowers case and strips accents.
        max_word_chars: A longer word is [UNK].
        max_length: Tokens of a row; None where no file says.
    """

    vocabulary: list[str]
    lower_case: bool
    max_word_chars: int
    max_length: int | None


def read_tokenizer(folder: Path, config: BertConfig, lowered: bool) -> TokenizerFiles:
    """Reads vocab.txt, tokenizer_config.json and tokenizer.json, as far as they are there.

    Args:
        folder: The encoder's.
        config: Says how many entries there must be.
        lowered: Whether texts are in lower case before they come to the tokenizer.

    Raises:
        ValueError: A tokenizer that is not BERT's, or one whose ids ours would not give.
    """
    slow, fast = optional_object(folder / _SLOW), optional_object(folder / _FAST)
    _refuse_other_tokenizers(folder, slow, fast)
    normalizer = fast.get("normalizer") or {}
    said = (slow.get("do_lower_case"), normalizer.get("lowercase"))
    lower_case = next((bool(one) for one in said if one is not None), True)
    if lowered and not lower_case:
        raise ValueError(
            f"{folder}: do_lower_case of sentence-transformers with a cased tokenizer is not "
            "supported; lower the texts before, and set it to false"
        )
    strip = slow.get("strip_accents", normalizer.get("strip_accents"))
    if strip not in (None, lower_case):
        raise ValueError(f"{folder}: strip_accents must be as do_lower_case, is {strip}")
    if not slow.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)):
        raise ValueError(f"{folder}: tokenize_chinese_chars must be true, is false")
    length = slow.get("model_max_length")
    return TokenizerFiles(
        vocabulary=_vocabulary(folder, config, fast),
        lower_case=lower_case,
        max_word_chars=(fast.get("model") or {}).get("max_input_chars_per_word", _MAX_WORD_CHARS),
        max_length=int(length) if isinstance(length, int | float) else None,
    )


def _refuse_other_tokenizers(
    folder: Path, slow: Mapping[str, Any], fast: Mapping[str, Any]
) -> None:
    for name in _OTHER_FILES:
        if (folder / name).is_file():
            raise ValueError(
                f"{folder / name}: only BERT's WordPiece tokenizers are supported, take a model "
                f"with {VOCABULARY}"
            )
    for path, values in ((folder / _SLOW, slow), (folder / _CONFIG, read_object(folder / _CONFIG))):
        said = values.get("tokenizer_class")
        plain = str(said).removesuffix("Fast")
        if said is None or plain in _CLASSES or (said in _GENERIC and fast):
            continue
        raise ValueError(
            f"{path}: tokenizer_class must be BertTokenizer, got {said}; take a model whose "
            "tokenizer is BERT's"
        )
    for name, wanted in _SPECIAL.items():
        token = slow.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if token not in (None, wanted):
            raise ValueError(f"{folder / _SLOW}: {name} must be {wanted}, got {token!r}")
    if slow.get("do_basic_tokenize") is False:
        raise ValueError(f"{folder / _SLOW}: do_basic_tokenize must be true, is false")
    _refuse_other_parts(folder / _FAST, fast)


def _refuse_other_parts(path: Path, fast: Mapping[str, Any]) -> None:
    for part, settings in _PARTS.items():
        values = fast.get(part) or {}
        for name, usual in settings:
            if values.get(name, usual) != usual:
                raise ValueError(
                    f"{path}: {name} of the {part} must be {usual}, as BERT's is, "
                    f"got {values[name]}"
                )

    processor = fast.get("post_processor") or {}
    others = set(processor.get("special_tokens") or ()) - {"[CLS]", "[SEP]"}
    if processor.get("type") not in (None, "TemplateProcessing", "BertProcessing") or others:
        raise ValueError(
            f"{path}: post_processor must put [CLS] and [SEP] around a text, as BERT's does"
        )


def _vocabulary(folder: Path, config: BertConfig, fast: Mapping[str, Any]) -> list[str]:
    """The entries of vocab.txt, else of tokenizer.json; where both lie there they must agree."""
    numbers = (fast.get("model") or {}).get("vocab") or {}
    if (folder / VOCABULARY).is_file() or not numbers:
        entries = read_vocabulary(folder / VOCABULARY, config, _CONFIG)
    else:
        entries = _listed(folder / _FAST, config, numbers)
    size = len(entries)
    for entry, number in numbers.items():
        if number >= size or entries[number].strip() != entry.strip():
            raise ValueError(
                f"{folder}: {VOCABULARY} and {_FAST} differ at id {number}, remove the wrong one"
            )
    for token in fast.get("added_tokens") or ():
        number, entry = token.get("id", size), token.get("content")
        if number >= size or entries[number].strip() != entry:
            raise ValueError(
                f"{folder / _FAST}: added token {number} is not in the vocabulary, such tokens "
                "are not supported"
            )
    return entries


def _listed(path: Path, config: BertConfig, numbers: Mapping[str, int]) -> list[str]:
    if sorted(numbers.values()) != list(range(config.vocab_size)):
        raise ValueError(
            f"{path}: must have the ids 0 to {config.vocab_size - 1} as {_CONFIG} says, "
            f"has {len(numbers)} entries"
        )
    return sorted(numbers, key=lambda entry: numbers[entry])
