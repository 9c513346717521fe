"""Small tokenizers of the kinds that are not BERT's.

`python -m tests.support.models.json_tokenizers` trains them on the Python language reference and a
few sentences in other scripts, and writes tests/data/tokenizers. Trained again, they may differ:
tests/data/architectures.npz is made of the files that lie there.
"""

from collections.abc import Sequence
from pydoc_data.topics import topics
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.models.architectures import GOLDEN, SCRIPTS, TEXTS

_ENTRIES = 500
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_LINES = [line for text in list(topics.values())[:40] for line in text.splitlines()]
_LINES += [*TEXTS[:4], SCRIPTS, "Überraschung für die Straße", "こんにちは世界", "мы говорим"] * 5


def unigram(
    lines: Sequence[str],
    entries: int,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None = None,
) -> Tokenizer:
    """Unigram, as XLM-R and CamemBERT have it."""
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    _train(tokenizer, lines, trainers.UnigramTrainer, entries, unk_token="<unk>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def byte_level(lines: Sequence[str], entries: int) -> Tokenizer:
    """Byte-level BPE, as RoBERTa has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _train(tokenizer, lines, trainers.BpeTrainer, entries, initial_alphabet=alphabet)
    ends = ("</s>", 2), ("<s>", 0)
    tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    return tokenizer


def word_piece() -> Tokenizer:
    """WordPiece that is not BERT's: another normalizer, and an added token that texts may hold."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), bert])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    _train(tokenizer, _LINES, trainers.WordPieceTrainer, _ENTRIES, special_tokens=special)
    tokenizer.add_tokens(["<user>"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _train(
    tokenizer: Tokenizer, lines: Sequence[str], trainer: Any, entries: int, **settings: Any
) -> None:
    usual = {"vocab_size": entries, "special_tokens": _SPECIAL, "show_progress": False}
    tokenizer.train_from_iterator(lines, trainer(**usual | settings))


def main() -> None:
    folder = GOLDEN.parent / "tokenizers"
    folder.mkdir(exist_ok=True)
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    as_xlm_r = unigram(_LINES, _ENTRIES, pre_tokenizers.Sequence(spaces), normalizers.NFKC())
    as_xlm_r.save(str(folder / "unigram.json"))
    byte_level(_LINES, _ENTRIES).save(str(folder / "byte_level.json"))
    word_piece().save(str(folder / "word_piece.json"))


if __name__ == "__main__":
    main()
