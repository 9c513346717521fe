"""An encoder of transformers with the pooling that the engines of peers are compared with."""

import inspect
from pathlib import Path

import torch
from transformers import AutoModel


class PooledModel(torch.nn.Module):
    """An encoder, the mean over the tokens, unit length."""

    def __init__(self, folder: Path | str, attention: str) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, attn_implementation=attention).eval()
        self._has_types = "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """int64 `[batch, length]` twice to float32 `[batch, hidden]`."""
        types = {"token_type_ids": input_ids * 0} if self._has_types else {}
        hidden = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **types
        ).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)
