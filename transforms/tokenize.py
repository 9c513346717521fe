"""Tokenizes blocks of documents into the rows of token ids that the model takes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import apache_beam as beam
import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import take, text_hashes
from bert_embed.bundle.cache import worker_bundle
from bert_embed.settings import TextSpec
from bert_embed.text.documents import TextTokenizer
from bert_embed.text.layout import text_rows
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock, unknown_words
from bert_embed.transforms.parts import Rejected
from bert_embed.transforms.steps import RedactErrors, Step, activity, passed_as_block

_WORD_BORDER = "\x1f"  # the unit separator: keeps different lists of words different


@dataclass
class TokenizeBlocks(Step):
    """Tokenizes blocks of documents with the tokenizer of a bundle, opened on workers only."""

    bundle: str
    spec: TextSpec
    fingerprint: str = ""  # a bundle with another is rejected; "": any

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[TokenBlock]:
        passed_as_block(TokenBlock)
        return blocks | "Tokenize" >> beam.ParDo(
            _Tokenize(self.bundle, self.spec, self.fingerprint)
        )


class _Tokenize(beam.DoFn):
    def __init__(self, bundle: str, spec: TextSpec, fingerprint: str) -> None:
        self._place, self._spec = (bundle, fingerprint), spec

    def setup(self) -> None:
        with activity("fetching the model"):
            bundle = worker_bundle(*self._place, lambda _: [])  # no weights
        self._tokenizer = load_tokenizer(bundle)

    def process(self, block: DocumentBlock) -> Iterator[TokenBlock]:
        with RedactErrors("tokenize"):
            yield token_block(block, self._tokenizer, self._spec)


def token_block(block: DocumentBlock, tokenizer: TextTokenizer, spec: TextSpec) -> TokenBlock:
    """Tokenizes a block in one call; a text without tokens, or one too long, is rejected."""
    started = time.perf_counter()
    documents, layout = text_rows(
        tokenizer,
        spec,
        block.texts,
        texts_b=None if block.texts_b is None else [text or None for text in block.texts_b],
        words=block.words,
        contexts=block.contexts,
    )
    ids, sources = block.ids, block.sources
    rejected = tuple(
        Rejected(ids[row].as_py(), sources[row].as_py(), "tokenize", reason, block.texts[row])
        for row, reason in documents.rejected.items()
    )
    good = take(block, documents.numbers) if rejected else block
    tokens = documents.tokens
    unknown = unknown_words(tokens.ids, tokenizer.unk_id, tokenizer, tokens.row_splits)
    part = replace(block.part, unknown=unknown, cut_contexts=layout.cut_contexts)
    return TokenBlock(
        part=part.then("tokenize", time.perf_counter() - started, rejected),
        ids=good.ids,
        sources=good.sources,
        text_hash=hashed_texts(good),
        layout=layout,
        extra=good.extra,
        texts=pa.array(good.texts, pa.string()) if spec.keep_text else None,
    )


def hashed_texts(block: DocumentBlock) -> np.ndarray:
    """int64 `[documents]`: signed hashes of what a document has that decides its vectors.

    That is its text, second text, words and context.
    """
    texts = block.texts
    if block.words is not None:
        texts = [
            text if words is None else _WORD_BORDER.join(words)
            for text, words in zip(texts, block.words, strict=True)
        ]
    for others in (block.texts_b, block.contexts):
        if others is not None:
            texts = [
                f"{text}{_WORD_BORDER}{other}" if other else text
                for text, other in zip(texts, others, strict=True)
            ]
    return text_hashes(texts).view(np.int64)
