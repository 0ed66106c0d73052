"""Estimates of AlignmentService as JSON values: figures, intervals, and the reasons where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate

COEFFICIENTS = ("pearson", "spearman", "kendall")
KAPPAS = ("cohen_kappa", "linear_kappa", "quadratic_kappa")
INTRACLASS = ("icc_one_way", "icc_agreement", "icc_consistency")
AGREEMENTS = ("fleiss_kappa", "krippendorff_alpha", "gwet_ac1", "observed_agreement")


def estimate(found: Estimate) -> dict[str, float | None]:
    """A figure with its interval, absent ends as None."""
    return {
        name: getattr(found, name) if found.HasField(name) else None for name in ("value", "lower", "upper")
    }


def rests_on(estimate: Estimate) -> dict[str, Any]:
    """How many items a figure rests on, and which share of all that is: ``null`` where there are none."""
    coverage = estimate.count / estimate.total if estimate.total else None
    return {"n": estimate.count, "coverage": coverage}


def figures(message: Any, names: Sequence[str]) -> dict[str, Any]:
    """Each figure under its name, ``null`` where undefined; intervals, methods and reasons beside it."""
    found: dict[str, Any] = {}
    notes: dict[str, dict[str, str]] = {"interval_methods": {}, "interval_withheld": {}, "undefined": {}}
    for name in names:
        estimate: Estimate = getattr(message, name)
        found[name] = estimate.value if estimate.HasField("value") else None
        if estimate.HasField("lower"):
            found[f"{name}_interval"] = [estimate.lower, estimate.upper]
        for note, text in zip(
            notes.values(),
            (estimate.interval_method, estimate.interval_withheld, estimate.undefined),
            strict=True,
        ):
            if text:
                note[name] = text
    return {**found, **{kind: by_name for kind, by_name in notes.items() if by_name}}


def correlations(response: correlation_pb2.CorrelateScoresResponse) -> dict[str, Any]:
    """Correlations by measure, and differences: figures and ``n``, ``null`` where undefined."""
    found = _correlations(response)
    if response.groups:
        found["groups"] = {one.group: _correlations(one) for one in response.groups}
    return found


def _correlations(
    part: correlation_pb2.CorrelateScoresResponse | correlation_pb2.CorrelationGroup,
) -> dict[str, Any]:
    return {
        "measures": {
            one.measure: {
                **rests_on(one.pearson),
                **figures(one, COEFFICIENTS),
                **{
                    name: {"n": level.pearson.count, **figures(level, COEFFICIENTS)}
                    for name, level, known in (
                        ("summary_level", one.summary_level, one.HasField("summary_level")),
                        ("system_level", one.system_level, one.HasField("system_level")),
                    )
                    if known
                },
            }
            for one in part.measures
        },
        "differences": [
            {
                "first": one.first_measure,
                "second": one.second_measure,
                "n": one.williams_t.count,
                **figures(one, ("williams_t", "kendall_difference")),
                "williams_p": one.williams_p if one.HasField("williams_p") else None,
                "williams_p_holm": one.holm_p if one.HasField("holm_p") else None,
                "williams_p_benjamini_hochberg": (
                    one.false_discovery_p if one.HasField("false_discovery_p") else None
                ),
            }
            for one in part.differences
        ],
    }


def agreement(group: agreement_pb2.AgreementGroup) -> dict[str, Any]:
    """The agreement on one group: figures and ``n``, ``null`` where undefined."""
    return {
        "group": group.group,
        **rests_on(group.observed_agreement),
        **figures(group, (*AGREEMENTS, *INTRACLASS)),
        "pairs": [
            {
                "first": pair.first_annotator,
                "second": pair.second_annotator,
                "n": pair.cohen_kappa.count,
                **figures(pair, KAPPAS),
            }
            for pair in group.pairs
        ],
        "majority_labels": dict(sorted(group.majority_labels.items())),
        "notes": list(group.notes),
        **({"replacement": _replacement(group.replacement)} if group.HasField("replacement") else {}),
    }


def _replacement(found: agreement_pb2.JudgeReplacement) -> dict[str, Any]:
    def known(message: Any, name: str) -> float | None:
        return getattr(message, name) if message.HasField(name) else None

    return {
        "winning_rate": known(found, "winning_rate"),
        "average_advantage": known(found, "average_advantage"),
        "passed": found.passed,
        "epsilon": found.epsilon,
        "undefined": found.undefined,
        "annotators": [
            {
                "annotator": one.annotator,
                "items": one.item_count,
                "units": one.unit_count,
                "judge_advantage": one.judge_advantage,
                "annotator_advantage": one.annotator_advantage,
                "standard_error": known(one, "standard_error"),
                "p": known(one, "p_value"),
                "adjusted_p": known(one, "adjusted_p_value"),
            }
            for one in found.annotators
        ],
    }
