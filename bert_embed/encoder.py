"""Encodes texts as vectors, for users of the Python API."""

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.backends.choose import EngineLoader, load_engine
from bert_embed.base.arguments import known_names, one_of
from bert_embed.base.errors import SettingError, required
from bert_embed.bundle.bundle import DOCUMENT, QUERY, Bundle, query_prompt
from bert_embed.calls import (
    Columns,
    dense_matrix,
    dense_pairs,
    in_pieces,
    kind_pair,
    product_matrix,
    product_pairs,
    span_columns,
    text_columns,
    word_columns,
)
from bert_embed.model import Embedder
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.sparse import SparseHead
from bert_embed.models.heads.vectors import (
    VECTOR_KINDS,
    MultiVector,
    MultiVectors,
    SparseVector,
    SparseVectors,
)
from bert_embed.settings import (
    CallSettings,
    EncodeSettings,
    MultiSettings,
    SparseSettings,
    TextSettings,
    TextSpec,
    UnitSettings,
    VectorSpec,
    changed_spec,
)
from bert_embed.text.layout import (
    GranularVectors,
    Layout,
    TextVectors,
    Units,
    fit_texts,
    per_document,
)

Kind = Literal["dense", "sparse", "multi", "scores"]
# What to call for the kinds of vectors that `encode` does not give unasked
_CALLS = {
    "encode": {"sparse": "encode_sparse", "multi": "encode_multi", "scores": "encode_scores"},
    "encode_query": {"sparse": "encode_sparse_query", "multi": "encode_multi_query"},
    "encode_document": {"sparse": "encode_sparse", "multi": "encode_multi"},
}

