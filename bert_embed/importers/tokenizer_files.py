"""Makes the tokenizer of a Hugging Face folder: BERT's own, or one of the tokenizers library."""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import VOCABULARY
from bert_embed.importers.tokenizer_settings import (
    CONFIG,
    FAST,
    GENERIC,
    MASKS,
    OF_LIBRARY,
    SLOW,
    WORD_PIECE,
    TokenizerFiles,
    as_loaded,
    read_entries,
    read_files,
)
from bert_embed.importers.weights import optional_object, read_object
from bert_embed.models.encoder import EncoderConfig
from bert_embed.text.documents import TextTokenizer
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.tokenizer import SPECIAL_TOKENS, Tokenizer

_PARTS = {
    "model": (("type", "WordPiece"), ("continuing_subword_prefix", "##"), ("unk_token", "[UNK]")),
    "normalizer": (("type", "BertNormalizer"), ("clean_text", True)),
    "pre_tokenizer": (("type", "BertPreTokenizer"),),
}


def check_query_tokenizer(
    folder: Path, model: Path, config: EncoderConfig, tokenizer: TextTokenizer, length: int
) -> None:
    """Checks that queries, if `folder` has a tokenizer for them, are split as documents are.

    `length` is the most tokens of a row of documents, to which queries are cut here.
    """
    if not any((folder / name).is_file() for name in (FAST, VOCABULARY)):
        return
    of_queries, most = read_tokenizer(folder, config, lowered=False, model=model)
    if _rules(of_queries) != _rules(tokenizer):
        raise InputError(
            f"{folder}: the tokenizer of queries must be that of documents in {model}; two are not "
            "supported"
        )
    if (most or length) < length:
        raise InputError(
            f"{folder / SLOW}: model_max_length must be at least {length}, as of documents, got "
            f"{most}"
        )


