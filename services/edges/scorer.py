"""Scores every ordered pair of a script's events from one vector an event: the layers above the encoder.

The score of a pair is the sum of an additive part, a layer over both vectors, and of a bilinear one, as in
the biaffine scorer of dependency parsers (Dozat and Manning, 2017). It needs torch.
"""

from __future__ import annotations

from typing import Any

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
