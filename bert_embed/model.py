"""Embeds texts and rows with a loaded model, for workers and for the calls of an Encoder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.backends.choose import EngineLoader, find_backend, load_engine
from bert_embed.backends.processor import available_cores
from bert_embed.backends.runner import RowRunner
from bert_embed.base.arguments import seconds, whole_number
from bert_embed.base.arrays import places, splits_of
from bert_embed.base.errors import SettingError, counted, counted_of
from bert_embed.bundle.bundle import Bundle, load_table
from bert_embed.calls import Columns
from bert_embed.models.heads.head import Head, TokenPlaces
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.sparse import QUERY_WEIGHTS
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors, merged_entries
from bert_embed.settings import OutputSpec, TextSpec, VectorSpec
from bert_embed.text.documents import Rows, fill_rows, tokenize_documents
from bert_embed.text.layout import (
    EmbeddedRows,
    GranularVectors,
    Layout,
    document_vectors,
    failed_documents,
    is_too_long,
    lay_out,
    text_rows,
    widest_tokens,
)
from bert_embed.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from bert_embed.text.protocol import TextTokenizer


class Embedder:
    """A loaded model with its tokenizer. Several threads may call it.

    Args:
        bundle, spec, threads, precision, device, load_engine, engine: As
            `bert_embed.encoder.Encoder` takes them.
        inference_timeout: Seconds without a finished batch after which a call raises
            NoProgressError; None waits for ever.
        compile_ahead: Whether a GPU or TPU compiles the programs of all shapes of a batch before
            the first one; otherwise each when it occurs.

    Raises:
        SettingError: The model does not support such vectors, or this machine the precision.
        InputError: The model's files are damaged.
    """

    def __init__(
        self,
        bundle: Bundle,
        spec: VectorSpec | None = None,
        threads: int | None = None,
        precision: str = "float32",
        device: str = "auto",
        load_engine: EngineLoader = load_engine,
        inference_timeout: float | None = None,
        compile_ahead: bool = False,
        engine: str | None = None,
    ) -> None:
        self.bundle = bundle
        self.spec = bundle.defaults if spec is None else spec
        bundle.check(self.spec)
        self.threads = (
            available_cores() if threads is None else whole_number("threads", threads, least=1)
        )
        if inference_timeout is not None:
            inference_timeout = seconds("inference_timeout", inference_timeout)
        self.device = find_backend(precision, device, engine)[1]
        self.tokenizer: TextTokenizer = load_tokenizer(bundle)
        self._static_weights: np.ndarray | None = None  # of queries, read when they are needed
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        loaded = load_engine(bundle, special, precision, self.device, self.threads, engine)
        self._runner = RowRunner(
            bundle.config, loaded, self.threads, inference_timeout, compile_ahead, bundle.heads
        )

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

        def spread(vectors: Any) -> Any:
            return _spread(vectors, tokenized.numbers, good, len(texts))

        sentences = None if embedded.sentences is None else spread(embedded.sentences)
        heads = {kind: spread(vectors) for kind, vectors in embedded.heads.items()}
        vectors = GranularVectors(sentences, heads=heads)
        return vectors, rejected, tokenized.numbers[layout.truncated & good]

    def embed_rows(
        self,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        token_type_ids: np.ndarray | None = None,
        batch_tokens: int | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that include [CLS] and [SEP], with the embedder's `spec`.

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
        tell: Callable[[float], object] | None = None,
    ) -> tuple[EmbeddedRows, GranularVectors]:
        """Embeds the rows of documents, all granularities in one pass of the model.

        `row` and `layout` are those of `bert_embed.text.layout.TextRows`. The vectors of
        documents with a failed row are undefined. `tell` takes, after each batch and from any
        thread, the share of the work that it was. RuntimeError: all of several rows failed.
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
            0 if spec.pool_prompt else self._unpooled(text_spec),
            text_spec.max_seq_length,
            tell=tell,
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

    def embed_columns(
        self,
        columns: Columns,
        text_spec: TextSpec,
        batch_tokens: int | None = None,
        spec: VectorSpec | None = None,
        first: int = 0,
        tell: Callable[[float], object] | None = None,
    ) -> tuple[Layout, GranularVectors]:
        """Embeds the texts of a call, which may be none, each text for itself.

        Messages count the texts from `first` on, `tell` is as in `embed_layout`. SettingError: a
        text is too long to "reject". RuntimeError: the model failed on a text.
        """
        rows, layout = self._rows(columns, text_spec, first)
        every = np.arange(len(rows.row_splits) - 1)
        embedded, vectors = self.embed_layout(
            rows, every, layout, text_spec, batch_tokens, spec, tell
        )
        texts = every if layout.windows is None else layout.windows.document
        _refuse_failed(embedded, texts, first)
        return layout, vectors

    def embed_multi_queries(
        self,
        head: MultiHead,
        columns: Columns,
        text_spec: TextSpec,
        batch_tokens: int | None,
        longest: int,
    ) -> tuple[Layout, MultiVectors]:
        """Embeds queries as multi-vectors, filled up where the head does so; raises as above.

        `longest` are the most tokens that rows usually have.
        """
        rows, layout = self._rows(columns, replace(text_spec, marker=head.query_marker), 0)
        rows, is_text = fill_rows(rows, head.fill_length, head.fill_id)
        embedded = self._runner.run(
            self.spec,
            OutputSpec(sentences=False, heads=(head.kind,)),
            rows.input_ids,
            rows.row_splits,
            None,
            batch_tokens,
            longest=longest,
            attended=None if head.attends_fill else is_text,
        )
        every = np.arange(len(rows.row_splits) - 1)
        _refuse_failed(embedded, every, 0)
        splits, row, place = widest_tokens(rows, None, 1)
        tokens = TokenPlaces(splits, rows.input_ids, row, place)
        return layout, head.chosen(embedded.heads[head.kind], tokens, every, query=True)

    def weigh_queries(
        self, texts: Sequence[str], text_spec: TextSpec
    ) -> tuple[np.ndarray, SparseVectors]:
        """The sparse vectors of queries that need no run of the model; bool `[texts]`: the cut."""
        tokens = self.tokenizer.tokenize_texts([text_spec.prompt + text for text in texts], False)
        lengths, most = np.diff(tokens.row_splits), text_spec.max_seq_length
        row = np.repeat(np.arange(len(lengths)), lengths)
        values = self._query_weights()[tokens.ids]
        counts, too_long = values > 0, lengths > most
        if text_spec.long_text == "window":
            too_long = np.zeros_like(too_long)
        else:
            if text_spec.long_text == "reject":
                _refuse_long(too_long, 0, most)
            counts &= places(np.zeros_like(lengths), lengths) < most
        ids = tokens.ids[counts].astype(np.int32)
        return too_long, merged_entries(len(lengths), row[counts], ids, values[counts], "max")

    def heads(self) -> dict[str, Head]:
        """Returns what makes other vectors than dense ones, by kind; proxies give no attribute."""
        return dict(self.bundle.heads)

    def truncation(self, cut: int, total: int, text_spec: TextSpec) -> str:
        """Says how many of the texts were cut, and which settings do something else."""
        length, most = text_spec.max_seq_length, self.bundle.config.max_position_embeddings
        longer = f"max_seq_length up to {most} keeps more of it, " if length < most else ""
        were_cut = counted_of(cut, total, "text", "was cut", "were cut")
        return (
            f"{were_cut} at {length} tokens: long_text='window' takes all of a text, "
            f"{longer}long_text='truncate' cuts without this warning"
        )

    def _rows(self, columns: Columns, text_spec: TextSpec, first: int) -> tuple[Rows, Layout]:
        documents = tokenize_documents(
            self.tokenizer,
            offsets=text_spec.needs_tokens,
            prompt=text_spec.prompt,
            marker=text_spec.marker,
            **columns,
        )
        if text_spec.long_text == "reject":
            too_long = is_too_long(documents, text_spec, self.tokenizer)
            _refuse_long(too_long, first, text_spec.max_seq_length)
        return lay_out(documents, text_spec, self.tokenizer)

    def _unpooled(self, text_spec: TextSpec) -> int:
        """How many tokens of a prompt do not count: all that it has alone.

        A space at its end may be one of them, as in sentence-transformers.
        """
        alone = self.tokenizer.tokenize_texts([text_spec.prompt], False)
        return len(alone.ids) + (text_spec.marker is not None)

    # No property: one that raises breaks the proxies with which processes share a large model.
    def _query_weights(self) -> np.ndarray:
        """float32 `[vocabulary]`."""
        if self._static_weights is None:
            self._static_weights = load_table(self.bundle, QUERY_WEIGHTS)
        return self._static_weights


def _refuse_long(too_long: np.ndarray, first: int, most: int) -> None:
    """SettingError where one of texts, bool `[texts]`, is too long; counted from `first`."""
    if too_long.any():
        raise SettingError(
            "texts",
            f"number {first + int(np.argmax(too_long))} is longer than {most} tokens; set "
            "long_text to truncate or window",
            "long_text",
        )


def _refuse_failed(embedded: EmbeddedRows, texts: np.ndarray, first: int) -> None:
    """RuntimeError where a row failed; `texts` int `[rows]`, the number of each row's text."""
    if embedded.failed:
        row, reason = min(embedded.failed.items())
        failed = len(set(texts[list(embedded.failed)].tolist()))
        raise RuntimeError(
            f"{counted(failed, 'text')} failed, the first is {first + texts[row]}: {reason}"
        )


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
