"""Reads late-interaction models: sentence-transformers', PyLate's, Stanford's ColBERT, BGE-M3."""

import string
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.importers.sentence_transformers import (
    MODEL,
    MODEL_KNOWN,
    FolderSettings,
    check_widths,
    is_sentence_transformers,
    listed_modules,
    read_dense,
    read_prompts,
    read_transformer,
)
from bert_embed.importers.tokenizer_settings import mask_tokens, unknown_tokens
from bert_embed.importers.weights import (
    FileSettings,
    architectures,
    check_shapes,
    inside,
    optional_object,
    read_arrays,
    read_torch,
)
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.sparse import SparseHead
from bert_embed.models.modules import DenseModule
from bert_embed.text.documents import TextTokenizer

HeadRead = tuple[Head, Mapping[str, np.ndarray]]  # and its tensors
_SPARSE, _MULTI = "sparse_linear.pt", "colbert_linear.pt"


def read_m3(root: Path, config: EncoderConfig, tokenizer: TextTokenizer) -> dict[str, HeadRead]:
    """Returns the heads whose files are there; the sparse one weighs a text's own tokens."""
    hidden, heads = config.hidden_size, dict[str, HeadRead]()
    if (path := root / _SPARSE).is_file():
        special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id}
        skip_ids = tuple(sorted(number for number in special if number is not None))
        tensors = _read_linear(path, (1, hidden), "heads/sparse/tokens")
        heads["sparse"] = SparseHead(form="tokens", skip_ids=skip_ids), tensors
    if (path := root / _MULTI).is_file():
        layer = DenseModule(hidden, hidden, "identity")
        tensors = _read_linear(path, (hidden, hidden), "heads/multi/0")
        heads["multi"] = MultiHead(hidden, (layer,), drops_first=True), tensors
    return heads


