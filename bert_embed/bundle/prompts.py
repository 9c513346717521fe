"""Says which texts a model expects before documents, and before queries."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from bert_embed.bundle.bundle import Bundle

# By the names that sentence-transformers looks for, in this order.
QUERY = ("query",)
DOCUMENT = ("document", "passage", "corpus")


@dataclass(frozen=True)
class TrainedPrompts:
    """What a model was trained with, "" for nothing."""

    query: str
    document: str


_SEARCHING = "Represent this sentence for searching relevant passages: "
# Models whose cards ask for prompts that their files do not name, or did not in every release.
_TRAINED = {
    r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?": ("query: ", "passage: "),
    r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)": (
        "search_query: ",
        "search_document: ",
    ),
    r"bge-(small|base|large)-en(-v1\.5)?": (_SEARCHING, ""),
    r"bge-(small|base|large)-zh(-v1\.5)?": ("为这个句子生成表示以用于检索相关文章\uff1a", ""),
    r"mxbai-embed-large-v1|snowflake-arctic-embed-(xs|s|m|m-long|l|m-v1\.5)": (_SEARCHING, ""),
    r"snowflake-arctic-embed-[ml]-v2\.0": ("query: ", ""),
}
_CACHED = re.compile(r".*/models--(?:[^/]+--)?([^/]+)/snapshots/[^/]+")


def document_prompt(bundle: Bundle, prompt: str | None) -> str:
    """Returns the text before each document: `prompt`, which `Bundle.prompt_text` describes.

    None is the model's prompt for documents, or its default where its files name none.
    """
    name = first_name(bundle.prompts, DOCUMENT)
    return bundle.prompt_text(f"name:{name}" if prompt is None and name else prompt)


def query_prompt(bundle: Bundle, documents: str) -> str | None:
    """Returns the text before queries to documents with this prompt; None where nothing says."""
    if name := first_name(bundle.prompts, QUERY):
        return bundle.prompts[name]
    trained = trained_prompts(bundle)
    return trained.query if trained and trained.document == documents else None


def trained_prompts(bundle: Bundle) -> TrainedPrompts | None:
    """Returns the prompts of a known model, by its name, if its files name none."""
    if any(bundle.prompts.values()):
        return None
    cached = _CACHED.fullmatch(bundle.source)
    name = cached[1] if cached else PurePosixPath(bundle.source.partition("@")[0]).name
    known = (texts for pattern, texts in _TRAINED.items() if re.fullmatch(pattern, name, re.I))
    texts = next(known, None)
    return None if texts is None else TrainedPrompts(*texts)


def first_name(prompts: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Returns the first of `names` that a model's prompts have."""
    return next((name for name in names if name in prompts), None)
