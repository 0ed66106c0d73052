"""Dropout that draws eight random bytes at once: on a processor the draws are a third of a training's time.

It needs torch. The draws come from torch's own generator, so that seeds and checkpoints hold for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_VALUES = 256


class ByteDropout(nn.Module):  # type: ignore[misc]
    """Dropout with a probability that is a multiple of 1/256, the nearest to what is asked.

    Args:
        p: In [0, 1). The name is that of ``torch.nn.Dropout``, which models ask their layers for.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self._dropped = round(p * _VALUES)
        self.p = self._dropped / _VALUES

    def forward(self, values: Any) -> Any:
        """Sets values to 0 at random while it learns, and makes the others larger to match."""
        if not self.training or not self._dropped:
            return values
        words = torch.empty(-(-values.numel() // 8), dtype=torch.int64, device=values.device)
        drawn = words.random_(-(2**63), None).view(torch.uint8)[: values.numel()].view(values.shape)
        return values * ((drawn >= self._dropped).to(values.dtype) / (1 - self.p))


def use_byte_dropout(model: nn.Module) -> None:
    """Puts it where a model has ``torch.nn.Dropout``, with the same probabilities."""
    for name, layer in model.named_children():
        if isinstance(layer, nn.Dropout):
            setattr(model, name, ByteDropout(layer.p))
        else:
            use_byte_dropout(layer)
