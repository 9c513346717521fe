"""Encodes texts as vectors, for users of the Python API."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.prompts import DOCUMENT, QUERY, first_name
from bert_embed.calls.settings import (
    CallSettings,
    EncodeSettings,
    TextSettings,
    UnitSettings,
    changed_spec,
)
from bert_embed.calls.similarity import cosine_matrix, cosine_pairs
from bert_embed.calls.texts import Columns, in_pieces, span_columns, text_columns, word_columns
from bert_embed.embedder import Embedder
from bert_embed.engines.choose import EngineLoader, load_engine
from bert_embed.heads.multi import MultiHead
from bert_embed.heads.sparse import SparseHead
from bert_embed.heads.vectors import MultiVectors, SparseVectors
from bert_embed.rows.fit import fit_texts
from bert_embed.rows.layout import Layout, Units
from bert_embed.rows.to_documents import GranularVectors, TextVectors, per_document
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError


class TruncationWarning(UserWarning):
    """Texts were cut, and the call did not say what to do with long texts."""


class Encoder:
    """A loaded model that encodes texts; `bert_embed.load` makes one. Several threads may call it.

    Args:
        bundle: The model.
        spec: How vectors are computed; None is the model's own settings.
        threads: Number of processor cores to use; None uses all that this process may use.
        prompt: Text to put before each text, or `name:` followed by the name of one of the
            model's prompts; None is the model's default, "" is no prompt.
        precision: Number type of the matrix products, one of
            `bert_embed.engines.choose.PRECISIONS`; vectors are always float32.
        device: One of `bert_embed.engines.choose.DEVICES`.
        load_engine: Loads the engine that runs the batches.

    Attributes:
        device: What computes: "cpu", "gpu" or "tpu".
        embedder: The loaded model, as workers of a pipeline use it.

    Raises:
        SettingError: The model does not support such vectors, or this machine the precision.
        InputError: The model's files are damaged.
    """

    def __init__(
        self,
        bundle: Bundle,
        spec: VectorSpec | None = None,
        threads: int | None = None,
        prompt: str | None = None,
        precision: str = "float32",
        device: str = "auto",
        load_engine: EngineLoader = load_engine,
    ) -> None:
        self._arguments = spec, threads, prompt, precision, device, load_engine
        self.bundle, self.prompt = bundle, bundle.prompt_text(prompt)
        self._max_seq_length = bundle.max_seq_length
        embedder = Embedder(bundle, spec, threads, precision, device, load_engine)
        self.spec, self.threads, self.tokenizer = (
            embedder.spec,
            embedder.threads,
            embedder.tokenizer,
        )
        self.precision, self.device = precision, embedder.device
        self.embedder = embedder

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the model anew."""
        return (
            type(self),
            (self.bundle, *self._arguments),
            {"_max_seq_length": self._max_seq_length},
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Encoder":
        """Returns an encoder with the same model in memory; scikit-learn copies often."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __setattr__(self, name: str, value: Any) -> None:
        if "embedder" in vars(self) and name != "max_seq_length" and not name.startswith("_"):
            raise AttributeError(f"{name} cannot be set: give it to bert_embed.load or to the call")
        super().__setattr__(name, value)

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

    @property
    def max_seq_length(self) -> int:
        """Maximum number of tokens of a row, where a call names none; it can be set."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        fit_texts(self.bundle, TextSpec(length))
        self._max_seq_length = length

    def encode(
        self,
        texts: str | Iterable[str],
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> NDArray[np.float32]:
        """Encodes texts, or pairs of texts.

        Args:
            texts: One text, or a column of them: a list, a generator, or a column of NumPy, pandas,
                Polars or Arrow.
            texts_b: The second texts of pairs, as many as `texts`, which then is a list.
            **settings: What differs from the encoder's own settings:
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
        return self._encode_texts(texts, texts_b, settings)

    def encode_query(
        self, texts: str | Iterable[str], **settings: Unpack[EncodeSettings]
    ) -> NDArray[np.float32]:
        """Encodes texts as `encode` does, with the model's prompt "query" if it has one."""
        return self._encode_texts(texts, None, self._prompted(settings, QUERY))

    def encode_document(
        self, texts: str | Iterable[str], **settings: Unpack[EncodeSettings]
    ) -> NDArray[np.float32]:
        """Encodes texts with the model's prompt "document", "passage" or "corpus", if any."""
        prompted = self._prompted(settings, DOCUMENT)
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
            texts, texts_b: As `encode` takes them.
            **settings: What differs from the encoder's own settings:
                `bert_embed.calls.settings.UnitSettings`.

        Returns:
            For one text, or for each, its tokens, their spans in it (-1 for special tokens and the
            prompt's), and float32 `[tokens, dim]`, for a stack `[tokens, layers, dim]`.

        It raises and warns as `encode` does.
        """
        one = isinstance(texts, str)
        columns = text_columns(texts, texts_b)
        layout, vectors, shape = self._encode_units("token", columns, settings)
        tokens = layout.tokens
        assert tokens is not None
        assert vectors.tokens is not None
        names = self.tokenizer.tokens(tokens.ids)
        shaped = vectors.tokens.reshape(-1, *shape)
        per_text = per_document(tokens.splits, names, tokens.starts, tokens.stops, shaped)
        return per_text[0] if one else per_text

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

        It raises and warns as `encode` does.
        """
        one = isinstance(texts, str)
        columns = word_columns([texts] if one else texts)
        layout, vectors, shape = self._encode_units("word", columns, settings, word_pooling)
        assert layout.words is not None
        words = layout.words.texts.texts or []
        per_text = _per_text(layout.words, words, vectors.words, shape)
        return per_text[0] if one else per_text

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

        It raises and warns as `encode` does.
        """
        columns = span_columns(texts, spans)
        layout, vectors, shape = self._encode_units("span", columns, settings, word_pooling)
        assert layout.spans is not None
        parts = [
            text[start:stop]
            for text, ranges in zip(columns["texts"], columns["spans"], strict=True)
            for start, stop in ranges
        ]
        return _per_text(layout.spans, parts, vectors.spans, shape)

    def encode_sparse(
        self,
        texts: str | Iterable[str],
        *,
        top_k: int | None = None,
        min_weight: float = 0.0,
        **settings: Unpack[TextSettings],
    ) -> SparseVectors:
        """Encodes texts as sparse vectors: weights of entries of the model's vocabulary.

        Args:
            texts: One text, or a column of them, as `encode` takes them.
            top_k: How many weights of a text to keep, the largest ones; None keeps all.
            min_weight: The smallest weight to keep.
            **settings: What differs from the encoder's own settings:
                `bert_embed.calls.settings.TextSettings` lists them.

        Returns:
            A row for each text; the product of two rows says how similar their texts are.
            `scipy.sparse.csr_array((rows.values, rows.indices, rows.splits))` is its matrix.

        Raises:
            SettingError: The model makes no sparse vectors, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        columns = text_columns(texts)
        prune: dict[str, Any] = {"top_k": top_k, "min_weight": min_weight}
        vectors = self._encode_by_head("sparse", columns, settings, **prune).sparse
        assert vectors is not None
        return vectors

    def encode_sparse_query(
        self, texts: str | Iterable[str], **settings: Unpack[TextSettings]
    ) -> SparseVectors:
        """Encodes queries as `encode_sparse` does, with the model's prompt "query" if it has one.

        The queries of some models need no run of the model: the weight of each of a query's tokens
        is a constant.
        """
        prompted = self._prompted(settings, QUERY)
        head = self.bundle.heads.get("sparse")
        if not isinstance(head, SparseHead) or not head.query_weights:
            return self.encode_sparse(texts, **prompted)
        return self._weigh_queries(text_columns(texts), prompted)

    def encode_multi(
        self, texts: str | Iterable[str], *, pool_factor: int = 1, **settings: Unpack[TextSettings]
    ) -> MultiVectors:
        """Encodes documents as multi-vectors, for late interaction: a vector for each token.

        Args:
            texts: One text, or a column of them, as `encode` takes them.
            pool_factor: How many similar vectors of a text become one, by their mean.
            **settings: What differs from the encoder's own settings:
                `bert_embed.calls.settings.TextSettings` lists them.

        Returns:
            A row for each text; `rows()` gives them as float32 `[tokens, dim]` each. Tokens that
            the model leaves out, such as punctuation, are not among them.

        Raises:
            SettingError: The model makes no multi-vectors, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        columns = text_columns(texts)
        prompted = self._prompted(settings, DOCUMENT)
        vectors = self._encode_by_head("multi", columns, prompted, pool_factor=pool_factor).multi
        assert vectors is not None
        return vectors

    def encode_multi_query(
        self, texts: str | Iterable[str], **settings: Unpack[TextSettings]
    ) -> MultiVectors:
        """Encodes queries for the documents of `encode_multi`, filled up where the model does so.

        The score of a document is the sum, over the vectors of a query, of the largest product
        with one of its vectors (MaxSim).
        """
        return self._encode_multi_queries(text_columns(texts), self._prompted(settings, QUERY))

    def encode_scores(
        self,
        texts: str | Iterable[str],
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[TextSettings],
    ) -> NDArray[np.float32]:
        """Gives the scores of a classifier, of a regression, or of a cross-encoder's pairs.

        Args:
            texts, texts_b: As `encode` takes them; a cross-encoder's queries and documents.
            **settings: What differs from the encoder's own settings:
                `bert_embed.calls.settings.TextSettings` lists them.

        Returns:
            float32 `[texts, labels]`, for one text without the first axis: probabilities, or what
            the model's regression gives. `encoder.bundle.heads["scores"].labels` names the labels.

        Raises:
            SettingError: The model makes no scores, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        one = isinstance(texts, str)
        columns = text_columns(texts, texts_b)
        scores = self._encode_by_head("scores", columns, settings).scores
        assert scores is not None
        return scores[0] if one else scores

    def similarity(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns the cosine of each vector of `one` and each of `other`, float32 `[n, m]`.

        Args:
            one: Numbers `[n, dim]`, or one vector `[dim]`; a vector of zeros has the cosine 0.
            other: Numbers `[m, dim]`, or one vector `[dim]`.

        Raises:
            SettingError: They are no such arrays.
        """
        return cosine_matrix(one, other)

    def similarity_pairwise(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns the cosine of each vector of `one` and the same one of `other`, float32 `[n]`."""
        return cosine_pairs(one, other)

    def _prompted(self, settings: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Adds the first prompt of these names that the model has, unless the call gives one."""
        known = first_name(self.bundle.prompts, names)
        if known is None or settings.get("prompt") is not None:
            return settings
        return {**settings, "prompt": f"name:{known}"}

    def _encode_texts(
        self,
        texts: str | Iterable[str],
        texts_b: Iterable[str] | None,
        settings: Mapping[str, Any],
    ) -> Any:
        one = isinstance(texts, str)
        columns = text_columns(texts, texts_b)
        call = CallSettings.sort(settings, EncodeSettings)
        spec = changed_spec(self.spec, self.bundle.config, **call.vectors)
        self.bundle.check(spec)
        text_spec = self._text_spec(call.texts)
        done: list[np.ndarray] = []
        cut: list[np.ndarray] = []
        for piece in in_pieces(columns, call.progress):
            layout, vectors = self.embedder.embed_columns(
                piece, text_spec, call.batch_tokens, spec, sum(map(len, done))
            )
            assert vectors.sentences is not None
            done.append(vectors.sentences)
            cut.append(layout.truncated)
        self._warn_of_cuts(np.concatenate(cut), call, text_spec)
        joined = np.concatenate(done) if len(done) > 1 else done[0]
        shaped = joined.reshape(-1, *spec.shape(self.bundle.config))
        return shaped[0] if one else shaped

    def _encode_units(
        self, kind: str, columns: Columns, settings: UnitSettings, word_pooling: str = "mean"
    ) -> tuple[Layout, GranularVectors, tuple[int, ...]]:
        """Returns, beside the result of `embed_columns`, the shape of a vector."""
        call = CallSettings.sort(settings, UnitSettings)
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
        layout, vectors = self.embedder.embed_columns(columns, text_spec, call.batch_tokens, spec)
        self._warn_of_cuts(layout.truncated, call, text_spec)
        return layout, vectors, shape

    def _encode_by_head(
        self, kind: str, columns: Columns, settings: Mapping[str, Any], **vectors: Any
    ) -> GranularVectors:
        call = CallSettings.sort(settings, TextSettings)
        self.bundle.check_vectors((kind,))
        text_spec = self._text_spec(call.texts, vectors=(kind,), **vectors)
        layout, encoded = self.embedder.embed_columns(columns, text_spec, call.batch_tokens)
        self._warn_of_cuts(layout.truncated, call, text_spec)
        return encoded

    def _weigh_queries(self, columns: Columns, settings: Mapping[str, Any]) -> SparseVectors:
        call = CallSettings.sort(settings, TextSettings)
        text_spec = self._text_spec(call.texts)
        cut, vectors = self.embedder.weigh_queries(columns["texts"], text_spec)
        self._warn_of_cuts(cut, call, text_spec)
        return vectors

    def _encode_multi_queries(self, columns: Columns, settings: Mapping[str, Any]) -> MultiVectors:
        call = CallSettings.sort(settings, TextSettings)
        self.bundle.check_vectors(("multi",))
        head = self.bundle.heads["multi"]
        assert isinstance(head, MultiHead)
        if call.texts.get("long_text") == "window":
            raise SettingError("long_text", "window is for documents, not for queries")
        if head.query_length is not None:
            call.texts.setdefault("max_seq_length", head.query_length)
        text_spec = self._text_spec(call.texts, vectors=("multi",))
        layout, vectors = self.embedder.embed_multi_queries(
            head, columns, text_spec, call.batch_tokens, self.max_seq_length
        )
        self._warn_of_cuts(layout.truncated, call, text_spec)
        return vectors

    def _text_spec(self, texts: Mapping[str, Any], **units: Any) -> TextSpec:
        length, prompt = texts.get("max_seq_length", self.max_seq_length), texts.get("prompt")
        prompt = self.prompt if prompt is None else self.bundle.prompt_text(prompt)
        changes = {name: texts[name] for name in ("long_text", "stride") if name in texts}
        text_spec = TextSpec(length, prompt=prompt, **changes, **units)
        return fit_texts(self.bundle, text_spec, self.tokenizer)

    def _warn_of_cuts(self, cut: np.ndarray, call: CallSettings, text_spec: TextSpec) -> None:
        """Warns if some of the texts, bool `[texts]`, were cut, and the call did not ask for it."""
        if cut.any() and "long_text" not in call.texts:
            message = self.embedder.truncation(int(cut.sum()), len(cut), text_spec)
            # The level is where `encode` or another method was called.
            warnings.warn(message, TruncationWarning, stacklevel=4)


def _per_text(
    units: Units, texts: Sequence[str], vectors: np.ndarray | None, shape: tuple[int, ...]
) -> list[TextVectors]:
    """The words or spans of each text, float32 `[units, width]`; NaN for those without a token."""
    assert vectors is not None
    vectors[units.first == units.last] = np.nan
    at = units.texts
    return per_document(at.splits, texts, at.starts, at.stops, vectors.reshape(-1, *shape))
