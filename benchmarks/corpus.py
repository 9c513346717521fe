"""Natural texts for the benchmarks.

English: sentences of the docstrings of the pinned dependencies. Many scripts: Django's messages in
its 96 languages (BSD).
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import random
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

FOLDER = Path("build/bench")
_PACKAGES = ("tensorflow", "apache_beam", "numpy")
_DISTRIBUTIONS = ("tensorflow", "apache-beam", "numpy")
_FEWEST_WORDS, _MOST_WORDS = 3, 80
_SHORTEST_PASSAGE, _LONGEST_PASSAGE = 200, 254  # tokens; [CLS] and [SEP] fill the 256 of MiniLM
_SEED, _MULTILINGUAL_SEED = 20250801, 20250802
_MESSAGES = 3  # of one language make a text of about 80 characters
_TRANSLATION = re.compile(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CODE = re.compile(r"```.*?```|^\s*(>>>|\.\.\.|\.\. |[|+]).*$|^\s*[-=~^]{3,}\s*$", re.S | re.M)
_LABEL = re.compile(r"^(\s*[-*] |\s*\d+\. |\s*[\w*`]+( \([^)]*\))?: |\s*(Args|Returns|Raises):)")
_END = re.compile(r"(?<=[a-z)`\"'][.!?])\s+(?=[A-Z`\"'(])")
_SENTENCE = re.compile(r"[A-Z`\"'(].*[.!?]")
_LETTERS = re.compile(r"[A-Za-z ]")


def english_sentences(count: int) -> list[str]:
    """Returns `count` different sentences, a prefix of the corpus.

    Raises:
        ValueError: `count` is more than there are.
    """
    sentences = every_sentence()
    if count > len(sentences):
        raise ValueError(f"count must be at most {len(sentences)}, got {count}")
    return sentences[:count]


def numbered_sentences(count: int) -> Iterator[str]:
    """Yields `count` different lines: all sentences, then all again with a number in front."""
    return numbered(every_sentence(), count)


def numbered(texts: Sequence[str], count: int) -> Iterator[str]:
    """Yields `count` different texts: these, then these again with a number in front."""
    for row in range(count):
        turn, at = divmod(row, len(texts))
        yield f"{turn}. {texts[at]}" if turn else texts[at]


def passages(count: int) -> list[str]:
    """Returns `count` passages of 200 to 254 tokens: a dozen sentences, joined.

    Raises:
        ValueError: `count` is more than there are.
    """
    from bert_embed.bundle.find import resolve_model
    from bert_embed.text.tokenizer import load_tokenizer

    sentences = every_sentence()
    tokenizer = load_tokenizer(resolve_model("minilm"))
    lengths = np.diff(tokenizer.encode_flat(sentences)[1]).tolist()
    passages, tokens = [], 0
    parts: list[str] = []
    for sentence, length in zip(sentences, lengths, strict=True):
        if tokens + length > _LONGEST_PASSAGE:
            if tokens >= _SHORTEST_PASSAGE:
                passages.append(" ".join(parts))
            parts, tokens = [], 0
        parts.append(sentence)
        tokens += length
    if count > len(passages):
        raise ValueError(f"count must be at most {len(passages)}, got {count}")
    return passages[:count]


TEXTS = {"sentences": english_sentences, "passages": passages}


def multilingual_texts(count: int) -> list[str]:
    """Returns `count` texts of all languages, in an order that is random but always the same."""
    from benchmarks.peers import peer_python

    draw = random.Random(_MULTILINGUAL_SEED)
    packages = peer_python().parents[1] / "lib"
    languages: dict[str, list[str]] = {}
    for path in sorted(packages.glob("python*/site-packages/django/**/LC_MESSAGES/*.po")):
        language = path.parts[-3]
        if not language.startswith("en"):
            quoted = _TRANSLATION.findall(path.read_text(encoding="utf-8"))[1:]  # 0: the header
            messages = ["".join(map(ast.literal_eval, each.splitlines())) for each in quoted]
            languages.setdefault(language, []).extend(filter(None, messages))
    texts: list[str] = []
    while len(texts) < count:
        for messages in languages.values():
            draw.shuffle(messages)
            groups = zip(*[iter(messages)] * _MESSAGES, strict=False)
            texts.extend(" ".join(group).replace("\n", " ") for group in groups)
    draw.shuffle(texts)
    return texts[:count]


def every_sentence() -> list[str]:
    """Returns the whole corpus, the same on every machine with the same pins.

    The dependencies are read, not imported: the environment must hold all three of them. The
    sentences are shuffled with a fixed seed, so a prefix is a fair sample of all packages. They
    are cut once (15 s) and kept below `FOLDER`.
    """
    path = FOLDER / f"sentences-{_fingerprint()}.txt"
    if not path.exists():
        sentences = sorted({s for name in _PACKAGES for s in _package_sentences(name)})
        random.Random(_SEED).shuffle(sentences)
        write_lines(path, sentences)
    return path.read_text(encoding="utf-8").splitlines()


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Writes lines to a file that appears whole, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    with half.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    return half.replace(path)


def docstring_sentences(docstring: str) -> Iterator[str]:
    """Yields the sentences of a docstring, without its code, headings and argument names.

    >>> list(docstring_sentences("Adds two things. It is fast.\\n\\nArgs:\\n  x: The one.\\n"))
    ['Adds two things.', 'It is fast.']
    """
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\w+:) )", _CODE.sub("\n\n", docstring)):
        joined = _LABEL.sub("", " ".join(_LABEL.sub("", paragraph).split()))
        for sentence in _END.split(joined):
            if _is_english(sentence):
                yield sentence


def _is_english(sentence: str) -> bool:
    words = sentence.count(" ") + 1
    if not _FEWEST_WORDS <= words <= _MOST_WORDS or not _SENTENCE.fullmatch(sentence):
        return False
    return len(_LETTERS.findall(sentence)) > 0.85 * len(sentence)


def _package_sentences(name: str) -> Iterator[str]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"the package {name} is not installed")
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, _DOCUMENTED):
                yield from docstring_sentences(ast.get_docstring(node) or "")


def _fingerprint() -> str:
    versions = [importlib.metadata.version(name) for name in _DISTRIBUTIONS]
    rules = Path(__file__).read_bytes()
    return hashlib.sha256(repr(versions).encode() + rules).hexdigest()[:12]
