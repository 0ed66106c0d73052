"""``dramaturg runs create pairs``."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.cli.evaluate.pair_variants import (
    Baselines,
    ForcedChoice,
    NoBiasCaution,
    Order,
    RoleSet,
    Rubric,
    Variants,
)
from dramaturg.cli.evaluate.texts import rubric_of
from dramaturg.cli.runs.create.options import command_of
from dramaturg.datasets import Row
from dramaturg.judge.role_sets import NAMES


@command_of("pairs")
def pairs(
    order: Order = None,
    baseline: Baselines = None,
    roles: RoleSet = "",
    criteria: Rubric = None,
    k: Annotated[
        int | None,
        typer.Option("--k", min=0, max=50, help="Number of subjective roles, half of them coarse."),
    ] = None,
    forced_choice: ForcedChoice = False,
    no_bias_caution: NoBiasCaution = False,
) -> EvaluatePairsRequest:
    """Creates a run that evaluates pairs of texts: roles or a rubric, baselines, human labels (DRPE).

    For example:

        dramaturg runs create pairs pairs.jsonl --k 6 --baseline llm
    """
    if roles and roles not in NAMES:
        raise ValueError(f"--roles {roles!r}: the sets are {', '.join(NAMES)}")
    if criteria and (roles or k is not None):
        raise ValueError("--criteria excludes --roles and --k")
    variants = Variants(
        order=order,
        baselines=tuple(dict.fromkeys(baseline or ())),
        role_set=roles,
        criteria=rubric_of(criteria),
        counts=() if k is None else (k,),
        forced_choice=forced_choice,
        bias_caution_omitted=no_bias_caution,
    )
    return variants.spread(Row(0, EvaluatePairsRequest()))[0]
