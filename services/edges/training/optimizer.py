"""Optimizer and steps: AdamW, with gradients cut at norm 1."""

from __future__ import annotations

from typing import Any

from services.edges.inference import EdgeEncoder
from services.edges.plan import TrainingPlan

_MAX_GRADIENT_NORM = 1.0


def make_optimizer(encoder: EdgeEncoder, plan: TrainingPlan) -> Any:
    """AdamW over the parameter groups of a model."""
    import torch

    groups = []
    for module, rate in encoder.parameter_groups:
        learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in learnt if parameter.ndim > 1]
        vectors = [parameter for parameter in learnt if parameter.ndim <= 1]
        groups += [
            {"params": matrices, "weight_decay": plan.weight_decay, "rate": rate},
            # Biases and the scales of normalisation are not decayed.
            {"params": vectors, "weight_decay": 0.0, "rate": rate},
        ]
    device = next(encoder.model.parameters()).device
    return torch.optim.AdamW(groups, lr=plan.learning_rate, fused=device.type in {"cpu", "cuda"})


def training_step(encoder: EdgeEncoder, optimizer: Any, loss: Any, rate: float) -> float:
    """Makes one step and gives the batch's loss.

    Args:
        encoder: In training mode.
        optimizer: Of ``make_optimizer``.
        loss: A scalar tensor with gradients.
        rate: The plan's learning rate at this step.
    """
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), _MAX_GRADIENT_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())