def _rules(tokenizer: TextTokenizer) -> Any:
    if not isinstance(tokenizer, JsonTokenizer):
        return tokenizer.vocab, tokenizer.settings
    values = json.loads(tokenizer.file_text)
    return [values.get(part) for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")]


def read_tokenizer(
    folder: Path,
    config: EncoderConfig,
    lowered: bool,
    markers: Container[str] = (),
    model: Path | None = None,
) -> tuple[TextTokenizer, int | None]:
    """Returns the tokenizer of the files that are there, and the most tokens of a row, or None.

    `lowered` says whether sentence-transformers lowers texts before. `markers` are entries that no
    text contains, whatever the files say. `model` is as of `read_files`.
    """
    files = as_loaded(read_files(folder, model))
    if files.kind not in (WORD_PIECE, *OF_LIBRARY):
        kinds = ", ".join((WORD_PIECE, *OF_LIBRARY))
        raise files.error(FAST, f"type of the model must be one of {kinds}, got {files.kind}")
    is_own = files.kind == WORD_PIECE and _is_own(files)
    normalizer = files.part("normalizer")
    lowers = normalizer.get("type") == "BertNormalizer" and normalizer.get("lowercase")
    if lowered and not (files.lower_case if is_own else lowers):
        what = "a cased tokenizer" if is_own else FAST
        raise InputError(
            f"{folder}: do_lower_case of sentence-transformers with {what} is not supported; lower "
            "the texts before, and set it to false"
        )
    tokenizer: TextTokenizer
    if is_own:
        entries, lower_case = _vocabulary(files, config), bool(files.lower_case)
        tokenizer = Tokenizer(entries, lower_case, files.longest_word, files.special, "hub")
    else:
        tokenizer = _json_tokenizer(files, config, markers)
    tokenizer.has_segments &= files.gives_types
    return tokenizer, files.max_length(config)


def _json_tokenizer(
    files: TokenizerFiles, config: EncoderConfig, markers: Container[str]
) -> TextTokenizer:
    path = files.folder / (FAST if (files.folder / FAST).is_file() else VOCABULARY)
    fast = {**files.fast}
    if markers:
        fast["added_tokens"] = [
            {**token, "special": True} if token["content"] in markers else token
            for token in files.added_tokens
        ]
    text = json.dumps(fast, ensure_ascii=False)
    if path.name == FAST and fast == optional_object(path):
        text = path.read_text("utf-8")  # its hash is that of the file which people have
    tokenizer = _of_library(path, text, files)
    if not tokenizer.special_tokens:
        raise InputError(
            f"{path}: must put one token before a text, and one after it, as BERT's does, puts none"
        )
    _check_size(path, len(tokenizer), config)
    ends = {"cls_token": tokenizer.cls_id, "sep_token": tokenizer.sep_id}
    usual = files.usual_tokens if files.kind == WORD_PIECE else {}
    for name, number in () if files.as_it_is else ends.items():
        if (token := files.named(name) or usual.get(name)) not in (None, tokenizer.vocab[number]):
            raise InputError(
                f"{files.folder}: {name} is {token!r} by {SLOW} or the tokenizer's class, rows "
                f"would have {tokenizer.vocab[number]!r} there; mend what is wrong"
            )
    return tokenizer


def read_bare_tokenizer(folder: Path) -> tuple[TextTokenizer, int | None]:
    """Returns a tokenizer.json's tokenizer, with nothing around a text, and the most tokens.

    As for model2vec and StaticEmbedding, no other file says anything of it.
    """
    path = folder / FAST
    fast = read_object(path)
    files = TokenizerFiles(folder, {"tokenizer_class": GENERIC[0]}, fast, {})
    files.check()
    files.check_merges()
    most = files.part("truncation").number("max_length")
    numbers = files.vocab if files.kind == WORD_PIECE else {}
    if "[UNK]" in numbers and _is_own(files, bare=True) and _are_listed(numbers):
        entries = sorted(numbers, key=lambda entry: numbers[entry])
        lower_case = bool(files.lower_case)
        return Tokenizer(entries, lower_case, files.longest_word, "none", "hub"), most
    bare = {**fast, "post_processor": None, "truncation": None, "padding": None}
    return _of_library(path, json.dumps(bare, ensure_ascii=False), files), most


def _of_library(path: Path, text: str, files: TokenizerFiles) -> JsonTokenizer:
    if files.part("model").get("dropout"):
        raise InputError(f"{path}: dropout must be null, ids would be drawn by chance")
    try:
        return JsonTokenizer(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _are_listed(numbers: Mapping[str, int]) -> bool:
    """Returns whether the ids of a vocabulary are those from 0 on."""
    return sorted(numbers.values()) == list(range(len(numbers)))


def _check_size(path: Path, count: int, config: EncoderConfig) -> None:
    if count > config.vocab_size:
        raise InputError(
            f"{path}: must have at most {config.vocab_size} entries as {CONFIG} says, has {count}"
        )


def _is_own(files: TokenizerFiles, bare: bool = False) -> bool:
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
        renamed = any(files.named(name) not in (None, usual[name]) for name in usual)
        if renamed or not _puts_usual_tokens(files, numbers):
            return False
    return files.lower_case is not None and all(
        token.get("special") and numbers.get(token["content"]) == token.get("id")
        for token in files.added_tokens
    )


def _puts_usual_tokens(files: TokenizerFiles, numbers: Mapping[str, Any]) -> bool:
    """Returns whether the special tokens around texts and pairs are those of `Tokenizer`."""
    tokens = SPECIAL_TOKENS[files.special]
    try:
        made = JsonTokenizer(json.dumps(files.fast))
    except InputError:  # raised again where it is not `Tokenizer` that is made
        return False
    wanted = *(numbers.get(token, 0) for token in (tokens.begin, tokens.end)), tokens.separators
    found = made.cls_id, made.sep_id, made.separators
    return found == wanted and made.has_segments == (files.special == "bert")


def _vocabulary(files: TokenizerFiles, config: EncoderConfig) -> list[str]:
    """Returns the entries of vocab.txt or tokenizer.json; if both are there, they must agree."""
    folder, numbers, path = files.folder, files.vocab, files.folder / FAST
    if (folder / VOCABULARY).is_file() or not numbers:
        path = folder / VOCABULARY
        entries = read_entries(path, config.vocab_size)
    elif broken := [numbers[entry] for entry in numbers if "\n" in entry]:
        raise files.error(FAST, f"entry {min(broken)} holds a line break, which no word can have")
    else:
        entries = sorted(numbers, key=lambda entry: numbers[entry])
        if not _are_listed(numbers):
            raise files.error(
                FAST,
                f"must have entries with the ids from 0 on, has {len(entries)}, the last is "
                f"{numbers[entries[-1]]}",
            )
    _check_size(path, len(entries), config)
    for entry, number in numbers.items():
        if number >= len(entries) or entries[number].strip() != entry.strip():
            raise InputError(
                f"{folder}: {VOCABULARY} and {FAST} differ at id {number}, remove the wrong one"
            )
    return entries


def check_prompts(path: Path, prompts: Mapping[str, str], tokenizer: TextTokenizer) -> None:
    """Checks that no prompt holds a special token, which would be read as text."""
    numbers = never_in_texts(tokenizer)
    if tokenizer.special_tokens:
        numbers |= {tokenizer.cls_id, tokenizer.sep_id}
    names = {tokenizer.vocab[number] for number in numbers}
    names |= {name for name in MASKS if name in tokenizer.vocab}
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
    # Not by the ids in the file: those that are wrong there the library changes.
    names = tokenizer.never_in_texts
    return {number for number, entry in enumerate(tokenizer.vocab) if entry in names}
