"""Our JAX engine beside sentence-transformers, or torch alone, on this machine's GPU.

    python -m benchmarks.gpu --carry build/gpu  # here: MiniLM's weights, 45 MB, and its tokenizer
    python -m benchmarks.gpu --model build/gpu  # there: figures of nine minutes at most
    python -m benchmarks.gpu --quick            # anywhere: tiny models on the processor, no figures

There it needs this folder, JAX with CUDA, NumPy, the packages that reading a model and texts takes
(safetensors, orjson, tokenizers, google-crc32c, ahocorasick-rs, typing-extensions) and, for the
other side, torch; no network and no TensorFlow. Without sentence-transformers the other side is an
encoder of 60 lines on torch's scaled_dot_product_attention, and the figures say so. MiniLM has its
real weights, rounded to float16; bert-base and ModernBERT have random ones, by a seed.

"program" is a batch of full rows of 128 tokens that is on the card already, as large as those of
the engine and half so; "engine" is token ids to vectors, "end to end" texts to vectors. The
share of the card's peak counts the operations of products of real tokens alone. "host" is what the
tokenizer alone gives in one process: where "end to end" is near it, more processes share a card.
Each side is a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.backends.jax.chips import operations_of_token
from bert_embed.backends.runner import RowSpec
from bert_embed.bundle.bundle import (
    METADATA,
    Bundle,
    is_weights,
    load_tensors,
    read_bundle,
    write_metadata,
    write_tensors,
)
from bert_embed.bundle.find import resolve_model
from bert_embed.models.bert import BertConfig
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.modern_bert import ModernBertConfig
from bert_embed.text.documents import TokenRows

_HALF = "half.npz"
# Operations a second of dense products, by the makers' data sheets: 16 bits, float32 without TF32.
_PEAKS = {
    "H100": (989e12, 67e12),
    "H200": (989e12, 67e12),
    "A100": (312e12, 19.5e12),
    "L4": (121e12, 30e12),
    "T4": (65e12, 8.1e12),
}
_PRECISIONS = {
    "jax": ("bfloat16", "float16", "float32"),
    "torch": ("float16", "bfloat16", "float32"),
}
_CORPORA = {"sentences": (25, 20_000), "passages": (200, 3_000)}  # mean words, texts
# Of so many texts a side gets one, of as many more in float32, which takes ten times as long.
_EACH, _EACH_OF = {"jax": 1, "torch": 4}, {"float32": 4}
_BATCHES = (64, 256, 1024)  # texts, of which torch's best counts
_LONGEST = 256
_ROW = 128  # tokens of a row of a program
_RATE = ", TFLOP/s"
_SECONDS = 1.0  # of one figure at least
_LIMITS = {"jax": 240.0, "torch": 500.0}  # seconds from the start, after which no model begins
_STARTED, _ALONE = (
    "GPU_BENCHMARK_STARTED",
    "GPU_BENCHMARK_ALONE",
)  # environment variables of both sides
Tensors = Mapping[str, np.ndarray]


def main() -> None:
    """Carries, or measures both sides and writes what they gave."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--carry", type=Path, help="write what the other machine needs")
    parser.add_argument("--model", type=Path, help="what --carry wrote; else the installed MiniLM")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--alone", action="store_true", help="torch without sentence-transformers")
    parser.add_argument("--output", type=Path, default=Path("build/gpu.json"))
    parser.add_argument("--side", choices=tuple(_PRECISIONS), help="for this script itself")
    parser.add_argument("--folder", type=Path, help="likewise")
    args = parser.parse_args()
    if args.carry:
        carry(args.carry)
    elif args.side:
        side(args.side, args.folder, args.quick)
    else:
        print(json.dumps(measured(args), indent=1))


