"""The rates of ABSEval's criteria in a summary, by model, size and tag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL

SHORT = dict(zip(ABSEVAL, ("NM", "NR", "ND", "EX", "SC", "CG", "OC"), strict=True))
"""The heads of the criteria, in the order of Table 5."""
STEPS_TAG = "steps"
"""The tag of a summary that groups scripts by their number of steps."""
QUANTILES = 4
"""The groups of Figure 12."""
MODEL_GROUP = "model_group"
"""The tag of a summary that groups models by size."""
_SIZE = re.compile(r"(?<![a-z0-9])(\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)?b)(?![a-z0-9])", re.IGNORECASE)
# The means of Table 5's
# rates are the values of the figure with 8B among 7b, 14B among 13b, 8x7B as 40b and 72B among 70b.
SIZES = {"7b": 10.0, "13b": 30.0, "40b": 60.0, "70b": float("inf")}
"""The sizes of Figure 5, and the billions of parameters that each is below."""
Rates = Mapping[str, Sequence[float | None]]
"""The rates of the seven criteria by model."""


def find_figures(summary: Summary, criterion: str, model: str = "", **tags: str) -> VerdictFigures | None:
    """The figures of one model, or of all models together, in one group."""
    return next(
        (
            one
            for one in summary.scripts.figures
            if (one.criterion, one.model, one.all_models) == (criterion, model, not model)
            and dict(one.tags) == tags
        ),
        None,
    )


def rate_of(found: VerdictFigures | None) -> float | None:
    """The rate. None: no verdict has an answer."""
    return found.pass_rate.value if found is not None and found.pass_rate.HasField("value") else None


def bounds_of(found: VerdictFigures | None) -> tuple[float, float] | None:
    """The 95 % interval of the rate. None: there is none."""
    if found is None or not (found.pass_rate.HasField("lower") and found.pass_rate.HasField("upper")):
        return None
    return found.pass_rate.lower, found.pass_rate.upper


def model_rates(summary: Summary, models: Sequence[str]) -> Rates:
    """The rates of each model."""
    return {
        model: [rate_of(find_figures(summary, criterion, model)) for criterion in ABSEVAL] for model in models
    }


def pass_rate(found: VerdictFigures | None) -> Estimate | None:
    """The rate with its interval. None: no verdict has an answer."""
    return found.pass_rate if found is not None else None


def agreement_of(summary: Summary, variant: str, criterion: str) -> Estimate | None:
    """The share of verdicts of a variant that are those of the base."""
    found = (one for one in summary.scripts.variants if (one.variant, one.criterion) == (variant, criterion))
    return next((one.agreement.accuracy for one in found), None)


def tag_values(summary: Summary, tag: str) -> list[str]:
    """The values of a tag, in the order of the summary."""
    return list(dict.fromkeys(one.tags[tag] for one in summary.scripts.figures if tag in one.tags))


def size_of(model: str) -> str:
    """The number of parameters in the name of a model, such as "7b"."""
    found = _SIZE.search(model)
    return found[1].upper().replace("X", "x") if found else "-"


def model_groups(models: Sequence[str]) -> Mapping[str, str]:
    """The size of Figure 5 of each model whose name has one."""
    found = {}
    for model in models:
        size = size_of(model).removesuffix("B")
        if size != "-":
            parameters = prod(float(part) for part in size.split("x"))
            found[model] = next(name for name, bound in SIZES.items() if parameters < bound)
    return found


def quarters_of_steps(summary: Summary) -> Mapping[str, str]:
    """``QUANTILES`` of about equal size of the scripts of all models, by their number of steps.

    Returns:
        The quarter, such as "4 to 6", by the number of steps, in ascending order.
    """
    counts: Counter[int] = Counter()
    for one in summary.scripts.figures:
        if one.all_models and one.criterion and list(one.tags) == [STEPS_TAG]:
            counts[int(one.tags[STEPS_TAG])] += one.verdict_count
    # A refusal or an answer without steps is no script of 0 steps.
    del counts[0]
    total, before = counts.total(), 0
    groups: dict[int, list[int]] = {}
    for steps in sorted(counts):
        middle = before + counts[steps] / 2
        groups.setdefault(int(QUANTILES * middle / total), []).append(steps)
        before += counts[steps]
    return {
        str(steps): f"{group[0]} to {group[-1]}" if len(group) > 1 else str(group[0])
        for group in groups.values()
        for steps in group
    }
