"""Encoder: texts in, vectors out, for Python people and for the pipeline's workers."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.bundle import Bundle
from bert.document_vectors import (
    GranularVectors,
    TextVectors,
    document_vectors,
    per_document,
)
from bert.documents import tokenize_documents
from bert.engine import Wanted
from bert.layout import Layout, is_too_long, lay_out
from bert.row_runner import EmbeddedRows, RowRunner, available_cores
from bert.rows import Rows
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec

if TYPE_CHECKING:
    from bert.tokenizer import Tokenizer


class Encoder:
    """A model in memory with its tokenizer; it may be called from several threads."""

    def __init__(
        self,
        bundle: Bundle,
        spec: VectorSpec | None = None,
        threads: int | None = None,
        prompt: str | None = None,
        precision: str = "float32",
        device: str = "auto",
        inference_timeout: float | None = None,
    ) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            spec: How vectors are made; None is the model's own way.
            threads: Processor cores to use; None takes all that this process may use.
            prompt: What stands before each text, a text or `name:` and the name that the model
                gives it; None is the model's default prompt, "" none.
            precision: What the products are computed in, one of `bert.engine.PRECISIONS`; vectors
                are float32 all the same.
            device: What computes, one of `bert.engine.DEVICES`.
            inference_timeout: Seconds after which a call gives up, with NoProgressError, if no
                batch ended meanwhile; None waits for ever.

        Raises:
            ValueError: The model cannot give such vectors, or not in this precision on this
                machine, or its files are damaged.
        """
        self.bundle = bundle
        self.spec = bundle.defaults if spec is None else spec
        bundle.check(self.spec)
        self.prompt = bundle.prompt_text(prompt)
        self.threads = available_cores() if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {self.threads}")
        self.tokenizer: Tokenizer = bundle.load_tokenizer()
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        self._runner = RowRunner(
            bundle, special, self.threads, precision, device, inference_timeout
        )

    def encode(
        self,
        texts: Sequence[str],
        texts_b: Sequence[str] | None = None,
        *,
        layers: Sequence[int] | None = None,
        layer_combine: str | None = None,
        pooling: str | None = None,
        pool_special_tokens: bool | None = None,
        normalize: bool | None = None,
        dim: int | None = None,
        prompt: str | None = None,
        max_seq_length: int | None = None,
        long_text: str = "truncate",
        stride: int | None = None,
        batch_tokens: int | None = None,
    ) -> np.ndarray:
        """Turns texts, or pairs of texts, into vectors.

        What is not given is as the encoder was loaded; see `bert.vector_spec.VectorSpec`.

        Args:
            texts: Any number of texts.
            texts_b: The second texts of pairs, as many as `texts`.
            layers: Hidden states taken.
            layer_combine: How several become one.
            pooling: How tokens become a vector.
            pool_special_tokens: Whether [CLS] and [SEP] count.
            normalize: Whether vectors have unit length.
            dim: Only the first so many numbers.
            prompt: What stands before each text, or `name:` and a name of the model's.
            max_seq_length: Most tokens of a row, special tokens included.
            long_text: "truncate", or "window" for the mean over windows of longer texts.
            stride: Tokens that neighbouring windows share; None is 64, or half of a short window.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.

        Returns:
            float32 `[texts, width]`, of a stack `[texts, layers, width]`.

        Raises:
            ValueError: A setting this model cannot follow, or texts that are no list of str.
            RuntimeError: The model failed on a text.
        """
        spec = spec_with(
            self.spec,
            layers=_listed_layers(layers),
            layer_combine=layer_combine,
            pooling=pooling,
            pool_special_tokens=pool_special_tokens,
            normalize=normalize,
            dim=dim,
        )
        before = self.prompt if prompt is None else self.bundle.prompt_text(prompt)
        length = self._length(max_seq_length)
        made = TextSpec(length, long_text=long_text, stride=stride, prompt=before)
        _, vectors = self._encode(spec, made, batch_tokens, **_columns(texts, texts_b))
        assert vectors.sentences is not None
        return vectors.sentences.reshape(-1, *spec.shape(self.bundle.config))

    def encode_tokens(
        self,
        texts: Sequence[str],
        texts_b: Sequence[str] | None = None,
        *,
        layers: Sequence[int] = (-1,),
        layer_combine: str | None = None,
        dim: int | None = None,
        normalize: bool = False,
        max_seq_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[TextVectors]:
        """Turns texts into the vectors of their tokens, [CLS] and [SEP] among them.

        Args:
            texts: Any number of texts; longer ones are cut.
            texts_b: The second texts of pairs, as many as `texts`.
            layers: Hidden states taken.
            layer_combine: How several become one; to be said for several.
            dim: Only the first so many numbers.
            normalize: Whether vectors have unit length.
            max_seq_length: Most tokens of a row, special tokens included.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.

        Returns:
            For each text its tokens, their places in it (-1 for special tokens), and float32
            `[tokens, width]`, of a stack `[tokens, layers, width]`.

        Raises:
            ValueError, RuntimeError: As `encode`.
        """
        made = TextSpec(self._length(max_seq_length), ("token",), normalize_tokens=normalize)
        spec = spec_with(
            VectorSpec(), layers=_listed_layers(layers), layer_combine=layer_combine, dim=dim
        )
        layout, vectors = self._encode(spec, made, batch_tokens, **_columns(texts, texts_b))
        tokens = layout.tokens
        assert tokens is not None
        assert vectors.tokens is not None
        names = self.tokenizer.tokens(tokens.ids)
        shaped = vectors.tokens.reshape(-1, *spec.token_shape(self.bundle.config))
        return per_document(tokens.splits, names, tokens.starts, tokens.stops, shaped)

    def encode_words(
        self,
        texts: Sequence[str | Sequence[str]],
        *,
        layers: Sequence[int] = (-1,),
        layer_combine: str | None = None,
        word_pooling: str = "mean",
        dim: int | None = None,
        normalize: bool = False,
        max_seq_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[TextVectors]:
        """Turns texts into the vectors of their words.

        Args:
            texts: Texts, whose words stand between white space, with punctuation as words of its
                own; or lists of words, which are kept one to one.
            layers: Hidden states taken.
            layer_combine: How several become one.
            word_pooling: How the tokens of a word become one vector.
            dim: Only the first so many numbers.
            normalize: Whether vectors have unit length.
            max_seq_length: Most tokens of a row, special tokens included.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.

        Returns:
            For each text its words, their places in it (a list of words is a text with a space
            between them), and float32 `[words, width]`; NaN for a word of a list that has no
            token, or none within `max_seq_length`.

        Raises:
            ValueError, RuntimeError: As `encode`.
        """
        made = TextSpec(
            self._length(max_seq_length),
            ("word",),
            word_pooling=word_pooling,
            normalize_tokens=normalize,
        )
        spec = spec_with(
            VectorSpec(), layers=_listed_layers(layers), layer_combine=layer_combine, dim=dim
        )
        words = [None if isinstance(text, str) else _listed("words", text) for text in texts]
        joined = [
            text if isinstance(text, str) else " ".join(own or ())
            for text, own in zip(texts, words, strict=True)
        ]
        given = words if any(own is not None for own in words) else None
        columns = _columns(joined) | {"words": given}
        layout, vectors = self._encode(spec, made, batch_tokens, **columns)
        found = layout.words
        assert found is not None
        assert vectors.words is not None
        vectors.words[found.first == found.last] = np.nan
        units = found.texts
        shaped = vectors.words.reshape(-1, *spec.token_shape(self.bundle.config))
        return per_document(units.splits, units.texts or [], units.starts, units.stops, shaped)

    def _length(self, asked: int | None) -> int:
        return self.bundle.max_seq_length if asked is None else asked

    def embed_rows(
        self,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        token_type_ids: np.ndarray | None = None,
        batch_tokens: int | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that hold their [CLS] and [SEP], as the encoder's `spec` says.

        Args:
            input_ids: int32 `[tokens]`, all rows end to end.
            row_splits: int64 `[rows + 1]`, where each row begins and ends.
            token_type_ids: int32 `[tokens]`, 1 for second texts; None is all 0.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.

        Returns:
            float32 `[rows, width]` in `vectors`.

        Raises:
            ValueError: A row over the model's positions, or an id out of its vocabulary.
            RuntimeError: Every one of several rows failed: the model is broken, not a row.
        """
        rows = input_ids, row_splits, token_type_ids
        return self._runner.run(self.spec, Wanted(), *rows, batch_tokens)

    def embed_documents(
        self,
        rows: Rows,
        row: np.ndarray,
        layout: Layout,
        made: TextSpec,
        batch_tokens: int | None = None,
        spec: VectorSpec | None = None,
    ) -> tuple[EmbeddedRows, GranularVectors]:
        """Embeds the rows that documents were cut to, all granularities in one pass.

        Args:
            rows: The distinct rows.
            row: int `[rows of the layout]`, which of these each is equal to.
            layout: How documents were cut to rows.
            made: What is wanted of them.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.
            spec: What a vector is made of; None is the encoder's own.

        Returns:
            What became of the rows, and the vectors of the documents; those of a document with a
            row that failed mean nothing.

        Raises:
            ValueError, RuntimeError: As `embed_rows`.
        """
        spec = spec or self.spec
        wanted = Wanted(
            sentences="sentence" in made.granularity,
            finished=made.long_text != "window" or made.keeps_windows,
            tokens=made.needs_tokens,
        )
        embedded = self._runner.run(
            spec,
            wanted,
            rows.input_ids,
            rows.row_splits,
            rows.token_type_ids,
            batch_tokens,
            self.tokenizer.prompt_length(made.prompt),
            made.max_seq_length,
        )
        stacked = len(spec.layers) if spec.layer_combine == "stack" else 1
        vectors = document_vectors(
            layout,
            embedded,
            row,
            rows.row_splits,
            made,
            lambda pooled: self._runner.finish(spec, pooled),
            stacked,
        )
        return embedded, vectors

    def _encode(
        self, spec: VectorSpec, made: TextSpec, batch_tokens: int | None, **columns: Any
    ) -> tuple[Layout, GranularVectors]:
        """Embeds columns as `tokenize_documents` takes them; an empty text is [CLS] and [SEP]."""
        self.bundle.check(spec)
        made = self.bundle.fit_texts(made, self.tokenizer)
        documents = tokenize_documents(
            self.tokenizer, offsets=made.needs_tokens, prompt=made.prompt, **columns
        )
        if made.long_text == "reject" and (too_long := is_too_long(documents, made)).any():
            raise ValueError(
                f"texts number {int(np.argmax(too_long))} is longer than {made.max_seq_length} "
                "tokens; long_text truncate or window takes it"
            )
        rows, layout = lay_out(documents, made, self.tokenizer)
        every = np.arange(len(rows.row_splits) - 1)
        embedded, vectors = self.embed_documents(rows, every, layout, made, batch_tokens, spec)
        if embedded.failed:
            row, reason = min(embedded.failed.items())
            texts = every if layout.windows is None else layout.windows.document
            failed = len(set(texts[list(embedded.failed)].tolist()))
            raise RuntimeError(f"{failed} texts failed, the first is {texts[row]}: {reason}")
        return layout, vectors


def spec_with(spec: VectorSpec, **changes: Any) -> VectorSpec:
    """Returns `spec` with some fields changed; None leaves a field as it is.

    Raises:
        ValueError: An unknown field, a value it cannot have, or several layers without a word on
            how they become one vector.
    """
    names = {one.name for one in fields(VectorSpec)}
    unknown = sorted(set(changes) - names)
    if unknown:
        raise ValueError(f"{unknown[0]} is no setting, those are {', '.join(sorted(names))}")
    given = {name: value for name, value in changes.items() if value is not None}
    layers = given.get("layers", ())
    if not isinstance(layers, int) and len(layers) > 1 and "layer_combine" not in given:
        raise ValueError(
            f"--layers names {len(layers)} layers: say how they become one vector, "
            "--layer_combine sum, mean, concat, stack, or last for the highest of them"
        )
    return replace(spec, **given)


def _listed_layers(layers: Sequence[int] | None) -> tuple[int, ...] | None:
    if isinstance(layers, str):
        raise ValueError(f"layers must be a list of numbers, such as [-1, -2], got {layers!r}")
    return None if layers is None else tuple(layers)


def _columns(texts: Sequence[str], texts_b: Sequence[str] | None = None) -> dict[str, Any]:
    first = _listed("texts", texts)
    second = None if texts_b is None else _listed("texts_b", texts_b)
    if second is not None and len(second) != len(first):
        raise ValueError(f"texts_b must be {len(first)} texts, got {len(second)}")
    return {"texts": first, "texts_b": second}


def _listed(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise ValueError(f"{name} must be a list of texts, got one {type(texts).__name__}")
    for place, text in enumerate(listed := list(texts)):
        if not isinstance(text, str):
            raise ValueError(f"{name} must be str, number {place} is {type(text).__name__}")
    return listed
