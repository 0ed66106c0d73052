"""Edges as a choice: of all events, which comes right after this one, and which right before it?

Binary questions are answered each for itself. Here the events compete, as heads do in dependency parsing
(Dozat and Manning, 2017): nearly every event has one successor and one predecessor.
"""

from __future__ import annotations

from typing import Any


def choice_loss(scores: Any, edges: Any, counted: Any) -> Any:
    """The mean cross-entropy of the choices of successors and of predecessors, in nats.

    Where an event has several, each is as right. Where it has none, the right choice is "none", whose score
    is 0.

    Args:
        scores: Unnormalised, of edges: a float tensor (scripts, events, events).
        edges: In the same shape 1.0 where there is an edge, else 0.0.
        counted: In the same shape 1.0 where there are two events of the script, else 0.0.
    """
    after = _one_way(scores, edges, counted)
    before = _one_way(*(tensor.transpose(1, 2) for tensor in (scores, edges, counted)))
    return (after + before) / 2


def _one_way(scores: Any, edges: Any, counted: Any) -> Any:
    import torch

    # Not minus infinity: its product with 0 below would not be 0.
    open_scores = scores.masked_fill(counted == 0, -1e4)
    none = torch.zeros_like(open_scores[..., :1])
    chances = torch.cat([open_scores, none], dim=-1).log_softmax(dim=-1)
    right = torch.cat([edges, (edges.sum(-1, keepdim=True) == 0).float()], dim=-1)
    each = -(chances * right).sum(-1) / right.sum(-1)
    # Places that only fill up a batch have no pair.
    events = (counted.sum(-1) > 0).float()
    return (each * events).sum() / events.sum()
