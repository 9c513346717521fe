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
    "truncate_dim": "dim",
}
_REASONS = {
    "batch_size": "is not needed: batches are formed by tokens, batch_tokens says of how many",
    "cache_folder": "is not offered: HF_HUB_CACHE names the Hugging Face cache",
    "encode_kwargs": "is not offered: give these settings themselves",
    "model_kwargs": "is not offered: give these settings themselves",
    "is_split_into_words": "is not offered: join the words by spaces, or call encode_words",
    "pad_to_multiple_of": "is not offered: give padding='max_length'",
    "return_attention_mask": "is not offered: leave out what is not needed of the result",
    "return_offsets_mapping": "is not offered: call encode_with_offsets",
    "return_overflowing_tokens": "is not offered: Encoder.encode takes long_text='window'",
    "return_token_type_ids": "is not offered: leave out what is not needed of the result",
    "revision": "is not offered: give it behind the model's name, ORG/NAME@REVISION",
    "show_progress_bar": "is for encode",
    "trust_remote_code": "is not offered: no code of a model is run",
}
_ATTRIBUTES = {
    "Encoder": {
        "encode_multi_process": "encode uses all cores; threads of bert.load says how many",
        "eval": "the model is always in that state",
        "get_max_seq_length": "it is max_seq_length",
        "half": "give bert.load a precision",
        "layers": "it is spec.layers",
        "pooling": "it is spec.pooling",
        "prompts": "it is bundle.prompts",
        "save": "the model stays where it is, in bundle.path",
        "save_pretrained": "the model stays where it is, in bundle.path",
        "search": "compare with similarity(query, vectors); a run's output has a command, search",
        "start_multi_process_pool": "encode uses all cores; threads of bert.load says how many",
        "to": "give bert.load a device",
        "tokenize": "call tokenizer(texts)",
    },
    "Tokenizer": {
        "add_tokens": "a vocabulary is that of its model",
        "batch_encode_plus": "call the tokenizer itself",
        "cls_token": "it is vocab[cls_id]",
        "encode_plus": "call the tokenizer itself",
        "pad": "call the tokenizer with padding",
        "pad_token": "it is vocab[pad_id]",
        "save_pretrained": "the model stays where it is; vocab holds all entries",
        "sep_token": "it is vocab[sep_id]",
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
    """The error for an attribute that an Encoder or Tokenizer does not have.

    >>> missing_attribute("Tokenizer", "cls_token")
    AttributeError('Tokenizer has no cls_token: it is vocab[cls_id]')
    """
    hint = _ATTRIBUTES[owner].get(name)
    return AttributeError(f"{owner} has no {name}{f': {hint}' if hint else ''}", name=name)