def carry(folder: Path) -> None:
    """Writes MiniLM with weights of half the size."""
    bundle = resolve_model("minilm")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (METADATA, *(name for name in bundle.files if not is_weights(name))):
        (folder / name).write_bytes(Path(bundle.path, name).read_bytes())
    half = {name: array.astype(np.float16) for name, array in load_tensors(bundle).items()}
    np.savez(folder / _HALF, **half)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Runs both sides on models and texts in a folder; returns all figures, and writes them."""
    found: dict[str, Any] = {"quick": args.quick, "cores": os.cpu_count(), "sides": {}}
    os.environ[_STARTED] = str(time.time())
    if args.alone:
        os.environ[_ALONE] = "1"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_models(folder, args.model, args.quick)
        for name, python in (("jax", sys.executable), ("torch", args.torch)):
            command = [python, "-m", "benchmarks.gpu", "--side", name, "--folder", temporary]
            with subprocess.Popen(
                [*command, *(["--quick"] if args.quick else [])],
                env=os.environ | {"BERT_EMBED_CACHE": temporary},
                stdout=subprocess.PIPE,
            ) as process:
                for line in process.stdout or ():
                    if line.startswith(b"{"):  # all figures so far, kept whatever happens next
                        found["sides"][name] = json.loads(line)
                        write(args.output, found)
            if process.returncode:
                found["sides"].setdefault(name, {})["ended with code"] = process.returncode
        vectors = [folder / f"{name}.npy" for name in _PRECISIONS]
        if all(map(Path.exists, vectors)):
            one, other = map(np.load, vectors)
            found["least cosine of MiniLM's vectors"] = float(np.vecdot(one, other).min())
    write(args.output, found)
    return found


def write(path: Path, found: dict[str, Any]) -> None:
    """Writes the figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def write_models(folder: Path, carried: Path | None, quick: bool) -> None:
    """Writes a bundle of each model; only MiniLM's weights mean anything."""
    source = resolve_model("minilm") if carried is None else read_bundle(carried, [])
    if carried is None:
        tensors: Tensors = load_tensors(source)
    else:
        with np.load(carried / _HALF) as half:
            tensors = {name: half[name].astype(np.float32) for name in half.files}
    _write(folder, "MiniLM", source, source.config, tensors)
    words, width, layers, inner = source.config.vocab_size, 768, 12, 3072
    if quick:
        width, layers, inner = 64, 2, 96
    heads = width // 64 if not quick else 2
    full = tuple(range(0, 1 + 21 * (not quick), 3))
    for name, config in {
        "bert-base": BertConfig(words, width, layers, heads, inner, 512),
        "ModernBERT": ModernBertConfig(
            *(words, width, 22 if not quick else 2, heads, 1152 if not quick else 96, 8192),
            type_vocab_size=0,
            full_attention=full,
        ),
    }.items():
        random = np.random.default_rng(7)
        arrays = {
            tensor: np.ones(shape, np.float32)
            if tensor.endswith("/gamma")
            else random.standard_normal(shape, np.float32) * np.float32(0.02)
            for tensor, shape in replace(source, config=config).tensor_shapes().items()
            if not tensor.startswith("pooler/")
        }
        _write(folder, name, replace(source, has_pooler=False), config, arrays)


def _write(
    folder: Path, name: str, source: Bundle, config: EncoderConfig, tensors: Tensors
) -> None:
    (folder / name).mkdir()
    here = replace(source, path=str(folder / name), config=config, files={}, fingerprint=name)
    vocabulary = source.tokenizer_file
    (folder / name / vocabulary).write_bytes(Path(source.path, vocabulary).read_bytes())
    write_tensors(here, tensors)
    write_metadata(here.path, here)


def side(name: str, folder: Path, quick: bool) -> None:
    """Measures one side; prints a line of JSON, all figures so far, after each."""
    if find_spec(name) is None:
        print(json.dumps({"missing": f"{name} is not installed here"}))
        return
    load, card, program = {"jax": _jax_side, "torch": _torch_side}[name](quick)
    found: dict[str, Any] = {"card": card, "program": program, "figures": {}}
    peaks = next((peak for kind, peak in _PEAKS.items() if kind in card), None)
    models = ("MiniLM", "bert-base", "ModernBERT")
    for precision, model in product(("float32",) if quick else _PRECISIONS[name], models):
        bundle, loaded = read_bundle(folder / model), None
        for corpus, everything in corpora(bundle, quick).items():
            texts = everything[:: 1 if quick else _EACH[name] * _EACH_OF.get(precision, 1)]
            if not quick and time.time() - float(os.environ[_STARTED]) > _LIMITS[name]:
                found["stopped"] = f"before {model} in {precision}, {corpus}: its time was over"
                print(json.dumps(found))
                return
            loaded = loaded or load(bundle, precision)
            figures = _figures(bundle, texts, loaded, quick)
            if peaks is not None:
                peak = peaks[precision == "float32"]
                for figure, rate in list(figures.items()):
                    if figure.endswith(_RATE):
                        share = f"{figure.removesuffix(_RATE)}, share of peak"
                        figures[share] = round(rate * 1e12 / peak, 4)
            found["figures"][f"{model}, {precision}, {corpus}"] = figures
            print(json.dumps(found), flush=True)
            loaded = replace(loaded, programs={})  # which no corpus changes
            vectors = folder / f"{name}.npy"
            if not vectors.exists():  # of MiniLM
                np.save(vectors, loaded.whole(everything[:64]))
    found["TensorFlow was imported"] = "tensorflow" in sys.modules
    print(json.dumps(found), flush=True)


