"""Tokenizes texts under the names and in the forms of Hugging Face's tokenizers."""

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Never, Self, overload

from bert_embed.arguments import one_text, switch, text_list, whole_numbers
from bert_embed.habits import missing_attribute
from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted
from bert_embed.tokenization.row_settings import EncodedTexts, RowSettings
from bert_embed.tokenization.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from bert_embed.bundle.bundle import Bundle

_Ids = list[int]
_CLINGING = (".", "?", "!", ",")  # what `decode` puts after a word without a space


class Tokenizer(TextTokenizer):
    """BERT's tokenizer for one vocabulary; as `TextTokenizer`, and callable.

    What it returns equals what Hugging Face's BertTokenizerFast returns, but for special tokens in
    a text, which are text here, and for characters where that one differs from
    google-research/bert: capital sigmas at the end of words, and code points without a character.
    """

    @classmethod
    def from_pretrained(cls, model: "str | os.PathLike[str]" = "minilm") -> Self:
        """Returns the tokenizer of a model, which is given as to `bert_embed.load`.

        Raises:
            InputError: There is no such model, or it has no such tokenizer.
        """
        from bert_embed.bundle.find import resolve_model

        return cls.of_bundle(resolve_model(model, needed=lambda bundle: ()))  # no weights

    @classmethod
    def of_bundle(cls, bundle: "Bundle") -> Self:
        """Returns the tokenizer of a bundle."""
        from bert_embed.bundle.files import VOCABULARY

        vocabulary = os.path.join(bundle.path, VOCABULARY)
        settings: dict[str, Any] = bundle.tokenizer_settings
        return cls(vocabulary, **settings, model_max_length=bundle.max_seq_length)

    if not TYPE_CHECKING:  # a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Tokenizer", name)

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} entries, lower_case={self.lower_case})"

    def __call__(
        self,
        text: str | Iterable[str],
        text_pair: str | Iterable[str] | None = None,
        *,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        return_tensors: str | None = None,
        **others: Never,
    ) -> EncodedTexts:
        """Returns the inputs of a model: input_ids, token_type_ids and attention_mask.

        Args:
            text: One text, or a column of them.
            text_pair: The second text of each pair, likewise.
            add_special_tokens: Whether [CLS] is before a text, and [SEP] after it.
            padding: True or "longest" fills rows up to the longest one, "max_length" up to
                `max_length`.
            truncation: True or "longest_first" cuts rows at `max_length`, of a pair the longer
                text; "only_first" and "only_second" cut one text of a pair.
            max_length: Maximum number of tokens of a row; None is `model_max_length`.
            return_tensors: None gives lists; "np" arrays, int64; "tf" and "pt" tensors of
                TensorFlow and of torch, if installed.
            **others: None; the error says what to call.

        Raises:
            SettingError: An argument is wrong, has no effect, or rows of different lengths are
                wanted as one tensor.
        """
        one, columns = isinstance(text, str), _columns(text, text_pair)
        framed = switch("add_special_tokens", add_special_tokens)
        special = 2 + self.separators * (len(columns) - 1) if framed else 0
        lengths = max_length, self.model_max_length
        settings = RowSettings.checked(
            padding, truncation, *lengths, return_tensors, special, others
        )
        rows = [
            self._row(pair, settings, framed) for pair in zip(*map(self._ids, columns), strict=True)
        ]
        inputs = {
            "input_ids": settings.padded([ids for ids, _ in rows], self.pad_id),
            "token_type_ids": settings.padded([types for _, types in rows], 0),
            "attention_mask": settings.padded([[1] * len(ids) for ids, _ in rows], 0),
        }
        if self.separators > 1:  # MPNet has no types
            del inputs["token_type_ids"]
        return EncodedTexts((name, settings.form(each, one)) for name, each in inputs.items())

    @overload
    def encode(self, text: str, text_pair: str | None = None, **settings: Any) -> list[int]: ...
    @overload
    def encode(
        self, text: Iterable[str], text_pair: Iterable[str] | None = None, **settings: Any
    ) -> list[list[int]]: ...
    def encode(
        self,
        text: str | Iterable[str],
        text_pair: str | Iterable[str] | None = None,
        **settings: Any,
    ) -> Any:
        """Returns the `input_ids` of a call, [CLS] and [SEP] included.

        Args:
            text: One text, which gives a list of ids, or a column of them, which gives a list each.
            text_pair: The second text of each pair.
            **settings: As `__call__`; `add_special_tokens=False` gives the tokens of the text only.

        Raises:
            SettingError: As `__call__`.
        """
        return self(text, text_pair, **settings)["input_ids"]

    def tokenize(
        self, text: str, text_pair: str | None = None, add_special_tokens: bool = False
    ) -> list[str]:
        """Returns the tokens of one text, or of a pair, as strings."""
        for name, value in (("text", text), ("text_pair", text_pair or "")):
            one_text(name, value)
        return self.tokens(self.encode(text, text_pair, add_special_tokens=add_special_tokens))

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> str | list[str]:
        """Returns the vocabulary's entry for an id, or their list for several.

        Args:
            ids: int `[tokens]`, or one id.
            skip_special_tokens: Whether to leave special tokens out of a list.

        Raises:
            SettingError: An id is not in the vocabulary.
        """
        if isinstance(ids, Iterable):
            return self.tokens(self._kept(ids, skip_special_tokens))
        switch("skip_special_tokens", skip_special_tokens)
        return self.tokens([ids])[0]

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> int | list[int]:
        """Returns the id of a token, or those of several; [UNK]'s for one that is none."""
        if isinstance(tokens, str):
            return self._entry_ids.get(tokens, self.unk_id)
        return [self._entry_ids.get(token, self.unk_id) for token in text_list("tokens", tokens)]

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> str:
        """Returns the words of one text's ids, separated by spaces.

        It is the text only as far as the tokenizer keeps it: not its spaces, nor accents and
        capital letters where `lower_case` is set.

        Args:
            ids: int `[tokens]`.
            skip_special_tokens: Whether to leave out [CLS], [SEP], [PAD], [UNK] and [MASK].

        Raises:
            SettingError: An id is not in the vocabulary.
        """
        found = ""
        for place, token in enumerate(self.tokens(self._kept(ids, skip_special_tokens))):
            if place == 0:
                found = token
            elif token.startswith("##"):
                found += token[2:]
            else:
                found += token if token.startswith(_CLINGING) else f" {token}"
        return found

    def batch_decode(
        self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = False
    ) -> list[str]:
        """Returns what `decode` does for each of several texts."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def get_vocab(self) -> dict[str, int]:
        """Returns the id of each entry of the vocabulary."""
        return dict(self._entry_ids)

    @property
    def vocab_size(self) -> int:
        """How many entries the vocabulary has."""
        return len(self)

    @property
    def cls_token_id(self) -> int:
        """`cls_id`, under its name in Hugging Face's tokenizers."""
        return self.cls_id

    @property
    def sep_token_id(self) -> int:
        """`sep_id`, likewise."""
        return self.sep_id

    @property
    def pad_token_id(self) -> int:
        """`pad_id`, likewise."""
        return self.pad_id

    @property
    def unk_token_id(self) -> int:
        """`unk_id`, likewise."""
        return self.unk_id

    @property
    def mask_token_id(self) -> int | None:
        """`mask_id`, likewise; None where the vocabulary has no such entry."""
        return self.mask_id

    def _kept(self, ids: int | Iterable[int], skip_special_tokens: bool) -> tuple[int, ...]:
        listed = whole_numbers("ids", ids)
        if not switch("skip_special_tokens", skip_special_tokens):
            return listed
        special = {self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id}
        return tuple(one for one in listed if one not in special)

    def _ids(self, texts: list[str]) -> list[_Ids]:
        ids, row_splits = self.encode_flat(texts)
        listed = ids.tolist()
        return [listed[start:stop] for start, stop in pairwise(row_splits.tolist())]

    def _row(
        self, pair: tuple[_Ids, ...], settings: RowSettings, framed: bool
    ) -> tuple[_Ids, _Ids]:
        """Returns the ids of a row of one or two texts, and the types of its tokens."""
        first, second = pair if len(pair) == 2 else (pair[0], [])
        most_first, most_second = settings.lengths(len(first), len(second))
        first, second = first[:most_first], second[:most_second]
        if framed:
            first = [self.cls_id, *first, self.sep_id]
            if len(pair) == 2:
                first += [self.sep_id] * (self.separators - 1)
                second = [*second, self.sep_id]
        return [*first, *second], [0] * len(first) + [1] * len(second)


def _columns(text: str | Iterable[str], text_pair: str | Iterable[str] | None) -> list[list[str]]:
    """Returns the texts of a call, and the second ones of pairs."""
    if isinstance(text, str):
        return [[text]] if text_pair is None else [[text], [one_text("text_pair", text_pair)]]
    first = text_list("text", text)
    if text_pair is None:
        return [first]
    if isinstance(text_pair, str):
        raise SettingError("text_pair", "must be a list of texts, as text is")
    second = text_list("text_pair", text_pair)
    if len(first) != len(second):
        raise SettingError("text_pair", f"must be {counted(len(first), 'text')}, got {len(second)}")
    return [first, second]
