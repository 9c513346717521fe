"""Encodes texts as vectors, for users of the Python API and for the pipeline's workers."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.calls.settings import (
    CallSettings,
    EncodeSettings,
    UnitSettings,
    changed_spec,
    prompt_setting,
)
from bert_embed.calls.similarity import cosine_matrix, cosine_pairs
from bert_embed.calls.texts import Columns, in_pieces, span_columns, text_columns, word_columns
from bert_embed.graph.load import fit_texts
from bert_embed.habits import missing_attribute
from bert_embed.row_encoder import RowEncoder
from bert_embed.rows.documents import tokenize_documents
from bert_embed.rows.layout import Layout, is_too_long, lay_out
from bert_embed.rows.to_documents import GranularVectors, TextVectors, per_document
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted, counted_of


class TruncationWarning(UserWarning):
    """Texts were cut, and the call did not say what to do with long texts."""


class Encoder(RowEncoder):
    """A loaded model that encodes texts. Several threads may call it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "_runner" in vars(self) and name != "max_seq_length" and not name.startswith("_"):
            raise AttributeError(f"{name} cannot be set: give it to bert_embed.load or to the call")
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Encoder", name)

    def __repr__(self) -> str:
        spec = self.spec
        name = self.bundle.source or self.bundle.path
        return (
            f"Encoder({name!r}, dimension={self.dimension}, layers={spec.layers}, "
            f"pooling={spec.pooling!r}, max_seq_length={self.max_seq_length}, "
            f"precision={self.precision!r}, device={self.device!r})"
        )

    @property
    def dimension(self) -> int:
        """How many numbers a vector of `encode` has; of a stack, each of its layers."""
        return self.spec.shape(self.bundle.config)[-1]

    def get_sentence_embedding_dimension(self) -> int:
        """Returns `dimension`, under its name in sentence-transformers."""
        return self.dimension

    def get_embedding_dimension(self) -> int:
        """Returns `dimension`, under its name in sentence-transformers since version 6."""
        return self.dimension

    @property
    def max_seq_length(self) -> int:
        """Maximum number of tokens of a row, where a call names none; it can be set."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        fit_texts(self.bundle, TextSpec(length))
        self._max_seq_length = self.tokenizer.model_max_length = length

    def encode(
        self,
        texts: str | Iterable[str] | None = None,
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> NDArray[np.float32]:
        """Encodes texts, or pairs of texts.

        Args:
            texts: One text, or a column of them: a list, a generator, or a column of NumPy, pandas,
                Polars or Arrow.
            texts_b: The second texts of pairs, as many as `texts`, which then is a list.
            **settings: What differs from the encoder's own settings, and sentence-transformers'
                keywords (its `sentences` or `inputs` are `texts`):
                `bert_embed.calls.settings.EncodeSettings` lists them.

        Returns:
            float32 `[texts, dim]`, for a stack `[texts, layers, dim]`; for one text without the
            first axis.

        Raises:
            SettingError: The model does not support a setting, or `texts` is not a list of str.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: Texts were cut, and `long_text` was not given.
        """
        given: dict[str, Any] = dict(settings)
        columns = {"texts": texts} if texts is not None else {}
        columns |= {name: given.pop(name) for name in ("sentences", "inputs") if name in given}
        if len(columns) > 1:
            first, second, *_ = columns
            raise SettingError(second, f"is another name of {first}: give one of them")
        return self._encode_texts(next(iter(columns.values()), None), texts_b, given)

    def encode_query(
        self, texts: str | Iterable[str], **settings: Unpack[EncodeSettings]
    ) -> NDArray[np.float32]:
        """Encodes texts as `encode` does, with the model's prompt "query" if it has one."""
        return self._encode_texts(texts, None, self._prompted(settings, "query"))

    def encode_document(
        self, texts: str | Iterable[str], **settings: Unpack[EncodeSettings]
    ) -> NDArray[np.float32]:
        """Encodes texts with the model's prompt "document", "passage" or "corpus", if any."""
        prompted = self._prompted(settings, "document", "passage", "corpus")
        return self._encode_texts(texts, None, prompted)

    @overload
    def encode_tokens(  # type: ignore[overload-overlap]  # one text is an Iterable[str], too
        self, texts: str, **settings: Unpack[UnitSettings]
    ) -> TextVectors: ...
    @overload
    def encode_tokens(
        self,
        texts: Iterable[str],
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[UnitSettings],
    ) -> list[TextVectors]: ...
    def encode_tokens(
        self,
        texts: str | Iterable[str],
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[UnitSettings],
    ) -> TextVectors | list[TextVectors]:
        """Encodes the tokens of texts, [CLS], [SEP] and the prompt's tokens included.

        Args:
            texts: One text, or a column of them, as `encode` takes it.
            texts_b: The second texts of pairs, as many as `texts`, which then is a list.
            **settings: What differs from the encoder's own settings:
                `bert_embed.calls.settings.UnitSettings`.

        Returns:
            For one text, or for each, its tokens, their spans in it (-1 for special tokens and the
            prompt's), and float32 `[tokens, dim]`, for a stack `[tokens, layers, dim]`.

        Raises:
            SettingError, RuntimeError: As `encode`.

        Warns:
            TruncationWarning: As `encode`.
        """
        one = isinstance(texts, str)
        _check_pairs(one, texts_b)
        columns = text_columns([texts] if one else texts, texts_b)
        layout, vectors, shape = self._encode_units("token", columns, settings)
        tokens = layout.tokens
        assert tokens is not None
        assert vectors.tokens is not None
        names = self.tokenizer.tokens(tokens.ids)
        shaped = vectors.tokens.reshape(-1, *shape)
        found = per_document(tokens.splits, names, tokens.starts, tokens.stops, shaped)
        return found[0] if one else found

    @overload
    def encode_words(  # type: ignore[overload-overlap]
        self, texts: str, *, word_pooling: str = "mean", **settings: Unpack[UnitSettings]
    ) -> TextVectors: ...
    @overload
    def encode_words(
        self,
        texts: Iterable[str | Iterable[str]],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> list[TextVectors]: ...
    def encode_words(
        self,
        texts: str | Iterable[str | Iterable[str]],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> TextVectors | list[TextVectors]:
        """Encodes the words of texts.

        Args:
            texts: One text, or a column of texts, which are split at white space and punctuation,
                or of lists of words.
            word_pooling: How the vectors of a word's tokens become one vector.
            **settings: As `encode_tokens`.

        Returns:
            For one text, or for each, its words, their spans in it (for a list of words, in the
            words joined by spaces), and float32 `[words, dim]`; NaN for a word of a list that has
            no token, or none within `max_seq_length`.

        Raises:
            SettingError, RuntimeError: As `encode`.

        Warns:
            TruncationWarning: As `encode`.
        """
        one = isinstance(texts, str)
        columns = word_columns([texts] if one else texts)
        layout, vectors, shape = self._encode_units("word", columns, settings, word_pooling)
        assert layout.words is not None
        assert vectors.words is not None
        vectors.words[layout.words.first == layout.words.last] = np.nan
        units = layout.words.texts
        shaped = vectors.words.reshape(-1, *shape)
        found = per_document(units.splits, units.texts or [], units.starts, units.stops, shaped)
        return found[0] if one else found

    def encode_spans(
        self,
        texts: Iterable[str | Iterable[str]],
        spans: Iterable[Iterable[tuple[int, int]]],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> list[TextVectors]:
        """Encodes parts of texts, each from its tokens in the context of the whole text.

        Args:
            texts: Texts, or lists of words.
            spans: For each text its spans (start, stop), in characters, or in words where the
                text is a list of words; `stop` is exclusive. They may overlap.
            word_pooling: How the vectors of a span's tokens become one vector.
            **settings: As `encode_tokens`.

        Returns:
            For each text its spans, their places in it (for a list of words, in the words joined by
            spaces), and float32 `[spans, dim]`; NaN for a span that has no token, or none within
            `max_seq_length`.

        Raises:
            SettingError, RuntimeError: As `encode`.

        Warns:
            TruncationWarning: As `encode`.
        """
        columns = span_columns(texts, spans)
        layout, vectors, shape = self._encode_units("span", columns, settings, word_pooling)
        assert layout.spans is not None
        assert vectors.spans is not None
        vectors.spans[layout.spans.first == layout.spans.last] = np.nan
        units = layout.spans.texts
        parts = [
            text[start:stop]
            for text, some in zip(columns["texts"], columns["spans"], strict=True)
            for start, stop in some
        ]
        shaped = vectors.spans.reshape(-1, *shape)
        return per_document(units.splits, parts, units.starts, units.stops, shaped)

    def similarity(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns the cosine of each vector of `one` and each of `other`.

        Args:
            one: Numbers `[n, dim]`, or one vector `[dim]`.
            other: Numbers `[m, dim]`, or one vector `[dim]`.

        Returns:
            float32 `[n, m]`; 0 for a vector of zeros.

        Raises:
            SettingError: They are no such arrays.
        """
        return cosine_matrix(one, other)

    def similarity_pairwise(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns the cosine of each vector of `one` and the same one of `other`, float32 `[n]`."""
        return cosine_pairs(one, other)

    def _prompted(self, settings: EncodeSettings, *names: str) -> EncodeSettings:
        """Adds the first prompt of these names that the model has, unless the call names one."""
        known = next((name for name in names if name in self.bundle.prompts), None)
        if known is None or prompt_setting(settings) is not None:
            return settings
        return {**settings, "prompt_name": known}

    def _encode_texts(
        self,
        texts: str | Iterable[str] | None,
        texts_b: Iterable[str] | None,
        settings: Mapping[str, Any],
    ) -> Any:
        one = isinstance(texts, str)
        _check_pairs(one, texts_b)
        columns = text_columns([texts] if one else texts, texts_b)
        call = CallSettings.of_texts(settings, self.device)
        spec = changed_spec(self.spec, self.bundle.config, **call.vectors)
        self.bundle.check(spec)
        text_spec, cut = self._text_spec(call.texts), 0
        done: list[np.ndarray] = []
        for piece in in_pieces(columns, call.form.progress):
            layout, vectors = self._encode(spec, text_spec, call, piece, sum(map(len, done)))
            assert vectors.sentences is not None
            done.append(vectors.sentences)
            cut += int(layout.truncated.sum())
        self._warn_of_cuts(cut, len(columns["texts"]), call, text_spec)
        joined = np.concatenate(done) if len(done) > 1 else done[0]
        shaped = joined.reshape(-1, *spec.shape(self.bundle.config))
        return call.form.of(shaped[0] if one else shaped, one)

    def _encode_units(
        self, kind: str, columns: Columns, settings: UnitSettings, word_pooling: str = "mean"
    ) -> tuple[Layout, GranularVectors, tuple[int, ...]]:
        """Returns, beside `_encode`'s result, the shape of a vector."""
        call = CallSettings.of_units(settings)
        # What only concerns vectors of texts does not apply to their parts.
        base = replace(self.spec, pooling="mean", dense=0, normalize=False, dim=None)
        # The encoder's dim may be one of pooled vectors, which can be wider than a token's.
        if (self.spec.dim or 0) <= base.token_shape(self.bundle.config)[-1]:
            base = replace(base, dim=self.spec.dim)
        normalize = call.vectors.pop("normalize", False)
        spec = changed_spec(base, self.bundle.config, **call.vectors)
        shape = spec.token_shape(self.bundle.config)
        text_spec = self._text_spec(
            call.texts, granularity=(kind,), word_pooling=word_pooling, normalize_tokens=normalize
        )
        layout, vectors = self._encode(spec, text_spec, call, columns, 0)
        self._warn_of_cuts(int(layout.truncated.sum()), len(columns["texts"]), call, text_spec)
        return layout, vectors, shape

    def _text_spec(self, texts: Mapping[str, Any], **more: Any) -> TextSpec:
        prompt = prompt_setting(texts)
        text_spec = TextSpec(
            texts.get("max_seq_length", self.max_seq_length),
            long_text=texts.get("long_text", "truncate"),
            stride=texts.get("stride"),
            prompt=self.prompt if prompt is None else self.bundle.prompt_text(prompt),
            **more,
        )
        return fit_texts(self.bundle, text_spec, self.tokenizer)

    def _warn_of_cuts(self, cut: int, total: int, call: CallSettings, text_spec: TextSpec) -> None:
        if cut == 0 or "long_text" in call.texts:
            return
        length, most = text_spec.max_seq_length, self.bundle.config.max_position_embeddings
        more = f"max_seq_length up to {most} keeps more of it, " if length < most else ""
        were_cut = counted_of(cut, total, "text", "was cut", "were cut")
        warnings.warn(
            f"{were_cut} at {length} tokens: long_text='window' takes all of a text, "
            f"{more}long_text='truncate' cuts without this warning",
            TruncationWarning,
            stacklevel=4,  # where `encode` or another method was called
        )

    def _encode(
        self, spec: VectorSpec, text_spec: TextSpec, call: CallSettings, columns: Columns, at: int
    ) -> tuple[Layout, GranularVectors]:
        """Embeds texts, which may be empty; `at` is the first one's number, for messages."""
        documents = tokenize_documents(
            self.tokenizer, offsets=text_spec.needs_tokens, prompt=text_spec.prompt, **columns
        )
        if (
            text_spec.long_text == "reject"
            and (too_long := is_too_long(documents, text_spec, self.tokenizer)).any()
        ):
            raise SettingError(
                "texts",
                f"number {at + int(np.argmax(too_long))} is longer than "
                f"{text_spec.max_seq_length} tokens; set long_text to truncate or window",
                "long_text",
            )
        rows, layout = lay_out(documents, text_spec, self.tokenizer)
        every = np.arange(len(rows.row_splits) - 1)
        batch_tokens = call.texts.get("batch_tokens")
        embedded, vectors = self.embed_layout(rows, every, layout, text_spec, batch_tokens, spec)
        if embedded.failed:
            row, reason = min(embedded.failed.items())
            texts = every if layout.windows is None else layout.windows.document
            failed = len(set(texts[list(embedded.failed)].tolist()))
            raise RuntimeError(
                f"{counted(failed, 'text')} failed, the first is {at + texts[row]}: {reason}"
            )
        return layout, vectors


def _check_pairs(one: bool, texts_b: Iterable[str] | None) -> None:
    if isinstance(texts_b, str):
        raise SettingError(
            "texts_b",
            "must be a list of texts, got one str; a pair is encode([one], [other]), the name of a "
            "prompt is prompt_name",
        )
    if one and texts_b is not None:
        raise SettingError("texts_b", "is for pairs, texts must be a list then")