_PRUNES = ("top_k", "min_weight")


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
            `bert_embed.backends.choose.PRECISIONS`; vectors are always float32.
        device: One of `bert_embed.backends.choose.DEVICES`.
        load_engine: Loads the engine that runs the batches.
        engine: Its name where several compute so on the device, such as "litert", "tensorflow";
            None is the first of `bert_embed.backends.choose.TABLE` that is installed.

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
        engine: str | None = None,
    ) -> None:
        self._arguments = spec, threads, prompt, precision, device, load_engine, engine
        self.bundle, self.prompt = bundle, bundle.prompt_text(prompt)
        self._max_seq_length = bundle.max_seq_length
        embedder = Embedder(bundle, spec, threads, precision, device, load_engine, engine=engine)
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

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        texts_b: Iterable[str] | None = None,
        *,
        kind: Literal["dense", "scores"] | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> NDArray[np.float32]: ...
    @overload
    def encode(  # type: ignore[overload-overlap]  # one text is an Iterable[str], too
        self, texts: str, *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVector: ...
    @overload
    def encode(
        self, texts: Iterable[str], *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVectors: ...
    @overload
    def encode(  # type: ignore[overload-overlap]
        self, texts: str, *, kind: Literal["multi"], **settings: Unpack[MultiSettings]
    ) -> MultiVector: ...
    @overload
    def encode(
        self, texts: Iterable[str], *, kind: Literal["multi"], **settings: Unpack[MultiSettings]
    ) -> MultiVectors: ...
    def encode(
        self,
        texts: str | Iterable[str] | None = None,
        texts_b: Iterable[str] | None = None,
        *,
        kind: Kind | None = None,
        **settings: Any,
    ) -> Any:
        """Encodes texts, or pairs of texts.

        Args:
            texts: One text, or a column of them: a list, a generator, or a column of NumPy, pandas,
                Polars or Arrow.
            texts_b: The second texts of pairs, as many as `texts`, which then is a list.
            kind: "dense", "sparse", "multi" or "scores"; None is dense, and an error for a model
                that is for other vectors: pooled hidden states of these mean nothing.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.EncodeSettings` lists them; of other kinds those that
                `encode_sparse`, `encode_multi` or `encode_scores` takes.

        Returns:
            float32 `[texts, dim]`, for a stack `[texts, layers, dim]`; for one text without the
            first axis. Of other kinds what their own methods return.

        Raises:
            SettingError: The model does not support a setting, or `texts` is not a list of str.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: Texts were cut, and `long_text` was not given.
        """
        return self._encode_kind("encode", kind, texts, texts_b, settings)

    @overload
    def encode_query(
        self,
        texts: str | Iterable[str],
        *,
        kind: Literal["dense"] | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> NDArray[np.float32]: ...
    @overload
    def encode_query(  # type: ignore[overload-overlap]
        self, texts: str, *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVector: ...
    @overload
    def encode_query(
        self, texts: Iterable[str], *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVectors: ...
    @overload
    def encode_query(  # type: ignore[overload-overlap]
        self, texts: str, *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVector: ...
    @overload
    def encode_query(
        self, texts: Iterable[str], *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVectors: ...
    def encode_query(
        self, texts: str | Iterable[str] | None = None, *, kind: Kind | None = None, **settings: Any
    ) -> Any:
        """Encodes texts as `encode` does, with the model's prompt for queries.

        That is its prompt "query", or what it was trained with beside the prompt of documents:
        `search` puts the same before queries.
        """
        prompted = self._of_query(settings)
        return self._encode_kind("encode_query", kind, texts, None, prompted)

    @overload
    def encode_document(
        self,
        texts: str | Iterable[str],
        *,
        kind: Literal["dense"] | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> NDArray[np.float32]: ...
    @overload
    def encode_document(  # type: ignore[overload-overlap]
        self, texts: str, *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVector: ...
    @overload
    def encode_document(
        self, texts: Iterable[str], *, kind: Literal["sparse"], **settings: Unpack[SparseSettings]
    ) -> SparseVectors: ...
    @overload
    def encode_document(  # type: ignore[overload-overlap]
        self, texts: str, *, kind: Literal["multi"], **settings: Unpack[MultiSettings]
    ) -> MultiVector: ...
    @overload
    def encode_document(
        self, texts: Iterable[str], *, kind: Literal["multi"], **settings: Unpack[MultiSettings]
    ) -> MultiVectors: ...
    def encode_document(
        self, texts: str | Iterable[str] | None = None, *, kind: Kind | None = None, **settings: Any
    ) -> Any:
        """Encodes texts with the model's prompt "document", "passage" or "corpus", if any."""
        prompted = self._of_document(settings)
        return self._encode_kind("encode_document", kind, texts, None, prompted)

    @overload
    def encode_tokens(  # type: ignore[overload-overlap]
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
                `bert_embed.settings.UnitSettings`.

        Returns:
            For one text, or for each, its tokens, their spans in it (-1 for special tokens and the
            prompt's), and float32 `[tokens, dim]`, for a stack `[tokens, layers, dim]`.

        It raises and warns as `encode` does.
        """
        one = isinstance(texts, str)
        columns = text_columns(texts, texts_b)
        layout, vectors, shape = self._encode_units("token", columns, settings)
        tokens = required(layout.tokens, "tokens")
        names = self.tokenizer.tokens(tokens.ids)
        shaped = required(vectors.tokens, "vectors of tokens").reshape(-1, *shape)
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
        units = required(layout.words, "words")
        per_text = _per_text(units, units.texts.texts or [], vectors.words, shape)
        return per_text[0] if one else per_text

    @overload
    def encode_spans(
        self,
        texts: str,
        spans: Iterable[tuple[int, int]],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> TextVectors: ...
    @overload
    def encode_spans(
        self,
        texts: Iterable[str | Iterable[str]],
        spans: Iterable[Iterable[tuple[int, int]]],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> list[TextVectors]: ...
    def encode_spans(
        self,
        texts: str | Iterable[str | Iterable[str]],
        spans: Iterable[Any],
        *,
        word_pooling: str = "mean",
        **settings: Unpack[UnitSettings],
    ) -> TextVectors | list[TextVectors]:
        """Encodes parts of texts, each from its tokens in the context of the whole text.

        Args:
            texts: One text, or a column of texts or lists of words.
            spans: The spans (start, stop) of the one text, or for each text its own, in characters,
                or in words where the text is a list of words; `stop` is exclusive. They may
                overlap.
            word_pooling: How the vectors of a span's tokens become one vector.
            **settings: As `encode_tokens`.

        Returns:
            For one text, or for each, its spans, their places in it (for a list of words, in the
            words joined by spaces), and float32 `[spans, dim]`; NaN for a span that has no token,
            or none within `max_seq_length`.

        It raises and warns as `encode` does.
        """
        one = isinstance(texts, str)
        columns = span_columns([texts], [spans]) if one else span_columns(texts, spans)
        layout, vectors, shape = self._encode_units("span", columns, settings, word_pooling)
        units = required(layout.spans, "spans")
        parts = [
            text[start:stop]
            for text, ranges in zip(columns["texts"], columns["spans"], strict=True)
            for start, stop in ranges
        ]
        per_text = _per_text(units, parts, vectors.spans, shape)
        return per_text[0] if one else per_text

    @overload
    def encode_sparse(  # type: ignore[overload-overlap]
        self, texts: str, **settings: Unpack[SparseSettings]
    ) -> SparseVector: ...
    @overload
    def encode_sparse(
        self, texts: Iterable[str], **settings: Unpack[SparseSettings]
    ) -> SparseVectors: ...
    def encode_sparse(
        self, texts: str | Iterable[str], **settings: Unpack[SparseSettings]
    ) -> SparseVector | SparseVectors:
        """Encodes texts as sparse vectors: weights of entries of the model's vocabulary.

        Args:
            texts: One text, or a column of them, as `encode` takes them.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.SparseSettings` lists them.

        Returns:
            A row for each text; for one text the row. The product of two rows says how similar
            their texts are: `similarity` computes it.

        Raises:
            SettingError: The model makes no sparse vectors, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        call = CallSettings.sort(settings, SparseSettings)
        prune = {name: call.vectors[name] for name in _PRUNES if name in call.vectors}
        vectors = self._encode_by_head("sparse", text_columns(texts), call, **prune)
        return self._of_texts(texts, vectors)

    @overload
    def encode_sparse_query(  # type: ignore[overload-overlap]
        self, texts: str, **settings: Unpack[SparseSettings]
    ) -> SparseVector: ...
    @overload
    def encode_sparse_query(
        self, texts: Iterable[str], **settings: Unpack[SparseSettings]
    ) -> SparseVectors: ...
    def encode_sparse_query(
        self, texts: str | Iterable[str], **settings: Unpack[SparseSettings]
    ) -> SparseVector | SparseVectors:
        """Encodes queries as `encode_sparse` does, with the prompt of `encode_query`.

        The queries of some models need no run of the model: the weight of each of a query's tokens
        is a constant.
        """
        prompted = self._of_query(settings)
        head = self.bundle.heads.get("sparse")
        if not isinstance(head, SparseHead) or not head.query_weights:
            return self.encode_sparse(texts, **prompted)
        call = CallSettings.sort(prompted, SparseSettings)
        prune = {name: call.vectors[name] for name in _PRUNES if name in call.vectors}
        text_spec = self._text_spec(call.texts, vectors=("sparse",), **prune)
        cut, vectors = self.embedder.weigh_queries(text_columns(texts)["texts"], text_spec)
        self._warn_of_cuts(cut, call, text_spec)
        return self._of_texts(texts, vectors.pruned(text_spec.top_k, text_spec.min_weight))

    @overload
    def encode_multi(  # type: ignore[overload-overlap]
        self, texts: str, **settings: Unpack[MultiSettings]
    ) -> MultiVector: ...
    @overload
    def encode_multi(
        self, texts: Iterable[str], **settings: Unpack[MultiSettings]
    ) -> MultiVectors: ...
    def encode_multi(
        self, texts: str | Iterable[str], **settings: Unpack[MultiSettings]
    ) -> MultiVector | MultiVectors:
        """Encodes documents as multi-vectors, for late interaction: a vector for each token.

        Args:
            texts: One text, or a column of them, as `encode` takes them.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.MultiSettings` lists them.

        Returns:
            A row for each text; for one text the row. `rows()` gives them as float32
            `[tokens, dim]` each. Tokens that the model leaves out, such as punctuation, are not
            among them.

        Raises:
            SettingError: The model makes no multi-vectors, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        call = CallSettings.sort(self._of_document(settings), MultiSettings)
        pool = {name: call.vectors[name] for name in ("pool_factor",) if name in call.vectors}
        vectors = self._encode_by_head("multi", text_columns(texts), call, **pool)
        return self._of_texts(texts, vectors)

    @overload
    def encode_multi_query(  # type: ignore[overload-overlap]
        self, texts: str, **settings: Unpack[TextSettings]
    ) -> MultiVector: ...
    @overload
    def encode_multi_query(
        self, texts: Iterable[str], **settings: Unpack[TextSettings]
    ) -> MultiVectors: ...
    def encode_multi_query(
        self, texts: str | Iterable[str], **settings: Unpack[TextSettings]
    ) -> MultiVector | MultiVectors:
        """Encodes queries for the documents of `encode_multi`, filled up where the model does so.

        The score of a document is the sum, over the vectors of a query, of the largest product
        with one of its vectors (MaxSim): `similarity` computes it.
        """
        call = CallSettings.sort(self._of_query(settings), TextSettings)
        return self._of_texts(texts, self._encode_multi_queries(text_columns(texts), call))

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
                `bert_embed.settings.TextSettings` lists them.

        Returns:
            float32 `[texts, labels]`, for one text without the first axis: probabilities, or what
            the model's regression gives. `encoder.bundle.heads["scores"].labels` names the labels.

        Raises:
            SettingError: The model makes no scores, or as `encode`.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: As `encode`.
        """
        call = CallSettings.sort(settings, TextSettings)
        scores = self._encode_by_head("scores", text_columns(texts, texts_b), call)
        return scores[0] if isinstance(texts, str) else scores

    def similarity(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns how similar each of `one` and each of `other` is, float32 `[n, m]`.

        That is the cosine of dense vectors, or what the model compares them by (`similarity` of its
        bundle: the dot product, or a distance as a negative number); the dot product of sparse
        ones; and MaxSim of multi-vectors, of which `one` are queries and `other` documents.

        Args:
            one: Numbers `[n, dim]`, or one vector `[dim]`; a vector of zeros has the cosine 0. Or
                what `encode_sparse` or `encode_multi_query` returns, or `read_sparse`.
            other: Vectors of the same kind.

        Raises:
            SettingError: They are no such vectors.
        """
        pair = kind_pair(one, other)
        if pair is None:
            return dense_matrix(one, other, self.bundle.similarity)
        return product_matrix(*pair)

    def similarity_pairwise(self, one: Any, other: Any) -> NDArray[np.float32]:
        """Returns the same of each of `one` and the one of `other` at its place, float32 `[n]`."""
        pair = kind_pair(one, other)
        if pair is None:
            return dense_pairs(one, other, self.bundle.similarity)
        return product_pairs(*pair)

    def _encode_kind(
        self,
        method: str,
        kind: Kind | None,
        texts: str | Iterable[str] | None,
        texts_b: Iterable[str] | None,
        settings: Mapping[str, Any],
    ) -> Any:
        """Does what a method says that takes `kind`; `texts` is None where another name has it."""
        if texts is None:
            known_names(settings, EncodeSettings.__annotations__)
            raise SettingError("texts", "must be a list of texts, got a NoneType")
        calls = _CALLS[method]
        if kind is None:
            self._check_dense(calls)
            kind = "dense"
        if one_of("kind", kind, VECTOR_KINDS) == "dense":
            return self._encode_texts(texts, texts_b, settings)
        if kind not in calls:
            raise SettingError("kind", f"{kind}: call encode_scores, which takes texts and pairs")
        self.bundle.check_vectors((kind,), "kind")
        if kind == "scores":
            return self.encode_scores(texts, texts_b, **settings)
        if texts_b is not None:
            raise SettingError("texts_b", f"is for pairs, which have no {kind} vectors", "kind")
        return getattr(self, calls[kind])(texts, **settings)

    def _check_dense(self, calls: Mapping[str, str]) -> None:
        """SettingError if the model is for other than dense vectors."""
        made = self.bundle.default_vectors
        if "dense" not in made:
            named = ", ".join(calls.get(kind, "encode_scores") for kind in made)
            raise SettingError(
                "kind",
                f"must be named, this model is for {' and '.join(made)} vectors: call {named}; "
                "kind='dense' gives its pooled hidden states, which it was not trained for",
            )

    def _of_document(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adds the prompt of documents, unless the call gives one."""
        if settings.get("prompt") is not None:
            return settings
        return {**settings, "prompt": self._documents}

    def _of_query(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adds the prompt of queries, unless the call gives one."""
        if settings.get("prompt") is not None:
            return settings
        if QUERY in self.bundle.prompts:
            return {**settings, "prompt": f"name:{QUERY}"}
        documents, loaded = self.bundle.prompt_text(self._documents), self._arguments[2]
        prompt = query_prompt(self.bundle, documents)
        if loaded is not None and prompt in ("", documents):
            prompt = loaded
        return {**settings, "prompt": prompt}

    @property
    def _documents(self) -> str:
        """The prompt of documents as a setting: the model's, that of loading, or none."""
        named = DOCUMENT in self.bundle.prompts
        return f"name:{DOCUMENT}" if named else self._arguments[2] or ""

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
        for piece, tell in in_pieces(columns, call.progress):
            layout, vectors = self.embedder.embed_columns(
                piece, text_spec, call.batch_tokens, spec, sum(map(len, done)), tell
            )
            done.append(required(vectors.sentences, "vectors of texts"))
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
        dim = self.spec.dim
        # The encoder's dim may be one of pooled vectors, which can be wider than a token's; that of
        # the model is of pooled vectors alone.
        if (
            dim != self.bundle.defaults.dim
            and (dim or 0) <= base.token_shape(self.bundle.config)[-1]
        ):
            base = replace(base, dim=dim)
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
        self, kind: str, columns: Columns, call: CallSettings, **vectors: Any
    ) -> Any:
        self.bundle.check_vectors((kind,))
        text_spec = self._text_spec(call.texts, vectors=(kind,), **vectors)
        layout, encoded = self.embedder.embed_columns(columns, text_spec, call.batch_tokens)
        self._warn_of_cuts(layout.truncated, call, text_spec)
        return encoded.heads[kind]

    def _of_texts(self, texts: str | Iterable[str], vectors: Any) -> Any:
        """Sparse vectors or multi-vectors of texts, of one text its row."""
        if isinstance(vectors, SparseVectors):
            vectors = replace(vectors, width=self.bundle.config.vocab_size)
        return vectors[0] if isinstance(texts, str) else vectors

    def _encode_multi_queries(self, columns: Columns, call: CallSettings) -> MultiVectors:
        self.bundle.check_vectors(("multi",))
        head = self.bundle.heads["multi"]
        if not isinstance(head, MultiHead):
            raise TypeError(f"the head of multi-vectors is a {type(head).__name__}")
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
            warnings.warn(message, TruncationWarning, stacklevel=_calling_level())


def _calling_level() -> int:
    """The stack level, for a warning of the function that asks, outside of this file."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    return level


def _per_text(
    units: Units, texts: Sequence[str], vectors: np.ndarray | None, shape: tuple[int, ...]
) -> list[TextVectors]:
    """The words or spans of each text, float32 `[units, width]`; NaN for those without a token."""
    vectors = required(vectors, "vectors of words or spans")
    vectors[units.first == units.last] = np.nan
    at = units.texts
    return per_document(at.splits, texts, at.starts, at.stops, vectors.reshape(-1, *shape))