def corpora(bundle: Bundle, quick: bool) -> dict[str, list[str]]:
    """Texts of words of the vocabulary, of geometric lengths."""
    vocabulary = Path(bundle.path, bundle.tokenizer_file).read_text("utf-8").splitlines()
    words = np.array([word for word in vocabulary if word.isascii() and word.isalpha()])
    found = {}
    for name, (mean, count) in list(_CORPORA.items())[: 1 if quick else None]:
        random = np.random.default_rng(mean)
        lengths = np.minimum(
            random.geometric(1 / mean, count // 1000 if quick else count), 4 * mean
        )
        texts = np.split(random.choice(words, lengths.sum()), np.cumsum(lengths)[:-1])
        found[name] = [" ".join(text.tolist()) for text in texts]
    return found


Rows = Sequence[np.ndarray]  # int ids of each text, special tokens included


@dataclass(frozen=True)
class Loaded:
    """What a model of one side does."""

    engine: Callable[[Rows], Any]
    whole: Callable[[list[str]], np.ndarray]  # texts to vectors
    tokenize: Callable[[list[str]], Rows]
    # Each runs a batch of so many full rows, which is on the card, so many times.
    programs: Mapping[int, Callable[[int], object]] = field(default_factory=dict)


_hosts: dict[int, float] = {}  # seconds of the tokenizer, by the number of texts


def _figures(bundle: Bundle, texts: list[str], loaded: Loaded, quick: bool) -> dict[str, float]:
    rows = loaded.tokenize(texts)
    lengths = np.array([len(row) for row in rows])
    seconds = {
        "engine": _best(lambda: loaded.engine(rows), quick),
        "end to end": _best(lambda: loaded.whole(texts), quick),
    }
    if len(texts) not in _hosts:
        _hosts[len(texts)] = _best(lambda: loaded.tokenize(texts), quick)
    seconds["host"] = _hosts[len(texts)]
    figures = {"mean tokens": round(lengths.mean(), 1)}
    figures |= {f"{name}, tokens/s": round(lengths.sum() / s) for name, s in seconds.items()}
    figures["texts/s, end to end"] = round(len(texts) / seconds["end to end"])
    figures[f"engine{_RATE}"] = _rate(bundle, lengths, seconds["engine"])
    for rows_of_batch, program in loaded.programs.items():
        count = 1 if quick else 20
        spent = _best(partial(program, count), quick) / count
        name = f"program of {rows_of_batch} rows"
        figures[f"{name}, ms"] = round(1000 * spent, 3)
        figures[f"{name}, tokens/s"] = round(rows_of_batch * _ROW / spent)
        figures[f"{name}{_RATE}"] = _rate(bundle, np.full(rows_of_batch, _ROW), spent)
    return figures


def _rate(bundle: Bundle, lengths: np.ndarray, seconds: float) -> float:
    of_text = [operations_of_token(bundle.config, length) * length for length in lengths.tolist()]
    return round(sum(of_text) / seconds / 1e12, 2)


def _best(call: Callable[[], object], quick: bool) -> float:
    """The seconds of the fastest of several calls, after one that compiles and fills caches."""
    call()
    spent: list[float] = []
    while not spent or (not quick and (sum(spent) < _SECONDS or len(spent) < 2)):
        started = time.perf_counter()
        call()
        spent.append(time.perf_counter() - started)
    return min(spent)


def _rows_of(bundle: Bundle) -> Callable[[list[str]], Rows]:
    from bert_embed.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(bundle)

    def tokenize(texts: list[str]) -> Rows:
        found = tokenizer.tokenize_texts(texts, offsets=False)
        rows = np.split(found.ids, found.row_splits[1:-1])
        return [
            np.array([tokenizer.cls_id, *row[: _LONGEST - 2], tokenizer.sep_id], np.int32)
            for row in rows
        ]

    return tokenize


def _jax_side(quick: bool) -> tuple[Callable[[Bundle, str], Loaded], str, str]:
    import jax

    from bert_embed.backends.choose import load_engine
    from bert_embed.backends.jax.packing import most_texts, usual_tokens
    from bert_embed.model import Embedder, Request
    from bert_embed.settings import OutputSpec, TextSpec

    device = "cpu" if quick else "gpu"
    budget = 4 * _LONGEST if quick else None

    def load(bundle: Bundle, precision: str) -> Loaded:
        embedder = Embedder(bundle, precision=precision, device=device, engine="jax")

        def engine(rows: Rows) -> object:
            splits = np.cumsum([0, *map(len, rows)])
            ids = np.concatenate(rows)
            wanted = RowSpec(embedder.spec, batch_tokens=budget, longest=_LONGEST)
            return embedder.runner.run(TokenRows(ids, splits), wanted)

        def whole(texts: list[str]) -> np.ndarray:
            embedded = embedder.run(
                Request(TextSpec(_LONGEST), texts={"texts": texts}, batch_tokens=budget)
            )
            return np.asarray(embedded.sentences).reshape(len(texts), -1)

        own = load_engine(bundle, (101, 102), precision, device, engine="jax")
        graph: Any = own.graph(embedder.spec.pooled, OutputSpec(finished=False), 0)

        def program(rows: int) -> Callable[[int], object]:
            shape, lengths = (rows, _ROW), np.zeros((rows, most_texts(_ROW)), np.int32)
            lengths[:, 0] = _ROW
            random = np.random.default_rng(0)
            ids = random.integers(1000, bundle.config.vocab_size, shape, np.int32)
            batch = jax.device_put((ids, np.zeros_like(ids), None, lengths), graph.by_row)

            def run(count: int) -> object:
                return jax.block_until_ready([graph.function(*batch) for _ in range(count)][-1])

            return run

        usual = (budget or usual_tokens(device, _LONGEST)) // _ROW
        programs = {rows: program(rows) for rows in (usual // 2, usual)}
        return Loaded(engine, whole, _rows_of(bundle), programs)

    return load, jax.local_devices(backend=device)[0].device_kind, f"jax {jax.__version__}"


def _torch_side(quick: bool) -> tuple[Callable[[Bundle, str], Loaded], str, str]:
    import torch

    device = "cpu" if quick else "cuda"
    torch.set_grad_enabled(False)
    with_library = _ALONE not in os.environ and find_spec("sentence_transformers") is not None

    def load(bundle: Bundle, precision: str) -> Loaded:
        dtype = getattr(torch, precision)
        library = _library(bundle, device, dtype) if with_library else None
        states = _states(bundle, device, dtype) if library is None else library[0]
        tokenize = _rows_of(bundle)

        def batched(rows: Rows, size: int) -> np.ndarray:
            order = np.argsort([-len(row) for row in rows], kind="stable")
            found = []
            for start in range(0, len(order), size):
                some = [rows[number] for number in order[start : start + size]]
                lengths = np.array([len(row) for row in some])
                mask = np.arange(lengths[0]) < lengths[:, None]
                ids = np.zeros(mask.shape, np.int64)
                ids[mask] = np.concatenate(some)
                ids, inside = (torch.from_numpy(part).to(device) for part in (ids, mask))
                state = states(ids, None if mask.all() else inside).float()
                pooled = (state * inside[:, :, None]).sum(1) / inside.sum(1, keepdim=True)
                found.append(torch.nn.functional.normalize(pooled, dim=1))
            vectors = np.empty((len(rows), found[0].shape[1]), np.float32)
            vectors[order] = torch.cat(found).cpu().numpy()
            return vectors

        def best(call: Callable[[Any, int], np.ndarray]) -> Callable[[Any], np.ndarray]:
            chosen: dict[int, int] = {}  # by the number of texts: the corpora differ in it

            def at_best(values: Any) -> np.ndarray:
                if len(values) not in chosen:
                    spent = {}
                    some = values[: -(-len(values) // 4)]
                    for size in _BATCHES[: 1 if quick else None]:
                        call(values[:size], size)
                        started = time.perf_counter()
                        call(some, size)
                        spent[size] = time.perf_counter() - started
                    chosen[len(values)] = min(spent, key=spent.__getitem__)
                return call(values, chosen[len(values)])

            return at_best

        if library is None:
            whole = best(lambda texts, size: batched(tokenize(texts), size))
        else:
            whole = best(library[1])
        return Loaded(best(batched), whole, tokenize)

    card = "this processor" if quick else torch.cuda.get_device_name()
    if not with_library:
        return load, card, f"an encoder of ours on SDPA of torch {torch.__version__}"
    import sentence_transformers

    return (
        *(load, card),
        f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}",
    )


def _states(bundle: Bundle, device: str, dtype: Any) -> Callable[[Any, Any], Any]:
    """A family's layers in torch, with scaled_dot_product_attention: ids and mask to states."""
    import torch
    from torch.nn import functional

    config, arrays = bundle.config, load_tensors(bundle)
    weights = {
        name: torch.from_numpy(np.array(array)).to(device, dtype)
        for name, array in (arrays | config.tables(arrays)).items()
    }

    class Ops:
        def __init__(self, ids: Any, mask: Any) -> None:
            self._length = ids.shape[1]
            self._seen = None if mask is None else mask[:, None, None]

        def flat(self, x: Any) -> Any:
            return x

        def gather(self, table: str, ids: Any) -> Any:
            return weights[table][ids]

        def first_rows(self, table: str) -> Any:
            return weights[table][: self._length]

        def add(self, x: Any, y: Any) -> Any:
            return x + y

        def multiply(self, x: Any, y: Any) -> Any:
            return x * y

        def activated(self, x: Any, activation: str) -> Any:
            return functional.gelu(x)

        def norm(self, x: Any, name: str, epsilon: float | None = None) -> Any:
            scale, shift = weights[f"{name}/gamma"], weights.get(f"{name}/beta")
            return functional.layer_norm(x, scale.shape, scale, shift, config.layer_norm_eps)

        def product(self, x: Any, name: str) -> Any:
            return functional.linear(x, weights[f"{name}/kernel"].T, weights.get(f"{name}/bias"))

        def by_distance(self, table: str) -> Any:
            places = torch.arange(self._length, device=device)
            columns = weights[table].shape[1] // 2 + places[None] - places[:, None]
            return weights[table][0, columns] >= 0  # the window of ModernBERT: bool, who is seen

        def attention(
            self, x: Any, layer: str, added: Any = None, rotation: tuple[Any, Any] | None = None
        ) -> Any:
            shape = (*x.shape[:2], config.num_attention_heads, config.head_width)
            parts = [self.product(x, f"{layer}/{name}") for name in ("query", "key", "value")]
            query, key, value = (part.reshape(shape).transpose(1, 2) for part in parts)
            if rotation is not None:
                query, key = (_turned(part, *rotation) for part in (query, key))
            seen = self._seen
            if added is not None:
                seen = added if seen is None else seen & added
            found = functional.scaled_dot_product_attention(query, key, value, seen)
            return found.transpose(1, 2).reshape(x.shape)

    def states(ids: Any, mask: Any) -> Any:
        *_, last = config.hidden_states(Ops(ids, mask), ids, torch.zeros_like(ids))
        return last

    return states


def _turned(x: Any, same: Any, exchanged: Any) -> Any:
    return x * same + x.roll(x.shape[-1] // 2, -1) * exchanged


def _saved(bundle: Bundle) -> str:
    """Returns the folder with the same sizes as transformers keeps them, in float32.

    MiniLM has its weights, the others have random ones.
    """
    import torch
    import transformers

    config, folder = bundle.config, f"{bundle.path}-saved"
    if Path(folder).exists():
        return folder
    sizes = {
        name: getattr(config, name)
        for name in (
            *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
            *("intermediate_size", "max_position_embeddings"),
        )
    }
    torch.manual_seed(7)
    if isinstance(config, BertConfig):
        model = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
        known = model.state_dict()
        for name, array in load_tensors(bundle).items():
            source = config.huggingface_tensor(name, {"model_type": "bert", **sizes})
            if source.name in known:
                theirs = array.T if source.turned else array
                known[source.name].copy_(torch.from_numpy(np.ascontiguousarray(theirs)))
    else:
        ids = {"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102}
        ids |= {"bos_token_id": 101, "eos_token_id": 102}
        model = transformers.ModernBertModel(transformers.ModernBertConfig(**sizes, **ids))
    model.save_pretrained(folder)
    vocabulary = str(Path(bundle.path, bundle.tokenizer_file))
    transformers.BertTokenizerFast(vocabulary).save_pretrained(folder)
    return folder


def _library(
    bundle: Bundle, device: str, dtype: Any
) -> tuple[Callable[[Any, Any], Any], Callable[[list[str], int], np.ndarray]]:
    """A model of sentence-transformers: ids and mask to states, texts to vectors."""
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": dtype, "attn_implementation": "sdpa"}
    whole = SentenceTransformer(_saved(bundle), device=device, model_kwargs=settings)
    whole.max_seq_length = _LONGEST
    encoder = whole[0].auto_model

    def states(ids: Any, mask: Any) -> Any:
        return encoder(input_ids=ids, attention_mask=mask).last_hidden_state

    return states, lambda texts, size: whole.encode(
        texts, batch_size=size, normalize_embeddings=True, show_progress_bar=False
    )


if __name__ == "__main__":
    main()
