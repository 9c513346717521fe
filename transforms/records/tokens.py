"""Defines TokenBlock, the rows of a part as token ids."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bert_embed.transforms.records.part import Part

if TYPE_CHECKING:
    from bert_embed.rows.build import Rows
    from bert_embed.rows.layout import Layout


@dataclass(frozen=True)
class TokenBlock:
    """The rows of a part that the model runs on, as columns; others are as in `DocumentBlock`."""

    part: Part
    ids: pa.StringArray
    sources: pa.StringArray
    text_hash: np.ndarray  # int64 [documents], XXH3 of each text's UTF-8
    layout: "Layout"  # how documents were cut into rows: one each, or windows
    row: np.ndarray  # int32 [rows of the layout], the distinct row that each equals
    rows: "Rows"  # the distinct ones, with [CLS] and [SEP]
    extra: pa.Table | None = None
    texts: pa.StringArray | None = None  # [documents]; None: not kept

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens(self) -> np.ndarray:
        """int32 `[documents]`, special tokens and prompt included."""
        return self.layout.num_tokens

    @property
    def num_tokens_full(self) -> np.ndarray:
        """int32 `[documents]`, the same if nothing had been cut."""
        full = self.layout.num_tokens_full
        return self.num_tokens if full is None else full

    @property
    def truncated(self) -> np.ndarray:
        """bool `[documents]`, whether the text was cut."""
        return self.layout.truncated
