"""Runs a loaded model on texts or on rows, for workers and for the calls of an Encoder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bert_embed.backends.choose import EngineLoader, load_engine, model_backend
from bert_embed.backends.probe import probe_rows
from bert_embed.backends.runner import RowRunner, RowSpec
from bert_embed.base.arguments import seconds, whole_number
from bert_embed.base.arrays import places, splits_of
from bert_embed.base.environment import available_cores
from bert_embed.base.errors import SettingError, TextError, counted, counted_of
from bert_embed.bundle.bundle import Bundle, load_table
from bert_embed.models.heads.head import Head, TokenPlaces
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.sparse import QUERY_WEIGHTS, SparseHead
from bert_embed.models.heads.vectors import merged_entries
from bert_embed.models.static import NO_LIMIT
from bert_embed.settings import OutputSpec, TextSpec, VectorSpec
from bert_embed.text.documents import (
    Columns,
    TextTokenizer,
    TokenizedDocuments,
    TokenRows,
    fill_rows,
)
from bert_embed.text.layout import (
    DocumentVectors,
    EmbeddedRows,
    Layout,
    document_vectors,
    failed_documents,
    text_rows,
    widest_tokens,
)
from bert_embed.text.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Request:
    """What a loaded model is asked for: vectors of texts, or of rows that were laid out before."""

    text_spec: TextSpec  # which vectors, and how texts become rows
    texts: Columns | None = None  # as `tokenize_documents` takes them, if no rows
    rows: Layout | None = None  # of documents, if no texts
    spec: VectorSpec | None = None  # how vectors are computed; None is as the model was loaded
    query: bool = False  # whether texts are queries, which some heads treat otherwise
    batch_tokens: int | None = None  # most of a batch, padding included; None: as suits the device
    # Whether an error is raised for a text that gets no vector. A text without tokens then has that
    # of its special tokens.
    strict: bool = False
    # Takes, after each batch and from any thread, the share of the work that it was.
    tell: Callable[[float], object] | None = None

    @property
    def takes_windows(self) -> bool:
        """Whether long texts may become windows: neither pairs nor queries of multi-vectors."""
        pairs = (self.texts or {}).get("texts_b") is not None
        return not pairs and not (self.query and self.text_spec.vectors == ("multi",))


class Embedder:
    """A loaded model with its tokenizer. Several threads may call it.

    Args:
        bundle, spec, threads, precision, device, load_engine, engine: As
            `bert_embed.encoder.Encoder` takes them.
        inference_timeout: Seconds without a finished batch after which a call raises
            NoProgressError; None waits for ever.

    Attributes:
        runner: Runs rows of token ids.

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
        self.device = model_backend(bundle.config, precision, device, engine)[1]
        self.tokenizer: TextTokenizer = load_tokenizer(bundle)
        self._static_weights: np.ndarray | None = None  # of queries, read when they are needed
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        loaded = load_engine(bundle, special, precision, self.device, self.threads, engine)
        self.runner = RowRunner(
            bundle.config,
            loaded,
            self.threads,
            inference_timeout,
            bundle.heads,
            partial(probe_rows, bundle.config, self.tokenizer),
        )

    def run(self, request: Request) -> DocumentVectors:
        """Computes what is asked for, all kinds and granularities in one pass of the model.

        Raises:
            SettingError: A text is too long to "reject", and the request is strict.
            TextError: A text has no vector, and the request is strict.
            BrokenModelError: The model fails on what is known to work, see `RowRunner.run`.
        """
        kinds, heads = request.text_spec.vectors, self.bundle.heads
        if kinds != ("dense",):
            self.bundle.check_vectors(kinds)
        if request.query and kinds == ("sparse",):
            sparse = heads["sparse"]
            if isinstance(sparse, SparseHead) and sparse.query_weights:
                return self._weighed(request)
        layout, texts = request.rows, None
        if layout is None:
            texts, layout = self._text_rows(request)
        head = heads.get("multi")
        if request.query and kinds == ("multi",) and isinstance(head, MultiHead):
            done = self._run_multi_queries(head, layout, request)
        else:
            done = self._run_rows(layout, request)
        numbers = np.arange(len(layout.truncated)) if texts is None else texts.numbers
        failed = failed_documents(layout, done.rows.failed) if done.rows.failed else {}
        done.cut = numbers[layout.truncated]
        if failed or (texts is not None and texts.rejected):
            _without_bad(done, texts, numbers, failed, request)
        return done

    def heads(self) -> dict[str, Head]:
        """Returns what makes other vectors than dense ones, by kind; proxies give no attribute."""
        return dict(self.bundle.heads)

    def truncation(self, cut: int, total: int, request: Request) -> str:
        """Says how many of the texts were cut, and which settings do something else."""
        length, most = request.text_spec.max_seq_length, self.bundle.config.max_position_embeddings
        windows = "long_text='window' takes all of a text, " if request.takes_windows else ""
        upto = "a larger max_seq_length" if most == NO_LIMIT else f"max_seq_length up to {most}"
        longer = f"{upto} keeps more of it, " if length < most else ""
        were_cut = counted_of(cut, total, "text", "was cut", "were cut")
        return (
            f"{were_cut} at {length} tokens: {windows}{longer}long_text='truncate' cuts without "
            "this warning"
        )

    def _text_rows(self, request: Request) -> tuple[TokenizedDocuments, Layout]:
        text_spec = request.text_spec
        head = self.bundle.heads.get("multi") if text_spec.vectors == ("multi",) else None
        if request.query and isinstance(head, MultiHead):
            text_spec = replace(text_spec, marker=head.query_marker)
        texts, layout = text_rows(
            self.tokenizer, text_spec, **request.texts or {}, with_empty=request.strict
        )
        if texts.rejected and request.strict:
            raise _too_long(min(texts.rejected), request)
        return texts, layout

    def _run_rows(self, layout: Layout, request: Request) -> DocumentVectors:
        spec, text_spec = request.spec or self.spec, request.text_spec
        wanted = RowSpec(
            replace(spec, dim=None) if text_spec.pools_late else spec,
            text_spec.outputs,
            0 if spec.pool_prompt else self._unpooled(text_spec),
            request.batch_tokens,
            text_spec.max_seq_length,
        )
        embedded = self.runner.run(layout.rows, wanted, request.tell)
        return document_vectors(
            layout,
            embedded,
            text_spec,
            partial(self.runner.finish, spec),
            len(spec.layers) if spec.layer_combine == "stack" else 1,
            self.bundle.heads,
        )

    def _run_multi_queries(
        self, head: MultiHead, layout: Layout, request: Request
    ) -> DocumentVectors:
        rows = fill_rows(layout.rows, head.fill_length, head.fill_id)
        seen = replace(rows, token_type_ids=None, attended=None) if head.attends_fill else rows
        longest = max(self.bundle.max_seq_length, request.text_spec.max_seq_length)
        outputs = OutputSpec(sentences=False, heads=(head.kind,))
        embedded = self.runner.run(
            seen,
            RowSpec(self.spec, outputs, batch_tokens=request.batch_tokens, longest=longest),
            request.tell,
        )
        splits, row, place = widest_tokens(rows, None, 1)
        tokens = TokenPlaces(splits, rows.input_ids, row, place)
        every = np.arange(len(rows.row_splits) - 1)
        chosen = head.chosen(embedded.heads[head.kind], tokens, every, query=True)
        return DocumentVectors(layout, embedded, heads={head.kind: chosen[layout.row]})

    def _weighed(self, request: Request) -> DocumentVectors:
        """The sparse vectors of queries that need no run of the model."""
        text_spec, texts = request.text_spec, (request.texts or {})["texts"]
        tokens = self.tokenizer.tokenize_texts([text_spec.prompt + text for text in texts], False)
        lengths, most = np.diff(tokens.row_splits), text_spec.max_seq_length
        row = np.repeat(np.arange(len(lengths)), lengths)
        values = self._query_weights()[tokens.ids]
        counts, too_long = values > 0, lengths > most
        if text_spec.in_windows:
            too_long = np.zeros_like(too_long)
        else:
            if text_spec.long_text == "reject" and too_long.any():
                raise _too_long(int(np.argmax(too_long)), request)
            counts &= places(np.zeros_like(lengths), lengths) < most
        ids = tokens.ids[counts].astype(np.int32)
        sparse = merged_entries(len(lengths), row[counts], ids, values[counts], "max")
        sparse = sparse.largest(text_spec.top_k)
        nothing = TokenRows(ids[:0], np.zeros(1, np.int64))
        layout = Layout(nothing, np.zeros(0, np.int32), lengths.astype(np.int32), too_long)
        cut = np.flatnonzero(too_long)
        return DocumentVectors(layout, EmbeddedRows(None), heads={"sparse": sparse}, cut=cut)

    def _unpooled(self, text_spec: TextSpec) -> int:
        """How many tokens do not count: [CLS], and all that the prompt has alone.

        A space at its end may be one of them, as in sentence-transformers; a blank one has none.
        """
        if not text_spec.prompt and text_spec.marker is None:
            return 0
        alone = self.tokenizer.tokenize_texts([text_spec.prompt], False)
        markers = int(text_spec.marker is not None)
        return self.tokenizer.special_tokens // 2 + len(alone.ids) + markers

    # No property: one that raises breaks the proxies with which processes share a large model.
    def _query_weights(self) -> np.ndarray:
        """float32 `[vocabulary]`."""
        if self._static_weights is None:
            self._static_weights = load_table(self.bundle, QUERY_WEIGHTS)
        return self._static_weights


