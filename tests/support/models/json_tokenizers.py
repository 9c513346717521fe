"""Small tokenizers of the kinds that are not BERT's.

`python -m tests.support.models.json_tokenizers` trains them on the Python language reference and a
few sentences in other scripts, and writes tests/data/tokenizers. Trained again, they may differ:
tests/data/architectures.npz is made of the files that lie there.
"""

from pydoc_data.topics import topics

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.models.architectures import GOLDEN, SCRIPTS, TEXTS

_ENTRIES = 500
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_LINES = [line for text in list(topics.values())[:40] for line in text.splitlines()]
_LINES += [*TEXTS[:4], SCRIPTS, "Überraschung für die Straße", "こんにちは世界", "мы говорим"] * 5


def unigram() -> Tokenizer:
    """Unigram over Metaspace, as XLM-R and CamemBERT have it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=_ENTRIES, special_tokens=_SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def byte_level() -> Tokenizer:
    """Byte-level BPE, as RoBERTa has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=_ENTRIES,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_LINES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return tokenizer


def main() -> None:
    """Writes both."""
    folder = GOLDEN.parent / "tokenizers"
    folder.mkdir(exist_ok=True)
    unigram().save(str(folder / "unigram.json"))
    byte_level().save(str(folder / "byte_level.json"))


if __name__ == "__main__":
    main()
