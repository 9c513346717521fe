"""Encodes texts as vectors, for users of the Python API and for the pipeline's workers."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.arguments import seconds, whole_number
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
from bert_embed.engines.choose import EngineLoader, find_device, load_engine, weight_files
from bert_embed.engines.cores import available_cores
from bert_embed.engines.runner import RowRunner
from bert_embed.heads.multi import MultiHead
from bert_embed.heads.scores import ScoresHead
from bert_embed.heads.sparse import QUERY_WEIGHTS, SparseHead
from bert_embed.heads.vectors import MultiVectors, SparseVectors, merged_entries
from bert_embed.ragged import places, splits_of
from bert_embed.rows.build import Rows, fill_rows
from bert_embed.rows.documents import tokenize_documents
from bert_embed.rows.fit import fit_texts
from bert_embed.rows.layout import Layout, TokenPlaces, is_too_long, lay_out, widest_tokens
from bert_embed.rows.text_rows import failed_documents, text_rows
from bert_embed.rows.to_documents import (
    EmbeddedRows,
    GranularVectors,
    TextVectors,
    chosen_vectors,
    document_vectors,
    per_document,
)
from bert_embed.specs import OutputSpec, TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted, counted_of
from bert_embed.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from bert_embed.tokenization.protocol import TextTokenizer


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
        inference_timeout: Seconds without a finished batch after which a call raises
            NoProgressError; None waits for ever.
        load_engine: Loads the engine that runs the batches.
        compile_ahead: Whether a GPU or TPU compiles the programs of all shapes of a batch before
            the first one, as workers do; otherwise each when it occurs.

    Attributes:
        device: What computes: "cpu", "gpu" or "tpu".

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
        inference_timeout: float | None = None,
        load_engine: EngineLoader = load_engine,
        compile_ahead: bool = False,
    ) -> None:
        self._arguments = (
            *(spec, threads, prompt, precision, device),
            *(inference_timeout, load_engine, compile_ahead),
        )
        self.bundle = bundle
        self.spec = bundle.defaults if spec is None else spec
        bundle.check(self.spec)
        self.prompt = bundle.prompt_text(prompt)
        self.threads = (
            available_cores() if threads is None else whole_number("threads", threads, least=1)
        )
        if inference_timeout is not None:
            inference_timeout = seconds("inference_timeout", inference_timeout)
        self.precision, self.device = precision, find_device(precision, device)
        self.tokenizer: TextTokenizer = load_tokenizer(bundle)
        self._max_seq_length = bundle.max_seq_length
        self._static_weights: np.ndarray | None = None  # of queries, read when they are needed
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        engine = load_engine(bundle, special, precision, self.device, self.threads)
        self._runner = RowRunner(
            bundle.config, engine, self.threads, inference_timeout, compile_ahead, bundle.heads
        )

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
        if "_runner" in vars(self) and name != "max_seq_length" and not name.startswith("_"):
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
        _check_pairs(one, texts_b)
        columns = text_columns([texts] if one else texts, texts_b)
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
        assert vectors.words is not None
        vectors.words[layout.words.first == layout.words.last] = np.nan
        units = layout.words.texts
        shaped = vectors.words.reshape(-1, *shape)
        words = units.texts or []
        per_text = per_document(units.splits, words, units.starts, units.stops, shaped)
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
        assert vectors.spans is not None
        vectors.spans[layout.spans.first == layout.spans.last] = np.nan
        units = layout.spans.texts
        parts = [
            text[start:stop]
            for text, ranges in zip(columns["texts"], columns["spans"], strict=True)
            for start, stop in ranges
        ]
        shaped = vectors.spans.reshape(-1, *shape)
        return per_document(units.splits, parts, units.starts, units.stops, shaped)

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
        columns = text_columns([texts] if isinstance(texts, str) else texts)
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
        columns = text_columns([texts] if isinstance(texts, str) else texts)
        return self._constant_weights(columns, CallSettings.sort(prompted, TextSettings))

    def _constant_weights(self, columns: Columns, call: CallSettings) -> SparseVectors:
        """The sparse vectors of queries that need no run of the model."""
        text_spec = self._text_spec(call.texts)
        tokens = self.tokenizer.tokenize_texts(
            [text_spec.prompt + text for text in columns["texts"]], False
        )
        lengths, most = np.diff(tokens.row_splits), text_spec.max_seq_length
        row = np.repeat(np.arange(len(lengths)), lengths)
        values = self._query_weights()[tokens.ids]
        counts = values > 0
        if text_spec.long_text != "window":
            if text_spec.long_text == "reject":
                _refuse_long(lengths > most, 0, most)
            self._warn_of_cuts(int((lengths > most).sum()), len(lengths), call, text_spec)
            counts &= places(np.zeros_like(lengths), lengths) < most
        ids = tokens.ids[counts].astype(np.int32)
        return merged_entries(len(lengths), row[counts], ids, values[counts], "max")

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
        columns = text_columns([texts] if isinstance(texts, str) else texts)
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
        columns = text_columns([texts] if isinstance(texts, str) else texts)
        return self._encode_multi_queries(columns, self._prompted(settings, QUERY))

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
        _check_pairs(one, texts_b)
        columns = text_columns([texts] if one else texts, texts_b)
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

    def embed_texts(
        self,
        text_spec: TextSpec,
        texts: Sequence[str],
        texts_b: Sequence[str] | None = None,
        batch_tokens: int | None = None,
    ) -> tuple[GranularVectors, dict[int, tuple[str, str]], np.ndarray]:
        """Embeds texts as the command line does, equal ones once; a bad one does not fail others.

        Gives a row for each text of the kinds that the spec asks for, zeros or no entries for a
        text without a vector, by the number of each such text the stage that rejected it,
        "tokenize" or "infer", and the reason, and the numbers of the texts with a vector that were
        cut, int64 `[cut]`. RuntimeError: every one of several texts failed, so the model is at
        fault.
        """
        tokenized = text_rows(self.tokenizer, text_spec, texts, texts_b=texts_b)
        layout, row = tokenized.layout, tokenized.row
        rows, embedded = self.embed_layout(tokenized.rows, row, layout, text_spec, batch_tokens)
        rejected = {number: ("tokenize", why) for number, why in tokenized.rejected.items()}
        good = np.ones(len(tokenized.numbers), bool)
        for document, why in failed_documents(layout, row, rows.failed).items():
            good[document] = False
            rejected[int(tokenized.numbers[document])] = ("infer", why)
        vectors = GranularVectors(
            *(
                None if one is None else _spread(one, tokenized.numbers, good, len(texts))
                for one in vars(embedded).values()
            )
        )
        return vectors, rejected, tokenized.numbers[layout.truncated & good]

    def embed_rows(
        self,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        token_type_ids: np.ndarray | None = None,
        batch_tokens: int | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that include [CLS] and [SEP], with the encoder's `spec`.

        `input_ids` are int32 `[tokens]`, all rows end to end, `row_splits` int64 `[rows + 1]`; the
        result has float32 `[rows, width]` in `vectors`. RuntimeError: all of several rows failed.
        """
        rows = input_ids, row_splits, token_type_ids
        return self._runner.run(self.spec, OutputSpec(), *rows, batch_tokens)

    def embed_layout(
        self,
        rows: Rows,
        row: np.ndarray,
        layout: Layout,
        text_spec: TextSpec,
        batch_tokens: int | None = None,
        spec: VectorSpec | None = None,
    ) -> tuple[EmbeddedRows, GranularVectors]:
        """Embeds the rows of documents, all granularities in one pass of the model.

        `row` and `layout` are those of `bert_embed.rows.text_rows.TextRows`. The vectors of
        documents with a failed row are undefined. RuntimeError: all of several rows failed.
        """
        spec = spec or self.spec
        outputs = OutputSpec(
            sentences="sentence" in text_spec.kinds and not text_spec.pools_late,
            finished=text_spec.long_text != "window" or text_spec.keeps_windows,
            tokens=text_spec.needs_tokens or text_spec.pools_late,
            heads=text_spec.heads,
        )
        self.bundle.check_vectors(text_spec.vectors)
        embedded = self._runner.run(
            replace(spec, dim=None) if text_spec.pools_late else spec,
            outputs,
            rows.input_ids,
            rows.row_splits,
            rows.token_type_ids,
            batch_tokens,
            self.tokenizer.prompt_length(text_spec.prompt) + (text_spec.marker is not None),
            text_spec.max_seq_length,
        )
        stacked = len(spec.layers) if spec.layer_combine == "stack" else 1
        vectors = document_vectors(
            layout,
            embedded,
            row,
            rows.row_splits,
            text_spec,
            lambda pooled: self._runner.finish(spec, pooled),
            stacked,
            self.bundle.heads,
        )
        return embedded, vectors

    def score_labels(self) -> tuple[str, ...]:
        """Returns the names of the scores, in order; none for a model that makes none."""
        head = self.bundle.heads.get("scores")
        return head.labels if isinstance(head, ScoresHead) else ()

    def truncation(self, cut: int, total: int, text_spec: TextSpec) -> str:
        """Says how many of the texts were cut, and which settings do something else."""
        length, most = text_spec.max_seq_length, self.bundle.config.max_position_embeddings
        longer = f"max_seq_length up to {most} keeps more of it, " if length < most else ""
        were_cut = counted_of(cut, total, "text", "was cut", "were cut")
        return (
            f"{were_cut} at {length} tokens: long_text='window' takes all of a text, "
            f"{longer}long_text='truncate' cuts without this warning"
        )

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
        _check_pairs(one, texts_b)
        columns = text_columns([texts] if one else texts, texts_b)
        call = CallSettings.sort(settings, EncodeSettings)
        spec = changed_spec(self.spec, self.bundle.config, **call.vectors)
        self.bundle.check(spec)
        text_spec, cut = self._text_spec(call.texts), 0
        done: list[np.ndarray] = []
        for piece in in_pieces(columns, call.progress):
            layout, vectors = self._encode(spec, text_spec, call, piece, sum(map(len, done)))
            assert vectors.sentences is not None
            done.append(vectors.sentences)
            cut += int(layout.truncated.sum())
        self._warn_of_cuts(cut, len(columns["texts"]), call, text_spec)
        joined = np.concatenate(done) if len(done) > 1 else done[0]
        shaped = joined.reshape(-1, *spec.shape(self.bundle.config))
        return shaped[0] if one else shaped

    def _encode_units(
        self, kind: str, columns: Columns, settings: UnitSettings, word_pooling: str = "mean"
    ) -> tuple[Layout, GranularVectors, tuple[int, ...]]:
        """Returns, beside `_encode`'s result, the shape of a vector."""
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
        layout, vectors = self._encode(spec, text_spec, call, columns, 0)
        self._warn_of_cuts(int(layout.truncated.sum()), len(columns["texts"]), call, text_spec)
        return layout, vectors, shape

    def _encode_by_head(
        self, kind: str, columns: Columns, settings: Mapping[str, Any], **vectors: Any
    ) -> GranularVectors:
        call = CallSettings.sort(settings, TextSettings)
        self.bundle.check_vectors((kind,))
        text_spec = self._text_spec(call.texts, vectors=(kind,), **vectors)
        layout, encoded = self._encode(self.spec, text_spec, call, columns, 0)
        self._warn_of_cuts(int(layout.truncated.sum()), len(columns["texts"]), call, text_spec)
        return encoded

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
        text_spec = replace(text_spec, marker=head.query_marker)
        rows, layout = self._rows(text_spec, columns, 0)
        self._warn_of_cuts(int(layout.truncated.sum()), len(columns["texts"]), call, text_spec)
        rows, is_text = fill_rows(rows, head.fill_length, head.fill_id)
        embedded = self._runner.run(
            self.spec,
            OutputSpec(sentences=False, heads=("multi",)),
            rows.input_ids,
            rows.row_splits,
            None,
            call.texts.get("batch_tokens"),
            longest=self.max_seq_length,
            attended=None if head.attends_fill else is_text,
        )
        every = np.arange(len(rows.row_splits) - 1)
        _refuse_failed(embedded, every, 0)
        assert embedded.multi is not None
        splits, row, place = widest_tokens(rows, None, 1)
        tokens = TokenPlaces(splits, rows.input_ids, row, place)
        return chosen_vectors(head, embedded.multi, tokens, every, query=True)

    # No property: one that raises breaks the proxies with which processes share a large model.
    def _query_weights(self) -> np.ndarray:
        """float32 `[vocabulary]`, from the file that the engine read."""
        if self._static_weights is None:
            from bert_embed.graph.litert_file import read_arrays  # imports LiteRT's schema: 0.2 s

            (name,) = weight_files(self.bundle, self.precision, self.device)
            arrays = read_arrays(Path(self.bundle.path, name))
            self._static_weights = np.array(arrays[QUERY_WEIGHTS])
        return self._static_weights

    def _text_spec(self, texts: Mapping[str, Any], **units: Any) -> TextSpec:
        length, prompt = texts.get("max_seq_length", self.max_seq_length), texts.get("prompt")
        prompt = self.prompt if prompt is None else self.bundle.prompt_text(prompt)
        changes = {name: texts[name] for name in ("long_text", "stride") if name in texts}
        text_spec = TextSpec(length, prompt=prompt, **changes, **units)
        return fit_texts(self.bundle, text_spec, self.tokenizer)

    def _warn_of_cuts(self, cut: int, total: int, call: CallSettings, text_spec: TextSpec) -> None:
        if cut and "long_text" not in call.texts:
            # The level is where `encode` or another method was called.
            warnings.warn(self.truncation(cut, total, text_spec), TruncationWarning, stacklevel=4)

    def _encode(
        self, spec: VectorSpec, text_spec: TextSpec, call: CallSettings, columns: Columns, at: int
    ) -> tuple[Layout, GranularVectors]:
        """Embeds texts, which may be empty; `at` is the first one's number, for messages."""
        rows, layout = self._rows(text_spec, columns, at)
        every = np.arange(len(rows.row_splits) - 1)
        batch_tokens = call.texts.get("batch_tokens")
        embedded, vectors = self.embed_layout(rows, every, layout, text_spec, batch_tokens, spec)
        _refuse_failed(embedded, every if layout.windows is None else layout.windows.document, at)
        return layout, vectors

    def _rows(self, text_spec: TextSpec, columns: Columns, at: int) -> tuple[Rows, Layout]:
        documents = tokenize_documents(
            self.tokenizer,
            offsets=text_spec.needs_tokens,
            prompt=text_spec.prompt,
            marker=text_spec.marker,
            **columns,
        )
        if text_spec.long_text == "reject":
            too_long = is_too_long(documents, text_spec, self.tokenizer)
            _refuse_long(too_long, at, text_spec.max_seq_length)
        return lay_out(documents, text_spec, self.tokenizer)


