"""Special tokens of RoBERTa's tokenizers that other files than tokenizer.json name."""

import json

import pytest

from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import imported, refused

SPECIAL = dict.fromkeys(("normalized", "lstrip", "rstrip", "single_word"), False)
SPECIAL["special"] = True


@pytest.mark.parametrize("where", ["named", "map", "decoder", "nowhere", "without a class"])
@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_special_tokens_that_tokenizer_json_does_not_list_are_special(tmp_path, kind, where):
    """As in transformers, whose classes have them; padding is theirs, for which no position is."""
    source = tmp_path / "source"
    write_architecture(source, kind)
    plain = load_tokenizer(imported(tmp_path, "plain"))
    entries = {token: plain.vocab.index(token) for token in ("<s>", "<pad>", "</s>", "<unk>")}
    slow = json.loads((source / "tokenizer_config.json").read_text())
    slow = {"tokenizer_class": slow["tokenizer_class"]} if where != "without a class" else {}
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    if where == "decoder":
        tokens = {str(number): SPECIAL | {"content": token} for token, number in entries.items()}
        slow["added_tokens_decoder"] = tokens
    slow |= names if where == "named" else {}
    files = {"special_tokens_map.json": names if where == "map" else {}}
    files |= {"tokenizer_config.json": json.dumps(slow), "tokenizer.json": {"added_tokens": []}}
    tokenizer = load_tokenizer(imported(tmp_path, files=files))
    for text in ("the bank", "a <pad> b</s><unk>"):
        assert tokenizer.encode(text) == plain.encode(text)


@pytest.mark.parametrize("where", ["tokenizer.json", "added_tokens_decoder", "added_tokens.json"])
def test_special_tokens_may_stand_behind_the_vocabulary(tmp_path, where):
    source = tmp_path / "source"
    write_architecture(source, "roberta")
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    kept = sorted(model["vocab"].keys() - {*special}, key=lambda entry: model["vocab"][entry])
    model["vocab"] = {entry: number for number, entry in enumerate(kept)}
    numbers = {token: len(kept) + number for number, token in enumerate(special)}
    tokens = [{"id": number, **SPECIAL, "content": token} for token, number in numbers.items()]
    slow, listed = {"tokenizer_class": "RobertaTokenizer"}, []
    if where == "tokenizer.json":
        listed = tokens
    elif where == "added_tokens_decoder":
        slow[where] = {str(token.pop("id")): token for token in tokens}
    files = {"tokenizer.json": {"model": model, "added_tokens": listed}}
    files |= {"added_tokens.json": numbers} if where == "added_tokens.json" else {}
    files |= {"tokenizer_config.json": json.dumps(slow)}
    files |= {"config.json": {"pad_token_id": numbers["<pad>"]}}
    tokenizer = load_tokenizer(imported(tmp_path, "behind", files))
    assert tokenizer.encode("a") == [numbers["<s>"], kept.index("a"), numbers["</s>"]]
    # transformers takes the next free ids
    files = dict.fromkeys(("tokenizer_config.json", "added_tokens.json"), "{}")
    files |= {"tokenizer.json": {"added_tokens": []}}
    refused(tmp_path, r"sep_token must be an entry .* got '</s>'; add it there", files)
