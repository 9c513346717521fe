"""Says what the names of other tools are called here, for messages about unknown names."""

from collections.abc import Collection

# Keywords of sentence-transformers, LangChain, Beam and others.
_KEYWORDS = {
    "checkpoint": "model",
    "columns": "column",
    "gpu": "device",
    "max_length": "max_seq_length",
    "max_seq_len": "max_seq_length",
    "model_id": "model",
    "model_name": "model",
    "model_name_or_path": "model",
    "normalize_embeddings": "normalize",
    "pooling_mode": "pooling",
    "pooling_strategy": "pooling",
    "text_column": "column",
}
_REASONS = {
    "truncate_dim": "is called dim here, and what is cut is scaled to length 1 again",
    "backend": "is not offered: LiteRT computes on processors, TensorFlow elsewhere",
    "batch_size": "is not needed: batches are formed by tokens, batch_tokens says of how many",
    "cache_folder": "is not offered: HF_HUB_CACHE names the Hugging Face cache",
    "encode_kwargs": "is not offered: give these settings themselves",
    "model_kwargs": "is not offered: give these settings themselves",
    "is_split_into_words": "is not offered: join the words by spaces, or call encode_words",
    "modules": "is not offered: give the folder of a model",
    "pad_to_multiple_of": "is not offered: give padding='max_length'",
    "prompts": "is not offered: give one as prompt, or put {'name': 'text'} into the model's files",
    "return_attention_mask": "is not offered: leave out what is not needed of the result",
    "return_offsets_mapping": "is not offered: call encode_with_offsets",
    "return_overflowing_tokens": "is not offered: Encoder.encode takes long_text='window'",
    "return_special_tokens_mask": "is not offered: compare input_ids with cls_id and sep_id",
    "return_token_type_ids": "is not offered: leave out what is not needed of the result",
    "revision": "is not offered: give it behind the model's name, ORG/NAME@REVISION",
    "show_progress_bar": "is for encode",
    "similarity_fn_name": "is not offered: similarity is the cosine",
    "trust_remote_code": "is not offered: no code of a model is run",
}
_ATTRIBUTES = {
    "Encoder": {
        "embed_documents": "LangChain takes bert_embed.integrations.langchain.EncoderEmbeddings",
        "encode_multi_process": "encode uses all cores; load takes threads",
        "eval": "the model is always in that state",
        "get_max_seq_length": "it is max_seq_length",
        "half": "give bert_embed.load a precision",
        "layers": "it is spec.layers",
        "pooling": "it is spec.pooling",
        "prompts": "it is bundle.prompts",
        "save": "the model stays where it is, in bundle.path",
        "save_pretrained": "the model stays where it is, in bundle.path",
        "semantic_search": "compare with similarity(query, vectors)",
        "search": "compare with similarity(query, vectors); a run's output has a command, search",
        "start_multi_process_pool": "encode uses all cores; load takes threads",
        "to": "give bert_embed.load a device",
        "tokenize": "call tokenizer(texts)",
        "transform": "scikit-learn takes bert_embed.integrations.sklearn.TextEncoder",
    },
    "Tokenizer": {
        "add_tokens": "a vocabulary is that of its model",
        "batch_encode_plus": "call the tokenizer itself",
        "cls_token": "it is vocab[cls_id]",
        "encode_plus": "call the tokenizer itself",
        "mask_token": "it is vocab[mask_id]",
        "pad": "call the tokenizer with padding",
        "pad_token": "it is vocab[pad_id]",
        "save_pretrained": "the model stays where it is; vocab holds all entries",
        "sep_token": "it is vocab[sep_id]",
        "unk_token": "it is vocab[unk_id]",
    },
    "bert_embed": {
        "AutoTokenizer": "call bert_embed.Tokenizer.from_pretrained(model)",
        "SentenceTransformer": "call bert_embed.load(model)",
        "cos_sim": "call similarity of an Encoder",
        "semantic_search": "call similarity of an Encoder; a run's output has a command, search",
        "util": "call similarity of an Encoder",
    },
}


def keyword_hint(name: str, known: Collection[str]) -> str | None:
    """What to say of a keyword of another tool; None if it is none.

    >>> keyword_hint("model_name", {"model", "column"})
    'is not a setting; did you mean model?'
    """
    if _KEYWORDS.get(name) in known:
        return f"is not a setting; did you mean {_KEYWORDS[name]}?"
    return _REASONS.get(name)


def missing_attribute(owner: str, name: str) -> AttributeError:
    """The error for an attribute that an Encoder, a Tokenizer or this package does not have.

    >>> missing_attribute("Tokenizer", "cls_token")
    AttributeError('Tokenizer has no cls_token: it is vocab[cls_id]')
    """
    hint = _ATTRIBUTES[owner].get(name)
    lacks = (
        f"module {owner!r} has no attribute {name!r}"
        if owner == "bert_embed"
        else f"{owner} has no {name}"
    )
    return AttributeError(f"{lacks}{f': {hint}' if hint else ''}", name=name)
