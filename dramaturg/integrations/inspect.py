"""Inspect AI: a scorer with metrics.

It needs the extra: ``pip install "dramaturg[inspect]"``.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
from inspect_ai.scorer import Score, Scorer, Target, mean, stderr
from inspect_ai.scorer import scorer as inspect_scorer
from inspect_ai.solver import TaskState

from dramaturg.evaluation import Criteria, Judges
from dramaturg.integrations.judge import HarnessJudge, HarnessResult


@inspect_scorer(metrics={"*": [mean(), stderr()]})
def dramaturg_judge(
    criteria: Criteria | None = None,
    *,
    roles: Sequence[str] = (),
    judges: Judges | None = None,
    model: str = "",
    gateway: str | None = None,
    timeout: float | None = None,
) -> Scorer:
    """A scorer with a value and metrics for each criterion.

    The input of a sample is the goal, its target the reference. An abstention is unscored: no metric counts
    it, and the result of the criterion states the number of unscored samples.

    Args:
        criteria: The rubric. None: outputs are scripts.
        roles: The roles that judge scripts.
        judges: Names of judges by role.
        model: The model of the judges.
        gateway: The address of the gateway. None: ``DRAMATURG_TARGET``, else localhost:50051.
        timeout: The timeout of a call, in seconds.
    """
    judge = HarnessJudge(criteria, roles, judges, model, gateway, timeout=timeout)

    async def score(state: TaskState, target: Target) -> Score:
        output, goal, reference = state.output.completion, state.input_text, target.text
        # A thread, since Inspect may run on another library than asyncio.
        result = await anyio.to_thread.run_sync(lambda: judge(output, goal=goal, reference=reference))
        return to_score(result, output)

    return score


def to_score(result: HarnessResult, output: str) -> Score:
    """The judgements of an output as a score. The value of an abstention is NaN, which Inspect leaves out."""
    return Score(
        value={one.criterion: float("nan") if one.value is None else one.value for one in result.judgements},
        answer=output,
        explanation="\n".join(
            f"{one.criterion}: {one.label or one.outcome}\n{one.explanation}".strip()
            for one in result.judgements
        ),
        reason="grader_failed" if any(one.abstained for one in result.judgements) else None,
        metadata={**result.to_json()},
    )
