"""Encodes texts as vectors, for users of the Python API and for the pipeline's workers."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.arguments import seconds, text_list, text_or_word_lists, whole_number, whole_numbers
from bert.bundle.bundle import Bundle
from bert.engines.choose import EngineLoader, load_engine
from bert.engines.cores import available_cores
from bert.engines.runner import RowRunner
from bert.graph.load import fit_texts, load_tokenizer
from bert.rows.build import Rows
from bert.rows.documents import tokenize_documents
from bert.rows.layout import Layout, is_too_long, lay_out
from bert.rows.to_documents import (
    EmbeddedRows,
    GranularVectors,
    TextVectors,
    document_vectors,
    per_document,
)
from bert.specs import OutputSpec, TextSpec, VectorSpec
from storage.errors import SettingError

if TYPE_CHECKING:
    from bert.tokenization.tokenizer import Tokenizer


class Encoder:
    """A loaded model with its tokenizer. Several threads may call it."""

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
    ) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            spec: How vectors are computed; None is the model's own settings.
            threads: Number of processor cores to use; None uses all that this process may use.
            prompt: Text to put before each text, or `name:` followed by the name of one of the
                model's prompts; None is the model's default, "" is no prompt.
            precision: Number type of the matrix products, one of
                `bert.engines.choose.PRECISIONS`; vectors are always float32.
            device: One of `bert.engines.choose.DEVICES`.
            inference_timeout: Seconds without a finished batch after which a call raises
                NoProgressError; None waits for ever.
            load_engine: Loads the engine that runs the batches.

        Raises:
            SettingError: The model does not support such vectors, or this machine the precision.
            InputError: The model's files are damaged.
        """
        self.bundle = bundle
        self.spec = bundle.defaults if spec is None else spec
        bundle.check(self.spec)
        self.prompt = bundle.prompt_text(prompt)
        self.threads = (
            available_cores() if threads is None else whole_number("threads", threads, least=1)
        )
        if inference_timeout is not None:
            inference_timeout = seconds("inference_timeout", inference_timeout)
        self.tokenizer: Tokenizer = load_tokenizer(bundle)
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        engine = load_engine(bundle, special, precision, device)
        self._runner = RowRunner(bundle.config, engine, self.threads, inference_timeout)

    def encode(
        self,
        texts: Iterable[str],
        texts_b: Iterable[str] | None = None,
        *,
        layers: int | Sequence[int] | None = None,
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
        """Encodes texts, or pairs of texts.

        Settings that are None are those of the encoder; see `bert.specs.VectorSpec`.

        Args:
            texts: Any number of texts.
            texts_b: The second texts of pairs, as many as `texts`.
            layers: Numbers of the hidden states to use.
            layer_combine: How several layers become one vector.
            pooling: How the vectors of tokens become one vector.
            pool_special_tokens: Whether [CLS] and [SEP] count in the pooling.
            normalize: Whether vectors have unit length.
            dim: How many of the first numbers of a vector to keep.
            prompt: Text to put before each text, or `name:` and the name of a model's prompt.
            max_seq_length: Maximum number of tokens of a row, special tokens included.
            long_text: "truncate", "window" for the mean over windows of longer texts, or "reject".
            stride: Number of tokens that neighbouring windows share; None is 64, or half of a short
                window.
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.

        Returns:
            float32 `[texts, width]`, for a stack `[texts, layers, width]`.

        Raises:
            SettingError: The model does not support a setting, or `texts` is not a list of str.
            RuntimeError: The model failed on a text.
        """
        spec = spec_with(
            self.spec,
            layers=layers,
            layer_combine=layer_combine,
            pooling=pooling,
            pool_special_tokens=pool_special_tokens,
            normalize=normalize,
            dim=dim,
        )
        before = self.prompt if prompt is None else self.bundle.prompt_text(prompt)
        length = self._length(max_seq_length)
        text_spec = TextSpec(length, long_text=long_text, stride=stride, prompt=before)
        _, vectors = self._encode(spec, text_spec, batch_tokens, **_columns(texts, texts_b))
        assert vectors.sentences is not None
        return vectors.sentences.reshape(-1, *spec.shape(self.bundle.config))

    def encode_tokens(
        self,
        texts: Iterable[str],
        texts_b: Iterable[str] | None = None,
        *,
        layers: int | Sequence[int] = (-1,),
        layer_combine: str | None = None,
        dim: int | None = None,
        normalize: bool = False,
        max_seq_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[TextVectors]:
        """Encodes the tokens of texts, [CLS] and [SEP] included.

        Args:
            texts: Any number of texts; longer ones are truncated.
            texts_b: The second texts of pairs, as many as `texts`.
            layers: Numbers of the hidden states to use.
            layer_combine: How several layers become one vector; required for several.
            dim: How many of the first numbers of a vector to keep.
            normalize: Whether vectors have unit length.
            max_seq_length: Maximum number of tokens of a row, special tokens included.
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.

        Returns:
            For each text its tokens, their spans in it (-1 for special tokens), and float32
            `[tokens, width]`, for a stack `[tokens, layers, width]`.

        Raises:
            SettingError, RuntimeError: As `encode`.
        """
        text_spec = TextSpec(self._length(max_seq_length), ("token",), normalize_tokens=normalize)
        spec = spec_with(VectorSpec(), layers=layers, layer_combine=layer_combine, dim=dim)
        layout, vectors = self._encode(spec, text_spec, batch_tokens, **_columns(texts, texts_b))
        tokens = layout.tokens
        assert tokens is not None
        assert vectors.tokens is not None
        names = self.tokenizer.tokens(tokens.ids)
        shaped = vectors.tokens.reshape(-1, *spec.token_shape(self.bundle.config))
        return per_document(tokens.splits, names, tokens.starts, tokens.stops, shaped)

    def encode_words(
        self,
        texts: Iterable[str | Iterable[str]],
        *,
        layers: int | Sequence[int] = (-1,),
        layer_combine: str | None = None,
        word_pooling: str = "mean",
        dim: int | None = None,
        normalize: bool = False,
        max_seq_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[TextVectors]:
        """Encodes the words of texts.

        Args:
            texts: Texts, which are split at white space and punctuation; or lists of words.
            layers: Numbers of the hidden states to use.
            layer_combine: How several layers become one vector; required for several.
            word_pooling: How the vectors of a word's tokens become one vector.
            dim: How many of the first numbers of a vector to keep.
            normalize: Whether vectors have unit length.
            max_seq_length: Maximum number of tokens of a row, special tokens included.
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.

        Returns:
            For each text its words, their spans in it (for a list of words, in the words joined by
            spaces), and float32 `[words, width]`; NaN for a word of a list that has no token, or
            none within `max_seq_length`.

        Raises:
            SettingError, RuntimeError: As `encode`.
        """
        text_spec = TextSpec(
            self._length(max_seq_length),
            ("word",),
            word_pooling=word_pooling,
            normalize_tokens=normalize,
        )
        spec = spec_with(VectorSpec(), layers=layers, layer_combine=layer_combine, dim=dim)
        listed = text_or_word_lists("texts", texts)
        words = [None if isinstance(text, str) else text for text in listed]
        joined = [text if isinstance(text, str) else " ".join(text) for text in listed]
        given = words if any(own is not None for own in words) else None
        columns = _columns(joined) | {"words": given}
        layout, vectors = self._encode(spec, text_spec, batch_tokens, **columns)
        ranges = layout.words
        assert ranges is not None
        assert vectors.words is not None
        vectors.words[ranges.first == ranges.last] = np.nan
        units = ranges.texts
        shaped = vectors.words.reshape(-1, *spec.token_shape(self.bundle.config))
        return per_document(units.splits, units.texts or [], units.starts, units.stops, shaped)

    def _length(self, requested: int | None) -> int:
        return self.bundle.max_seq_length if requested is None else requested

    def embed_rows(
        self,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        token_type_ids: np.ndarray | None = None,
        batch_tokens: int | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that include [CLS] and [SEP], with the encoder's `spec`.

        Args:
            input_ids: int32 `[tokens]`, all rows end to end.
            row_splits: int64 `[rows + 1]`, where each row begins and ends.
            token_type_ids: int32 `[tokens]`, 1 for second texts; None is all 0.
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.

        Returns:
            float32 `[rows, width]` in `vectors`.

        Raises:
            InputError: A row has more tokens than the model has positions, or an id is not in its
                vocabulary.
            RuntimeError: All of several rows failed, so the model is at fault.
        """
        rows = input_ids, row_splits, token_type_ids
        return self._runner.run(self.spec, OutputSpec(), *rows, batch_tokens)

    def embed_documents(
        self,
        rows: Rows,
        row: np.ndarray,
        layout: Layout,
        text_spec: TextSpec,
        batch_tokens: int | None = None,
        spec: VectorSpec | None = None,
    ) -> tuple[EmbeddedRows, GranularVectors]:
        """Embeds the rows of documents, all granularities in one pass of the model.

        Args:
            rows: The distinct rows.
            row: int `[rows of the layout]`, the number of the equal distinct row.
            layout: How documents were split into rows.
            text_spec: What is requested of the documents.
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.
            spec: How vectors are computed; None is the encoder's own.

        Returns:
            The result of the rows, and the vectors of the documents; those of documents with a
            failed row are undefined.

        Raises:
            InputError, RuntimeError: As `embed_rows`.
        """
        spec = spec or self.spec
        outputs = OutputSpec(
            sentences="sentence" in text_spec.granularity,
            finished=text_spec.long_text != "window" or text_spec.keeps_windows,
            tokens=text_spec.needs_tokens,
        )
        embedded = self._runner.run(
            spec,
            outputs,
            rows.input_ids,
            rows.row_splits,
            rows.token_type_ids,
            batch_tokens,
            self.tokenizer.prompt_length(text_spec.prompt),
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
        )
        return embedded, vectors

    def _encode(
        self, spec: VectorSpec, text_spec: TextSpec, batch_tokens: int | None, **columns: Any
    ) -> tuple[Layout, GranularVectors]:
        """Embeds texts; `columns` are arguments of `tokenize_documents`. Texts may be empty."""
        self.bundle.check(spec)
        text_spec = fit_texts(self.bundle, text_spec, self.tokenizer)
        documents = tokenize_documents(
            self.tokenizer, offsets=text_spec.needs_tokens, prompt=text_spec.prompt, **columns
        )
        if (
            text_spec.long_text == "reject"
            and (too_long := is_too_long(documents, text_spec, self.tokenizer)).any()
        ):
            raise SettingError(
                "texts",
                f"number {int(np.argmax(too_long))} is longer than {text_spec.max_seq_length} "
                "tokens; set long_text to truncate or window",
                "long_text",
            )
        rows, layout = lay_out(documents, text_spec, self.tokenizer)
        every = np.arange(len(rows.row_splits) - 1)
        embedded, vectors = self.embed_documents(rows, every, layout, text_spec, batch_tokens, spec)
        if embedded.failed:
            row, reason = min(embedded.failed.items())
            texts = every if layout.windows is None else layout.windows.document
            failed = len(set(texts[list(embedded.failed)].tolist()))
            raise RuntimeError(f"{failed} texts failed, the first is {texts[row]}: {reason}")
        return layout, vectors


def spec_with(spec: VectorSpec, **changes: Any) -> VectorSpec:
    """Returns `spec` with some fields changed; None leaves a field as it is.

    Raises:
        SettingError: An unknown field, a wrong value, or several layers without `layer_combine`.
    """
    names = {field.name for field in fields(VectorSpec)}
    unknown = sorted(set(changes) - names)
    if unknown:
        raise SettingError(unknown[0], f"is not a setting, those are {', '.join(sorted(names))}")
    given = {name: value for name, value in changes.items() if value is not None}
    if "layers" in given:
        given["layers"] = layers = whole_numbers("layers", given["layers"])
        if len(layers) > 1 and "layer_combine" not in given:
            raise SettingError(
                "layers",
                f"names {len(layers)} layers: say how they become one vector, layer_combine sum, "
                "mean, concat, stack, or last for the highest of them",
                "layer_combine",
            )
    return replace(spec, **given)


def _columns(texts: Iterable[str], texts_b: Iterable[str] | None = None) -> dict[str, Any]:
    first = text_list("texts", texts)
    second = None if texts_b is None else text_list("texts_b", texts_b)
    if second is not None and len(second) != len(first):
        raise SettingError("texts_b", f"must be {len(first)} texts, got {len(second)}")
    return {"texts": first, "texts_b": second}
