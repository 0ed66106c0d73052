"""The single judge: judges a script by all criteria in one call, against the reference where there is one."""

from __future__ import annotations

from pathlib import Path

from dramaturg.judge import roles
from dramaturg.judge.criteria_judge import ACTIONS, CONSTRAINTS, REFERENCE, CriteriaQuestion
from dramaturg.judge.spec import criteria_spec

SPEC = criteria_spec(
    role=roles.SCRIPT_JUDGE,
    description="Has a language model judge a script on every criterion at once.",
    prompts=Path(__file__).parent / "prompts",
    question=CriteriaQuestion("judge_script", shown=(CONSTRAINTS,), reasoning=ACTIONS),
    comparison=CriteriaQuestion(
        "judge_script_with_reference", shown=(CONSTRAINTS, REFERENCE), reasoning=ACTIONS
    ),
)