def _read_linear(path: Path, shape: tuple[int, int], name: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a linear layer, "weight" of which is `[out, in]`, below a name."""
    arrays = read_torch(path)
    check_shapes(path, arrays, {"weight": shape, "bias": shape[:1]}, "a linear layer")
    return {f"{name}/kernel": arrays["weight"].T, f"{name}/bias": arrays["bias"]}


PROJECTION = "linear.weight"  # beside the encoder's weights in Stanford's models
_STANFORD = "artifact.metadata"
_SCORING = {"similarity": "cosine", "interaction": "colbert"}  # settings there
_OWN, _PYLATE = "MultiVectorEncoder", "ColBERT"  # what model_type says
_PREFIXES = {"query": "query_prefix", "document": "document_prefix"}
_TOKENS = ("token_embeddings",)
_MEAN_OF_QUERY = "meanmaxsim"  # MaxSim, divided by the number of a query's tokens
_EXPANDING = ("do_query_expansion", "attend_to_expansion_tokens", "attend_to_mask_tokens")
_LENGTHS = {"query_length", "document_length", "query_expansion"}
_USUAL_LENGTH = 32  # of queries
_length = partial(FileSettings.number, least=3)  # of rows, with a token beside the special ones


@dataclass(frozen=True)
class MultiVectorFiles:
    """What a model's files say, before its tokenizer is known."""

    path: Path  # the file that messages name
    settings: FolderSettings  # encoder's folder, length of documents, and prompts with markers
    layers: tuple[DenseModule, ...]
    tensors: Mapping[str, np.ndarray]  # float32, of `layers`
    unit_length: bool
    query_length: int | None
    row_length: int | None  # of queries, where documents alone have a length
    skip_words: tuple[str, ...]
    # By roles; the part of a prompt that may be any entry of the vocabulary, not only an added one.
    prefixes: Mapping[str, str] = field(default_factory=dict)
    skips_in_queries: bool = False
    fill_length: int = 0
    fill_token: str | None = None  # None: the tokenizer's mask
    attends_fill: bool = True
    of_stanford: bool = False  # entries are looked up as Stanford's code does

    @property
    def markers(self) -> set[str]:
        """What may be an entry of the vocabulary that no text contains."""
        prompts = self.settings.prompts
        begins = (self.prefixes.get(role) or prompts.get(role, "") for role in _PREFIXES)
        return {name for begin in begins for name in _markers(begin)}

    def head(
        self, config: EncoderConfig, tokenizer: TextTokenizer, folder: Path, usual: int
    ) -> tuple[MultiHead, dict[str, str]]:
        """Returns the head, and the model's prompts without markers.

        `usual` is how many tokens a row has if no file of sentence-transformers says it.
        """
        numbers = {entry: number for number, entry in enumerate(tokenizer.vocab)}
        tokens = optional_object(folder / "tokenizer.json").get("added_tokens") or ()
        added = sorted({token["content"] for token in tokens}, key=len, reverse=True)
        ids: dict[str, int] = {}
        prompts = dict(self.settings.prompts)
        for role in _PREFIXES:
            prompt = prompts.get(role, "")
            names = (*_markers(self.prefixes.get(role, "")), *filter(prompt.startswith, added))
            marker = next((name for name in names if name in numbers), None)
            if self.of_stanford and prompt not in numbers:
                lacks = (
                    f"the marker {prompt!r} must be an entry of the vocabulary, which has no "
                    "unknown token for it either; add it with tokenizer.add_tokens of transformers"
                )
                ids[role] = self._first_id(unknown_tokens(folder), numbers, lacks)
                prompts[role] = ""
            elif marker is not None:
                ids[role] = numbers[marker]
                rest = prompt.removeprefix(marker)
                # Spaces before a text, or before none, may change no token.
                if not rest.strip() and all(
                    tokenizer.encode(rest + text) == tokenizer.encode(text) for text in ("", "a")
                ):
                    rest = ""
                prompts[role] = rest
        fills = mask_tokens(folder) if self.fill_token is None else (self.fill_token,)
        lacks = f"queries are filled with {' or '.join(fills)}, which the vocabulary lacks"
        most, query_length = config.max_position_embeddings, self.query_length
        if query_length is None and self.settings.max_seq_length != self.row_length:
            query_length = self.row_length or usual
        return MultiHead(
            dim=check_widths(self.layers, config.hidden_size, self.path),
            layers=self.layers,
            unit_length=self.unit_length,
            document_marker=ids.get("document"),
            query_marker=ids.get("query"),
            query_length=query_length and min(query_length, most),
            fill_length=min(self.fill_length, most),
            fill_id=self._first_id(fills, numbers, lacks) if self.fill_length else 0,
            attends_fill=self.attends_fill,
            skip_ids=tuple(sorted(self._skip_ids(numbers, tokenizer))),
            skips_in_queries=self.skips_in_queries,
        ), {name: prompt for name, prompt in prompts.items() if prompt}

    def _first_id(self, names: Sequence[str], numbers: Mapping[str, int], lacks: str) -> int:
        for name in names:
            if name in numbers:
                return numbers[name]
        raise InputError(f"{self.path}: {lacks}")

    def _skip_ids(self, numbers: Mapping[str, int], tokenizer: TextTokenizer) -> set[int]:
        if not self.of_stanford:
            return {numbers[word] for word in self.skip_words if word in numbers}
        ids, splits = tokenizer.encode_flat(self.skip_words)
        firsts = ids[splits[:-1][np.diff(splits) > 0]]  # of "!" that may be "▁" or "▁!"
        return {*firsts.tolist()} - {tokenizer.unk_id}


def read_multi_vectors(root: Path) -> MultiVectorFiles | None:
    """Returns what the files of a late-interaction model say; None: it is no such model."""
    values = optional_object(root / MODEL)
    kind = values.get("model_type")
    if is_sentence_transformers(root):
        if kind == _OWN:
            return _read_own(root, values)
        if kind == _PYLATE or any(name in values for name in _PREFIXES.values()):
            return _read_pylate(root, values)
        return None
    is_stanford = "HF_ColBERT" in architectures(optional_object(root / "config.json"))
    return _read_stanford(root) if is_stanford else None


def _read_own(root: Path, values: FileSettings) -> MultiVectorFiles:
    """Reads what MultiVectorEncoder of sentence-transformers saves."""
    kinds = ("Transformer", "Dense", "MultiVectorMask", "Normalize", "Dropout")
    places = _places(root, kinds, in_order=True)
    _check_known(values)
    transformer, files = _read_modules(root, values, places, _TOKENS)
    masks = [_read_mask(inside(root, place) / "config.json") for place in places["MultiVectorMask"]]
    mask = masks[-1] if masks else FileSettings(values.path, {})
    for place in places["Normalize"]:
        optional_object(inside(root, place) / "config.json").check_vector_names(_TOKENS)
    tasks = mask.get("skiplist_tasks", ["document"])
    files = replace(
        files,
        unit_length=bool(places["Normalize"]),
        skip_words=_words(mask) or () if "document" in tasks else (),
        skips_in_queries="query" in tasks,
    )
    return _filled(files, transformer)


def _read_pylate(root: Path, values: FileSettings) -> MultiVectorFiles:
    """Reads what PyLate saves: settings in one file, and no modules behind Dense ones."""
    # Pooling and Normalize are of the model that it was trained from.
    kinds = ("Transformer", "Dense", "Pooling", "Normalize", "Dropout")
    places = _places(root, kinds, in_order=False)
    known = (*_PREFIXES.values(), *_EXPANDING, "query_length", "document_length", "skiplist_words")
    _check_known(values, "query_expansion", *known)
    # Its files may not say, or say of a module what it is in a dense model.
    transformer, files = _read_modules(root, values, places, (*_TOKENS, "sentence_embedding"))
    prompts = dict(files.settings.prompts)
    prefixes = {role: values.text(name) or "" for role, name in _PREFIXES.items()}
    for role, prefix in prefixes.items():
        prompts[role] = prefix + prompts.get(role, "").removeprefix(prefix)
    words = _words(values)
    files = replace(
        files,
        settings=replace(files.settings, prompts=prompts),
        prefixes=prefixes,
        query_length=files.query_length or _length(values, "query_length"),
        skip_words=tuple(string.punctuation) if words is None else words,
    )
    for said in (transformer, values):  # the module's own settings come first
        if "query_expansion" in said:
            return _filled(files, said)
    if values.get("do_query_expansion") is False or not any(name in values for name in known):
        return files
    attends = values.get("attend_to_expansion_tokens", values.get("attend_to_mask_tokens"))
    length = _length(values, "query_length") or _USUAL_LENGTH
    return replace(files, query_length=length, fill_length=length, attends_fill=bool(attends))


def _read_modules(
    root: Path, values: FileSettings, places: Mapping[str, Sequence[str]], takes: tuple[str, ...]
) -> tuple[FileSettings, MultiVectorFiles]:
    """Returns the settings of a Transformer, and what it, Dense modules and a model's values say.

    `takes` is as of `read_dense`.
    """
    *_, encoder = ("", *places["Transformer"])
    transformer = read_transformer(inside(root, encoder), known=_LENGTHS)
    layers: list[DenseModule] = []
    tensors: dict[str, np.ndarray] = {}
    for number, place in enumerate(places["Dense"]):
        layer, arrays = read_dense(inside(root, place), takes)
        layers.append(layer)
        tensors |= {f"heads/multi/{number}/{name}": array for name, array in arrays.items()}
    usual = transformer.get("max_seq_length")
    lengths = [_length(one, "document_length") for one in (transformer, values)]
    settings = FolderSettings(
        encoder=encoder,
        prompts=read_prompts(values),
        max_seq_length=lengths[0] or lengths[1] or usual,
        do_lower_case=bool(transformer.get("do_lower_case")),
    )
    return transformer, MultiVectorFiles(
        path=values.path,
        settings=settings,
        layers=tuple(layers),
        tensors=tensors,
        unit_length=True,
        query_length=_length(transformer, "query_length"),
        row_length=usual,
        skip_words=(),
    )


def _read_stanford(root: Path) -> MultiVectorFiles:
    values = optional_object(root / _STANFORD)
    for name, usual in _SCORING.items():
        if values.get(name, usual) != usual:
            raise values.error(f"{name} must be {usual!r} for MaxSim, got {values[name]!r}")
    array = read_arrays(root, PROJECTION.__eq__).get(PROJECTION)
    if array is None or array.ndim != 2:
        raise InputError(
            f"{root}: the weights hold no matrix {PROJECTION}, which makes the vectors"
        )
    length = _length(values, "query_maxlen") or _USUAL_LENGTH
    roles = {
        "query": values.text("query_token_id") or "[unused0]",
        "document": values.text("doc_token_id") or "[unused1]",
    }
    return MultiVectorFiles(
        path=values.path,
        settings=FolderSettings(prompts=roles, max_seq_length=_length(values, "doc_maxlen")),
        layers=(DenseModule(array.shape[1], array.shape[0], "identity", bias=False),),
        tensors={"heads/multi/0/kernel": array.T},
        unit_length=True,
        prefixes=roles,
        query_length=length,
        row_length=None,
        fill_length=length,
        attends_fill=bool(values.get("attend_to_mask_tokens")),
        skip_words=tuple(string.punctuation) if values.get("mask_punctuation", True) else (),
        of_stanford=True,
    )


def _check_known(values: FileSettings, *known: str) -> None:
    """Checks that every setting of the model is followed, or changes no vector."""
    values.refuse_unknown(MODEL_KNOWN | {*known})
    if values.get("similarity_fn_name") == _MEAN_OF_QUERY:
        raise values.error(
            f"similarity_fn_name must be maxsim, got {_MEAN_OF_QUERY!r}; maxsim ranks documents "
            "alike, by scores that are not divided by the number of a query's tokens"
        )


def _places(root: Path, kinds: Container[str], in_order: bool) -> defaultdict[str, list[str]]:
    """Returns the folders of modules, all of which are of some kinds, by their kind."""
    places = defaultdict[str, list[str]](list)
    for kind, place in listed_modules(root):
        misplaced = (kind == "Transformer") == bool(places)
        misplaced |= kind == "Dense" and "Normalize" in places
        if kind not in kinds or (in_order and misplaced):
            raise InputError(
                f"{root / 'modules.json'}: module {kind} is not supported there in a "
                "late-interaction model, the order must be Transformer, Dense, MultiVectorMask, "
                "Normalize"
            )
        places[kind].append(place)
    return places


def _filled(files: MultiVectorFiles, said: FileSettings) -> MultiVectorFiles:
    """Adds how queries are filled: to a fixed length, or to a least one."""
    if said.get("query_expansion") is None:
        return files
    values = said.object("query_expansion")
    values.refuse_unknown({"strategy", "attend", "token", "length"})
    strategy, length = values.get("strategy"), _length(values, "length")
    if strategy not in ("fixed", "min") or length is None:
        problem = f"must have a length, and the strategy fixed or min, got {strategy!r}"
        raise values.error(f"query_expansion {problem}")
    longest = files.query_length and max(files.query_length, length)
    return replace(
        files,
        query_length=length if strategy == "fixed" else longest,
        fill_length=length,
        fill_token=values.text("token"),
        attends_fill=bool(values.get("attend")),
    )


def _read_mask(path: Path) -> FileSettings:
    values = optional_object(path)
    values.refuse_unknown({"skiplist_words", "skiplist_tasks"})
    tasks = values.get("skiplist_tasks", ["document"])
    if tasks not in ([], ["document"], ["query", "document"], ["document", "query"]):
        raise values.error(
            f"skiplist_tasks must be document, or query and document, got {tasks!r}: words that "
            "are left out of queries alone are not supported"
        )
    return values


def _words(values: FileSettings) -> tuple[str, ...] | None:
    words = values.get("skiplist_words")
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if words is not None and not is_list:
        raise values.error("skiplist_words must be a list of texts")
    return None if words is None else tuple(words)


def _markers(prompt: str) -> Iterator[str]:
    """Yields what of a prompt may be one entry of the vocabulary: all of it, or its first word."""
    if prompt.strip():
        yield prompt
        yield prompt.split(None, 1)[0]
