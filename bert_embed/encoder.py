"""Encodes texts as vectors, for users of the Python API."""

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_embed.backends.choose import EngineLoader, load_engine
from bert_embed.base.arguments import known_names, one_of, text_list, text_pairs, whole_number
from bert_embed.base.errors import SettingError, counted, required
from bert_embed.bundle.bundle import DOCUMENT, QUERY, Bundle, query_prompt
from bert_embed.model import Embedder, Request
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.similarities import similarity_matrix, similarity_pairs
from bert_embed.models.heads.vectors import MultiVector, MultiVectors, SparseVector, SparseVectors
from bert_embed.settings import (
    CallSettings,
    EncodeSettings,
    SparseSettings,
    TextSettings,
    TextSpec,
    UnitSettings,
    VectorSpec,
    changed_spec,
    check_pairs,
    listing,
)
from bert_embed.text.documents import Columns, text_columns, word_columns
from bert_embed.text.layout import DocumentVectors, TextVectors, fit_texts, per_document

Kind: TypeAlias = Literal["dense", "sparse", "multi", "scores"]
_SETTINGS: dict[str, type] = {"dense": EncodeSettings, "sparse": SparseSettings}


class SparseArray(Protocol):
    """A sparse array of SciPy."""

    def tocsr(self) -> object:
        """Returns it in CSR format."""


Vectors: TypeAlias = (
    ArrayLike
    | SparseVector
    | SparseVectors
    | MultiVector
    | MultiVectors
    | SparseArray
    | Sequence[SparseVector]
    | Sequence[MultiVector]
)


