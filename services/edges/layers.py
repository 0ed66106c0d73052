"""Layers of the joint encoder: the pair scorer and a fast dropout. Requires torch.

The score of a pair is the sum of an additive part, a layer over both vectors, and a bilinear part, as in the
biaffine scorer of dependency parsers (Dozat and Manning, 2017).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import einsum, nn

RELATIONS = 2
"""The number of scores of a pair."""

_HIDDEN = 256
_DROPOUT = 0.1


def make_scorer(width: int) -> Any:
    """New layers with random weights.

    Args:
        width: The dimension of an event's vector.

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
        scorer: The result of ``make_scorer``.
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
    """Dropout that draws eight random bytes at once; on a CPU, draws take a third of the training time.

    The probability is rounded to a multiple of 1/256. Draws use torch's generator, so seeds and checkpoints
    apply.

    Args:
        p: The probability, in [0, 1), named as in ``torch.nn.Dropout``.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self._dropped = round(p * _VALUES)
        self.p = self._dropped / _VALUES

    def forward(self, values: Any) -> Any:
        """In training mode, zeroes random values and scales the others."""
        if not self.training or not self._dropped:
            return values
        words = torch.empty(-(-values.numel() // 8), dtype=torch.int64, device=values.device)
        drawn = words.random_(-(2**63), None).view(torch.uint8)[: values.numel()].view(values.shape)
        return values * ((drawn >= self._dropped).to(values.dtype) / (1 - self.p))


def use_byte_dropout(model: nn.Module) -> None:
    """Replaces every ``torch.nn.Dropout`` of a model, with the same probability."""
    for name, layer in model.named_children():
        if isinstance(layer, nn.Dropout):
            setattr(model, name, ByteDropout(layer.p))
        else:
            use_byte_dropout(layer)
