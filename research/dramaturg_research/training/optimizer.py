"""AdamW with gradients clipped to norm 1."""

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
            # No weight decay for biases and normalization scales.
            {"params": vectors, "weight_decay": 0.0, "rate": rate},
        ]
    device = next(encoder.model.parameters()).device
    return torch.optim.AdamW(groups, lr=plan.learning_rate, fused=device.type in {"cpu", "cuda"})


def training_step(encoder: EdgeEncoder, optimizer: Any, loss: Any, rate: float) -> float:
    """Runs one optimizer step and returns the batch's loss.

    Args:
        encoder: The encoder, in training mode.
        optimizer: The result of ``make_optimizer``.
        loss: A scalar tensor with gradients.
        rate: The learning rate of this step.
    """
    import torch

    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), _MAX_GRADIENT_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())