def _refuse_long(too_long: np.ndarray, at: int, most: int) -> None:
    """SettingError where one of texts, bool `[texts]`, is too long; `at` is the first's number."""
    if too_long.any():
        raise SettingError(
            "texts",
            f"number {at + int(np.argmax(too_long))} is longer than {most} tokens; set long_text "
            "to truncate or window",
            "long_text",
        )


def _refuse_failed(embedded: EmbeddedRows, texts: np.ndarray, at: int) -> None:
    """RuntimeError where a row failed; `texts` int `[rows]`, the number of each row's text."""
    if embedded.failed:
        row, reason = min(embedded.failed.items())
        failed = len(set(texts[list(embedded.failed)].tolist()))
        raise RuntimeError(
            f"{counted(failed, 'text')} failed, the first is {at + texts[row]}: {reason}"
        )


def _check_pairs(one: bool, texts_b: Iterable[str] | None) -> None:
    if isinstance(texts_b, str):
        raise SettingError(
            "texts_b",
            "must be a list of texts, got one str; a pair is encode([one], [other]), a prompt is "
            "prompt",
        )
    if one and texts_b is not None:
        raise SettingError("texts_b", "is for pairs, texts must be a list then")


def _spread(vectors: Any, numbers: np.ndarray, good: np.ndarray, count: int) -> Any:
    """Vectors of all of `count` texts, from those at `numbers`; nothing where not `good`."""
    if isinstance(vectors, np.ndarray):
        spread = np.zeros((count, *vectors.shape[1:]), vectors.dtype)
        spread[numbers[good]] = vectors[good]
        return spread
    kept = vectors[np.flatnonzero(good)]
    lengths = np.zeros(count, np.int64)
    lengths[numbers[good]] = np.diff(kept.splits)
    return replace(kept, splits=splits_of(lengths))
