"""Says which texts a model expects before documents, and before queries.

One rule for Python, runs, `search` and transforms: a prompt that is named after its use is used, a
default prompt of another name is for calls that name no use. sentence-transformers does the same.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from bert_embed.bundle.bundle import Bundle

QUERY, DOCUMENT = "query", "document"
# sentence-transformers' `encode_document` says that it looks for these, too, but each of its models
# has a prompt named "document", if an empty one, which it finds first (release 6.2).
UNUSED = ("passage", "corpus")


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

    None is the model's prompt for documents, "" where its files name none.
    """
    if prompt is not None:
        return bundle.prompt_text(prompt)
    return bundle.prompts.get(DOCUMENT, "")


def query_prompt(bundle: Bundle, documents: str) -> str:
    """Returns the text before queries to documents with this prompt.

    It is the model's prompt for queries, or what it was trained with beside that of the documents;
    where nothing says, the default prompt if the documents have it, else "".
    """
    if QUERY in bundle.prompts:
        return bundle.prompts[QUERY]
    trained = trained_prompts(bundle)
    if trained is not None and trained.document == documents:
        return trained.query
    by_default = bundle.default_prompt != DOCUMENT and documents == bundle.prompt_text(None)
    return documents if by_default else ""


def unused_prompt(bundle: Bundle) -> str | None:
    """Returns the name of a prompt that may be for documents, but is not put before them."""
    if DOCUMENT in bundle.prompts:
        return None
    return next((name for name in UNUSED if bundle.prompts.get(name)), None)


def trained_prompts(bundle: Bundle) -> TrainedPrompts | None:
    """Returns the prompts of a known model, by its name, if its files name none."""
    if any(bundle.prompts.values()):
        return None
    cached = _CACHED.fullmatch(bundle.source)
    name = cached[1] if cached else PurePosixPath(bundle.source.partition("@")[0]).name
    known = (texts for pattern, texts in _TRAINED.items() if re.fullmatch(pattern, name, re.I))
    texts = next(known, None)
    return None if texts is None else TrainedPrompts(*texts)