class Ranked(NamedTuple):
    """A document of `Encoder.rank`."""

    number: int  # its place among the documents that were given
    score: float


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
        max_seq_length: Maximum number of tokens of a row; None is the model's own.

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
        max_seq_length: int | None = None,
    ) -> None:
        if not isinstance(bundle, Bundle):
            raise SettingError("bundle", "must be a Bundle: bert_embed.load takes a model's name")
        self._arguments = spec, threads, prompt, precision, device, load_engine, engine
        self.bundle, self.prompt = bundle, bundle.prompt_text(prompt)
        # That of loading as text, None without one
        self._own_prompt = None if prompt is None else self.prompt
        embedder = Embedder(bundle, spec, threads, precision, device, load_engine, engine=engine)
        self.spec, self.threads = embedder.spec, embedder.threads
        self.tokenizer = embedder.tokenizer
        self.precision, self.device = precision, embedder.device
        self.max_seq_length = bundle.max_seq_length if max_seq_length is None else max_seq_length
        # Of calls without settings: the kind that they make and its spec, by what else decides them
        self._plain_specs: dict[tuple[str | None, str | None, int], tuple[str, TextSpec]] = {}
        self.embedder = embedder

    def __reduce__(self) -> tuple[object, ...]:
        """Another process loads the model anew."""
        return type(self), (self.bundle, *self._arguments, self.max_seq_length)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Encoder":
        """Returns an encoder with the same model in memory; scikit-learn copies often."""
        return self.__copy__()

    def __copy__(self) -> "Encoder":
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
        unnamed = "" if self.bundle.names_pooling else " (its files name none)"
        return (
            f"Encoder({name!r}, vectors={self.bundle.default_vectors!r}, "
            f"dimension={self.dimension}, layers={spec.layers}, "
            f"pooling={spec.pooling!r}{unnamed}, max_seq_length={self.max_seq_length}, "
            f"precision={self.precision!r}, device={self.device!r})"
        )

    @property
    def dimension(self) -> int:
        """How many numbers a vector of `encode` has; of a stack, each of its layers."""
        return self.spec.shape(self.bundle.config)[-1]

    @property
    def labels(self) -> tuple[str, ...]:
        """What the scores of a classifier or cross-encoder are of, in order."""
        head = self.bundle.heads.get("scores")
        return head.labels if isinstance(head, ScoresHead) else ()

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
        self, texts: str, *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVector: ...
    @overload
    def encode(
        self, texts: Iterable[str], *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVectors: ...
    @listing(EncodeSettings, SparseSettings)
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
            texts_b: The second texts of pairs, as many as `texts`, which then is a list; with "" a
                pair is what the model's library makes of it.
            kind: "dense", "sparse", "multi" or "scores"; None is dense, and an error for a model
                that is for other vectors: pooled hidden states of these mean nothing.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.EncodeSettings` lists them; of sparse vectors
                `SparseSettings` with `top_k`, of other kinds `TextSettings`.

        Returns:
            A row for each text; for one text the row. Of dense vectors float32 `[texts, dim]`, for
            a stack `[texts, layers, dim]`; of scores float32 `[texts, labels]`: probabilities, or
            what the model's regression gives. Multi-vectors are those of documents.

        Raises:
            SettingError: The model does not support a setting, or `texts` is not a list of str.
            RuntimeError: The model failed on a text.

        Warns:
            TruncationWarning: Texts were cut, and `long_text` was not given.
        """
        return self._encode(texts, kind, settings, texts_b)

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
    @listing(EncodeSettings, SparseSettings)
    def encode_query(
        self, texts: str | Iterable[str] | None = None, *, kind: Kind | None = None, **settings: Any
    ) -> Any:
        """Encodes texts as `encode` does, with the model's prompt for queries.

        That is its prompt "query", or what it was trained with beside the prompt of documents:
        `search` puts the same before queries. The sparse vectors of some models need no run of the
        model for queries, and multi-vectors of queries are filled up where the model does so.
        """
        return self._encode(texts, kind, settings, use=QUERY)

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
        self, texts: str, *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVector: ...
    @overload
    def encode_document(
        self, texts: Iterable[str], *, kind: Literal["multi"], **settings: Unpack[TextSettings]
    ) -> MultiVectors: ...
    @listing(EncodeSettings, SparseSettings)
    def encode_document(
        self, texts: str | Iterable[str] | None = None, *, kind: Kind | None = None, **settings: Any
    ) -> Any:
        """Encodes texts as `encode` does, with the model's prompt "document", if it has one."""
        return self._encode(texts, kind, settings, use=DOCUMENT)

    @overload
    def units(  # type: ignore[overload-overlap]
        self, texts: str, of: Literal["token", "word"] = "token", **settings: Unpack[UnitSettings]
    ) -> TextVectors: ...
    @overload
    def units(
        self,
        texts: Iterable[str | Iterable[str]],
        of: Literal["token", "word"] = "token",
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[UnitSettings],
    ) -> list[TextVectors]: ...
    @listing(UnitSettings)
    def units(
        self,
        texts: str | Iterable[str | Iterable[str]],
        of: Any = "token",
        texts_b: Iterable[str] | None = None,
        **settings: Unpack[UnitSettings],
    ) -> TextVectors | list[TextVectors]:
        """Encodes the tokens or words of texts, each in the context of its text.

        Args:
            texts: One text, or a column of them. Words may also be given as lists; those of a text
                end at white space and punctuation.
            of: "token", [CLS], [SEP] and the prompt's included, or "word".
            texts_b: The second texts of pairs, of which there are tokens alone.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.UnitSettings`.

        Returns:
            For one text, or for each, its units, their places in it (of a list of words, in the
            words joined by spaces; -1 for special tokens and the prompt's), and float32
            `[units, dim]`, for a stack `[units, layers, dim]`; NaN for a word of a list that has no
            token, or none within `max_seq_length`.

        It raises and warns as `encode` does.
        """
        one = isinstance(texts, str)
        unit = one_of("of", of, ("token", "word"))
        columns: Columns
        if unit == "word":
            columns = word_columns([texts] if one else texts)
        else:
            columns = text_columns(texts, texts_b)
        if unit != "token" and texts_b is not None:
            raise SettingError("texts_b", "is for pairs, which have vectors of tokens alone", "of")
        call = CallSettings.sort(settings, UnitSettings)
        spec, text_spec = self._unit_specs(unit, call)
        shape = spec.token_shape(self.bundle.config)
        per_text = self._units_of(self._run(columns, call, text_spec, spec), unit, shape)
        return per_text[0] if one else per_text

    @overload
    def score(self, pairs: tuple[str, str], **settings: Unpack[TextSettings]) -> float: ...
    @overload
    def score(
        self, pairs: Iterable[tuple[str, str]], **settings: Unpack[TextSettings]
    ) -> NDArray[np.float32]: ...
    def score(
        self, pairs: tuple[str, str] | Iterable[tuple[str, str]], **settings: Unpack[TextSettings]
    ) -> float | NDArray[np.float32]:
        """Says how well the second text of each pair answers the first, by a cross-encoder.

        Args:
            pairs: Pairs of texts, or one pair.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.TextSettings`.

        Returns:
            float32 `[pairs]`, for one pair a number. `encode(texts, texts_b, kind="scores")` gives
            the scores of all labels.

        Raises:
            SettingError: The model is no cross-encoder, or as `encode`.
        """
        label = relevance_label(self.bundle)
        one, (texts, texts_b) = text_pairs("pairs", pairs)
        scores = self._encode(texts, "scores", settings, texts_b)[:, label]
        return float(scores[0]) if one else scores

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        k: int | None = None,
        *,
        kind: Kind | None = None,
        **settings: Unpack[TextSettings],
    ) -> list[Ranked]:
        """Orders documents by how similar they are to a query, or how well they answer it.

        Args:
            query: One text.
            documents: A column of texts.
            k: How many of the best to return; None returns all.
            kind: "scores" runs the model on each pair, the others compare vectors; None is what the
                model is for.
            **settings: What differs from the encoder's own settings:
                `bert_embed.settings.TextSettings`, without a prompt.

        Returns:
            The documents, best first; of equal ones the first that was given.
        """
        known_names(settings, {*TextSettings.__annotations__, "k", "kind"})
        if not isinstance(query, str):
            raise SettingError("query", f"must be one text, got a {type(query).__name__}")
        listed = text_list("documents", documents)
        most = len(listed) if k is None else whole_number("k", k, least=1)
        if named := [name for name in ("prompt", "prompt_name") if settings.get(name) is not None]:
            raise SettingError(named[0], "is of queries or of documents: encode both, then compare")
        made = self.bundle.default_vectors
        chosen = kind or ("dense" if "dense" in made else made[0])
        if chosen == "scores":
            scores = self.score([(query, text) for text in listed], **settings)
        else:
            asked = self._encode([query], chosen, settings, use=QUERY)
            scores = self.similarity(asked, self._encode(listed, chosen, settings, use=DOCUMENT))[0]
        best = np.argsort(-scores, kind="stable")[:most].tolist()
        return [Ranked(number, float(scores[number])) for number in best]

    def similarity(self, one: Vectors, other: Vectors) -> NDArray[np.float32]:
        """Returns how similar each of `one` and each of `other` is, float32 `[n, m]`.

        That is the cosine of dense vectors, or what the model compares them by (`similarity` of its
        bundle: the dot product, or a distance as a negative number); the dot product of sparse
        ones; and MaxSim of multi-vectors, of which `one` are queries and `other` documents.

        Args:
            one: Numbers `[n, dim]`, a column of vectors, or one vector `[dim]`; a vector of zeros
                has the cosine 0. Or sparse vectors or multi-vectors, or what `read_sparse` gives.
            other: Vectors of the same kind.

        Raises:
            SettingError: They are no such vectors.
        """
        return similarity_matrix(one, other, self.bundle.similarity)

    def similarity_pairwise(self, one: Vectors, other: Vectors) -> NDArray[np.float32]:
        """Returns the same of each of `one` and the one of `other` at its place, float32 `[n]`."""
        return similarity_pairs(one, other, self.bundle.similarity)

    def _encode(
        self,
        texts: Any,
        kind: str | None,
        settings: Mapping[str, Any],
        texts_b: Any = None,
        use: str | None = None,
    ) -> Any:
        """Encodes texts as a kind, None as what the model is for; `use` is QUERY or DOCUMENT."""
        if texts is None:
            known_names(settings, EncodeSettings.__annotations__)
            raise SettingError("texts", "must be a list of texts, got a NoneType")
        plain = kind, use, self._max_seq_length
        is_named = kind is None or isinstance(kind, str)  # what else it may be has no hash
        known = self._plain_specs.get(plain) if is_named and not settings else None
        kind, text_spec = known or (self._kind(kind), None)
        if kind == "scores" and use is not None:
            raise SettingError("kind", "scores are of texts and of pairs: call encode, or score")
        if texts_b is not None:
            check_pairs("texts_b", (kind,), "kind")
        columns = text_columns(texts, texts_b)
        call = CallSettings({}, {}, False)
        if settings:
            call = CallSettings.sort(settings, _SETTINGS.get(kind, TextSettings))
        if kind == "multi" and use == QUERY:
            if call.texts.get("long_text") == "window":
                raise SettingError("long_text", "window is for documents, not for queries")
            head = self.bundle.heads["multi"]
            if isinstance(head, MultiHead) and head.query_length is not None:
                call.texts.setdefault("max_seq_length", head.query_length)
        spec, of_kind = self.spec, call.vectors
        if kind == "dense":
            if call.vectors:
                spec = changed_spec(self.spec, self.bundle.config, **call.vectors)
                self.bundle.check(spec)
            of_kind = {}
        use = use or (DOCUMENT if kind == "multi" else None)
        if text_spec is None:
            texts_read = {"max_seq_length": plain[2], **call.texts}  # a thread may set another now
            text_spec = self._text_spec(texts_read, use, vectors=(kind,), **of_kind)
            if not settings:
                self._plain_specs[plain] = kind, text_spec
        done = self._run(columns, call, text_spec, spec, use == QUERY)
        vectors: Any = done.sentences if kind == "dense" else done.heads[kind]
        if kind == "dense" and spec.layer_combine == "stack":
            vectors = vectors.reshape(-1, *spec.shape(self.bundle.config))
        elif kind == "sparse":
            vectors = replace(vectors, width=self.bundle.config.vocab_size)
        return vectors[0] if isinstance(texts, str) else vectors

    def _kind(self, kind: str | None) -> str:
        """A kind that the model makes; None is dense, if it is for that."""
        if kind is None:
            made = self.bundle.default_vectors
            if "dense" in made:
                return "dense"
            named = " or ".join(f"kind={one!r}" for one in made)
            raise SettingError(
                "kind",
                f"must be named, this model makes {' and '.join(made)}, not dense vectors: give "
                f"{named}; kind='dense' gives pooled hidden states, which it was not trained for",
            )
        if one_of("kind", kind, tuple(ROW_KINDS)) != "dense":
            self.bundle.check_vectors((kind,), "kind")
        return kind

    def _prompt_of(self, use: str) -> str:
        prompts, loaded = self.bundle.prompts, self._own_prompt
        documents = prompts.get(DOCUMENT, loaded or "")
        if use == DOCUMENT:
            return documents
        query = query_prompt(self.bundle, documents)
        if QUERY not in prompts and loaded is not None and query in ("", documents):
            return loaded
        return query

    def _run(
        self,
        columns: Columns,
        call: CallSettings,
        text_spec: TextSpec,
        spec: VectorSpec,
        query: bool = False,
    ) -> DocumentVectors:
        """Runs the model on texts, shows progress where the call asks for it, and warns of cuts."""
        if columns.get("texts_b") is not None:
            self.tokenizer.check_pairs("texts_b")
        count = len(columns["texts"])
        request = Request(
            text_spec,
            texts=columns,
            spec=spec,
            query=query,
            batch_tokens=call.texts.get("batch_tokens"),
            strict=True,
        )
        if call.progress and count:
            from bert_embed.base.progress import texts_done  # for few calls

            with texts_done(count) as tell:
                done = self.embedder.run(replace(request, tell=tell))
        else:
            done = self.embedder.run(request)
        if len(done.cut) and "long_text" not in call.texts:
            message = self.embedder.truncation(len(done.cut), count, request)
            warnings.warn(message, TruncationWarning, stacklevel=_calling_level())
        return done

    def _unit_specs(self, unit: str, call: CallSettings) -> tuple[VectorSpec, TextSpec]:
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
        changes = dict(call.vectors)
        of_text = {"normalize_tokens": changes.pop("normalize", False)}
        if (pooling := changes.pop("word_pooling", None)) is not None:
            if unit == "token":
                raise SettingError("word_pooling", "is of words", "of")
            of_text["word_pooling"] = pooling
        spec = changed_spec(base, self.bundle.config, **changes)
        return spec, self._text_spec(call.texts, granularity=(unit,), **of_text)

    def _units_of(
        self, done: DocumentVectors, unit: str, shape: tuple[int, ...]
    ) -> list[TextVectors]:
        units, vectors = (
            required(getattr(made, f"{unit}s"), f"{unit}s") for made in (done.layout, done)
        )
        vectors = vectors.reshape(-1, *shape)
        if unit == "word":
            vectors[units.first == units.last] = np.nan  # those without a token
        texts = self.tokenizer.tokens(units.ids) if unit == "token" else units.texts
        return per_document(units.splits, texts, units.starts, units.stops, vectors)

    def _text_spec(
        self, texts: Mapping[str, Any], use: str | None = None, **kinds: Any
    ) -> TextSpec:
        length = texts.get("max_seq_length", self.max_seq_length)
        if (prompt := texts.get("prompt")) is not None:
            prompt = self.bundle.prompt_text(prompt)
        else:
            prompt = self.prompt if use is None else self._prompt_of(use)
        changes = {name: texts[name] for name in ("long_text", "overlap") if name in texts}
        text_spec = TextSpec(length, prompt=prompt, **changes, **kinds)
        text_spec.check_one_vector()
        return fit_texts(self.bundle, text_spec, self.tokenizer)


def relevance_label(bundle: Bundle) -> int:
    """The number of the label that says how relevant a text is; SettingError if no one knows.

    A model with one label has no other; of two, the second says that the text answers the query.
    """
    head = bundle.heads.get("scores")
    if not isinstance(head, ScoresHead):
        raise SettingError("model", "is no cross-encoder: it has no scores")
    labels = head.labels
    if len(labels) > 2:
        raise SettingError(
            "model",
            f"must have one label or two, it has {counted(len(labels), 'label')}: "
            f"{', '.join(labels)}",
        )
    return len(labels) - 1


def _calling_level() -> int:
    """The stack level, for a warning of the function that asks, outside of this file."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    return level
