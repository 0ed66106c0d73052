"""Scores every ordered pair of a script's events from one vector an event: the layers above the encoder.

The score of a pair is the sum of an additive part, a layer over both vectors, and of a bilinear one, as in
the biaffine scorer of dependency parsers (Dozat and Manning, 2017). It needs torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import einsum, nn

RELATIONS = 2
"""How many scores a pair gets."""

_HIDDEN = 256
_DROPOUT = 0.1


def make_scorer(width: int) -> Any:
    """New layers with random weights.

    Args:
        width: The numbers of an event's vector.

    Returns:
        A ``torch.nn.ModuleDict``.
    """
    return nn.ModuleDict(
        {
            "dropout": nn.Dropout(_DROPOUT),
            "source": nn.Linear(width, _HIDDEN),
            "target": nn.Linear(width, _HIDDEN),
            "out": nn.Sequential(nn.GELU(), nn.Linear(_HIDDEN, RELATIONS)),
            "bilinear_source": nn.Linear(width, RELATIONS * _HIDDEN),
            "bilinear_target": nn.Linear(width, RELATIONS * _HIDDEN),
        }
    )


def score_pairs(scorer: Any, events: Any) -> Any:
    """Scores all ordered pairs.

    Args:
        scorer: As ``make_scorer`` makes it.
        events: A float tensor (scripts, events, width).

    Returns:
        The unnormalised scores, (scripts, relations, events, events): at [s, r, i, j] that of event i and j.
    """
    vectors = scorer["dropout"](events)
    additive = scorer["out"](scorer["source"](vectors)[:, :, None] + scorer["target"](vectors)[:, None])
    heads = (*events.shape[:2], RELATIONS, _HIDDEN)
    sources = scorer["bilinear_source"](vectors).view(heads)
    targets = scorer["bilinear_target"](vectors).view(heads)
    # Scaled as in attention, so that wide vectors do not start with large scores.
    bilinear = einsum("sirh,sjrh->srij", sources, targets) / _HIDDEN**0.5
    return additive.permute(0, 3, 1, 2) + bilinear


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
