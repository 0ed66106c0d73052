"""The single judge: judges a script by all criteria in one call, against the reference where there is one."""

from __future__ import annotations

from pathlib import Path

from dramaturg.judge import roles
from dramaturg.judge.criteria_judge import CONSTRAINTS, REFERENCE, CriteriaQuestion
from dramaturg.judge.shapes import MOST_CHARACTERS, Text
from dramaturg.judge.spec import criteria_spec

_REASONING = {"walk": Text("what each step does: 1: ..., 2: ..., 3: ...", most=MOST_CHARACTERS)}

SPEC = criteria_spec(
    role=roles.SCRIPT_JUDGE,
    description="Has a language model judge a script on every criterion at once.",
    prompts=Path(__file__).parent / "prompts",
    question=CriteriaQuestion("judge_script", shown=(CONSTRAINTS,), reasoning=_REASONING),
    comparison=CriteriaQuestion(
        "judge_script_with_reference", shown=(CONSTRAINTS, REFERENCE), reasoning=_REASONING
    ),
)
