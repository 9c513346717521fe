"""Embeds rows of tokens and the rows of documents with a loaded model."""

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from bert_embed.arguments import seconds, whole_number
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.engines.choose import EngineLoader, load_engine, torch_device, weight_files
from bert_embed.engines.cores import available_cores
from bert_embed.engines.runner import RowRunner
from bert_embed.graph.load import load_tokenizer
from bert_embed.rows.build import Rows
from bert_embed.rows.layout import Layout
from bert_embed.rows.to_documents import EmbeddedRows, GranularVectors, document_vectors
from bert_embed.specs import OutputSpec, TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError

if TYPE_CHECKING:
    from bert_embed.tokenization.tokenizer import Tokenizer


class RowEncoder:
    """A loaded model with its tokenizer. Several threads may call it."""

    def __init__(
        self,
        model: Bundle | str | os.PathLike[str] = "minilm",
        spec: VectorSpec | None = None,
        threads: int | None = None,
        prompt: str | None = None,
        precision: str = "float32",
        device: str = "auto",
        inference_timeout: float | None = None,
        load_engine: EngineLoader = load_engine,
        **others: Never,
    ) -> None:
        """Loads the weights.

        Args:
            model: As `bert_embed.load` takes it, or a bundle.
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
            **others: None; the error names who takes them.

        Raises:
            SettingError: There is no such model, it does not support such vectors, or this machine
                the precision.
            InputError: The model's files are damaged.
        """
        for name in others:
            raise SettingError(name, "is for bert_embed.load, or for a call such as encode")
        self._given = (spec, threads, prompt, precision, device, inference_timeout, load_engine)
        needed = partial(weight_files, precision=precision, device=device)
        if not isinstance(model, Bundle):
            model = resolve_model(model, needed=needed)
        self.bundle = bundle = model
        self.spec = bundle.defaults if spec is None else spec
        if not isinstance(self.spec, VectorSpec):
            raise SettingError("spec", f"must be a VectorSpec, got a {type(spec).__name__}")
        bundle.check(self.spec)
        self.prompt = bundle.prompt_text(prompt)
        self.threads = (
            available_cores() if threads is None else whole_number("threads", threads, least=1)
        )
        if inference_timeout is not None:
            inference_timeout = seconds("inference_timeout", inference_timeout)
        device = torch_device(device)
        self.precision, self._device = precision, device
        self.tokenizer: Tokenizer = load_tokenizer(bundle)
        self._max_seq_length = bundle.max_seq_length
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        engine = load_engine(bundle, special, precision, device, self.threads)
        self._runner = RowRunner(bundle.config, engine, self.threads, inference_timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the model anew."""
        return _loaded_again, (type(self), (self.bundle, *self._given), self._max_seq_length)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowEncoder":
        """Returns an encoder with the same model in memory; scikit-learn copies often."""
        copied, tokenizer = object.__new__(type(self)), object.__new__(type(self.tokenizer))
        vars(tokenizer).update(vars(self.tokenizer))  # it has the copy's own max_seq_length
        vars(copied).update(vars(self) | {"tokenizer": tokenizer})
        return copied

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
            sentences="sentence" in text_spec.granularity and not text_spec.pools_late,
            finished=text_spec.long_text != "window" or text_spec.keeps_windows,
            tokens=text_spec.needs_tokens or text_spec.pools_late,
        )
        embedded = self._runner.run(
            replace(spec, dim=None) if text_spec.pools_late else spec,
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


def _loaded_again(kind: type[RowEncoder], given: tuple[Any, ...], length: int) -> RowEncoder:
    encoder = kind(*given)
    encoder._max_seq_length = encoder.tokenizer.model_max_length = length  # noqa: SLF001
    return encoder