def _without_bad(
    done: DocumentVectors,
    texts: TokenizedDocuments | None,
    numbers: np.ndarray,
    failed: Mapping[int, str],
    request: Request,
) -> None:
    """Leaves out what has no vector: documents that failed, and texts that were rejected before."""
    good = np.ones(len(numbers), bool)
    good[list(failed)] = False
    unread = {} if texts is None else texts.rejected
    rejected = {number: ("tokenize", why) for number, why in unread.items()}
    rejected |= {int(numbers[document]): ("infer", why) for document, why in failed.items()}
    if request.strict:
        number, (_, reason) = min(rejected.items())
        raise TextError(f"{counted(len(rejected), 'text')} failed, the first is {number}: {reason}")
    if texts is not None:
        count = len(numbers) + len(unread)
        if done.sentences is not None:
            done.sentences = _spread(done.sentences, numbers, good, count)
        done.heads = {
            kind: _spread(made, numbers, good, count) for kind, made in done.heads.items()
        }
        done.tokens = done.words = None
    done.cut, done.rejected = numbers[done.layout.truncated & good], rejected


def _too_long(number: int, request: Request) -> SettingError:
    return SettingError(
        "texts",
        f"number {number} is longer than {request.text_spec.max_seq_length} "
        f"tokens; set long_text to truncate{' or window' if request.takes_windows else ''}",
        "long_text",
    )


def _spread(vectors: Any, numbers: np.ndarray, good: np.ndarray, count: int) -> Any:
    """Vectors of all of `count` texts, from those at `numbers`; nothing where not `good`."""
    if isinstance(vectors, np.ndarray):
        spread = np.zeros((count, *vectors.shape[1:]), vectors.dtype)
        spread[numbers[good]] = vectors[good]
        return spread
    whole = vectors[np.flatnonzero(good)]
    lengths = np.zeros(count, np.int64)
    lengths[numbers[good]] = np.diff(whole.splits)
    return replace(whole, splits=splits_of(lengths))
