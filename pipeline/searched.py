"""Outputs to search: their vectors and their model, and the vectors of queries for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from bert_embed.backends.choose import weight_files
from bert_embed.base.arrays import unit
from bert_embed.base.errors import SettingError, counted
from bert_embed.bundle.bundle import Bundle, query_prompt
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.console import warn
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.run.output import check_model
from bert_embed.results.names import kinds_of, vectors_of
from bert_embed.results.outputs import Output, check_holds, read_run, vector_settings
from bert_embed.settings import VectorSpec
from bert_embed.storage.files import absolute, read_bytes


@dataclass(frozen=True)
class SearchedOutput(Output):
    """An output with the model of its vectors."""

    bundle: Bundle

    @property
    def spec(self) -> VectorSpec:
        """How its vectors were computed."""
        names = [field.name for field in fields(VectorSpec) if field.name in self.settings]
        return VectorSpec.from_dict({name: self.settings[name] for name in names})

    def query_prompt(self, prompt: str | None) -> str:
        """The text before a query; SettingError if the model has no prompt of this name."""
        if prompt is not None:
            return self.bundle.prompt_text(prompt)
        text = self.settings.get("query_prompt")
        return query_prompt(self.bundle, self.settings["prompt"]) if text is None else text


def opened(folder: str, model: str | None, by: str | None) -> SearchedOutput:
    """Reads what an output says of its vectors, and finds their model."""
    record = read_run(folder)
    settings = vector_settings(folder, record)
    check_kinds(folder, settings, by)
    needed = partial(weight_files, precision=_query_precision(settings), device="cpu")
    bundle = resolve_model(model or record.model.name, needed)
    check_model(bundle, settings, folder)
    # Runs name it only if it is not the cosine.
    settings = {"similarity": bundle.similarity, **settings}
    return SearchedOutput(folder, settings, record, bundle)


def check_kinds(folder: str, settings: dict[str, Any], by: str | None) -> None:
    """Refuses an output whose vectors cannot be searched, or not by what was asked."""
    held = searchable(settings)
    if by is not None and by not in held and held:
        raise SettingError(
            "by",
            f"{by} requires {by} vectors, but {folder} holds {' and '.join(held)} ones: embed with "
            f"`--vectors {by}` and a model that makes them, such as BAAI/bge-m3",
        )
    made = [] if held else [kind for kind in vectors_of(settings) if kind != "dense"]
    if made:
        raise UsageError(
            f"{folder} holds {' and '.join(made)} vectors, which have no similarity: take an "
            "output of `--vectors dense`"
        )
    if not held:
        check_holds(folder, settings, "sentence")  # says how to read what there is


def searchable(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of an output's vectors that can be searched, dense first."""
    return tuple(
        name
        for name, kind in ROW_KINDS.items()
        if kind.similarity is not None and kind.name in kinds_of(settings)
    )


def check_comparable(outputs: Sequence[SearchedOutput], kind: str) -> None:
    """Refuses outputs whose scores with a query mean different things."""
    first = outputs[0]
    for output in outputs[1:]:
        same_model = output.settings["model"] == first.settings["model"]
        same_score = output.settings["similarity"] == first.settings["similarity"]
        same_dense = output.spec == first.spec and same_score
        if not same_model or (kind == "dense" and not same_dense):
            what = "other layers, pooling or dim" if same_model else "another model"
            scores = "cosines" if kind == "dense" else "scores"
            raise UsageError(
                f"{output.folder} has vectors of {what} than {first.folder}, so their {scores} "
                "cannot be compared: search them one by one"
            )


def queries_file(path: str) -> str:
    """The text of a file of queries; SettingError if there is none."""
    try:
        data = read_bytes(absolute(path))
        if data is not None:
            return data.decode("utf-8-sig")
    except IsADirectoryError as error:
        raise SettingError("queries", f"{path} is a folder, give a file") from error
    except UnicodeDecodeError as error:
        raise SettingError("queries", f"{path} is not UTF-8") from error
    stdin = "; stdin is /dev/stdin" if path == "-" else ""
    raise SettingError("queries", f"{path} does not exist{stdin}")


def queries_of(
    outputs: Sequence[SearchedOutput], queries: Sequence[str], prompt: str | None, kind: str
) -> list[Any]:
    """The vectors of the queries for each output, computed once for equal settings."""
    vectors: dict[tuple[int, str, str], Any] = {}
    of_output = []
    for output in outputs:
        text = output.query_prompt(prompt)
        key = output.settings["max_seq_length"], _query_precision(output.settings), text
        if key not in vectors:
            vectors[key] = query_vectors(output, queries, text, kind)
        of_output.append(vectors[key])
    return of_output


def query_vectors(output: SearchedOutput, queries: Sequence[str], prompt: str, kind: str) -> Any:
    """What `nearest` takes of a kind, with a text before each query; notes how many are cut."""
    settings = output.settings
    precision, texts = _query_precision(settings), list(queries)
    encoder = Encoder(output.bundle, output.spec, prompt=prompt, precision=precision, device="cpu")
    asked: dict[str, Any] = {"kind": kind, "long_text": "truncate"}
    if kind != "multi":  # whose queries have a length of their own
        asked["max_seq_length"] = most = settings["max_seq_length"]
        if cut := sum(len(encoder.tokenizer.encode(prompt + text)) > most for text in texts):
            total, were = counted(len(texts), "query", "queries"), "is" if cut == 1 else "are"
            folder = output.folder  # as whose texts their ends are lost
            warn(f"note: {cut:,} of {total} {were} cut at {most} tokens, as texts of {folder}")
    if kind != "dense":
        return encoder.encode_query(texts, prompt=prompt, **asked)
    vectors = encoder.encode(texts, **asked).reshape(len(texts), -1)
    if empty := int(np.count_nonzero(~vectors.any(axis=1))):
        total = counted(len(texts), "query", "queries")
        warn(
            f"note: {empty:,} of {total} without a known token: no order of its hits means anything"
        )
    return unit(vectors) if settings["similarity"] == "cosine" else vectors


def _query_precision(settings: dict[str, Any]) -> str:
    # This processor may lack the other precisions, which differ by a rounding only.
    return "int8" if settings["precision"] == "int8" else "float32"
