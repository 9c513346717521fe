"""Special tokens of RoBERTa's tokenizers that other files than tokenizer.json name."""

import json

import pytest

from bert_embed.base.errors import InputError
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models.architectures import write_architecture

SPECIAL = dict.fromkeys(("normalized", "lstrip", "rstrip", "single_word"), False) | {
    "special": True
}


def imported(folder):
    place = folder / f"bundle {len(list(folder.iterdir()))}"
    return load_tokenizer(import_huggingface(str(folder / "source"), str(place)))


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("where", ["named", "map", "decoder", "nowhere", "without a class"])
@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_special_tokens_that_tokenizer_json_does_not_list_are_special(tmp_path, kind, where):
    """As in transformers, whose classes have them; padding is theirs, for which no position is."""
    source = tmp_path / "source"
    write_architecture(source, kind)
    plain = imported(tmp_path)
    entries = {token: plain.vocab.index(token) for token in ("<s>", "<pad>", "</s>", "<unk>")}
    slow = json.loads((source / "tokenizer_config.json").read_text())
    slow = {"tokenizer_class": slow["tokenizer_class"]} if where != "without a class" else {}
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    if where == "decoder":
        tokens = {str(number): SPECIAL | {"content": token} for token, number in entries.items()}
        slow["added_tokens_decoder"] = tokens
    slow |= names if where == "named" else {}
    (source / "special_tokens_map.json").write_text(json.dumps(names if where == "map" else {}))
    (source / "tokenizer_config.json").write_text(json.dumps(slow))
    edit_json(source / "tokenizer.json", added_tokens=[])
    tokenizer = imported(tmp_path)
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
    edit_json(source / "tokenizer.json", model=model, added_tokens=[])
    slow = {"tokenizer_class": "RobertaTokenizer"}
    if where == "tokenizer.json":
        edit_json(source / where, added_tokens=tokens)
    elif where == "added_tokens.json":
        (source / where).write_text(json.dumps(numbers))
    else:
        slow[where] = {str(token.pop("id")): token for token in tokens}
    (source / "tokenizer_config.json").write_text(json.dumps(slow))
    edit_json(source / "config.json", pad_token_id=numbers["<pad>"])
    tokenizer = imported(tmp_path)
    assert tokenizer.encode("a") == [numbers["<s>"], kept.index("a"), numbers["</s>"]]
    (source / "tokenizer_config.json").write_text("{}")  # transformers takes the next free ids
    (source / "added_tokens.json").write_text("{}")
    edit_json(source / "tokenizer.json", added_tokens=[])
    with pytest.raises(InputError, match=r"sep_token must be an entry .* got '</s>'; add it there"):
        imported(tmp_path)
