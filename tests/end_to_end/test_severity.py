"""Judges of scripts that say how grave each fault is: from the model's words to the table and the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_NONE,
    MECHANISM_AGENTS,
    MECHANISM_SINGLE_JUDGE,
    EvaluateScriptsRequest,
    Mechanism,
)
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.judge import criteria
from dramaturg.judge.spec import JudgeSpec
from dramaturg.kinds.scripts.tables import sections
from dramaturg.report.card import card
from services.agents.commonsense.judge import SPEC as COMMONSENSE
from services.agents.critic.judge import SPEC as CRITIC
from services.agents.execute.judge import SPEC as EXECUTE
from services.judging.judge import SPEC as SCRIPT_JUDGE
from tests.end_to_end.test_groundedness import gateway
from tests.support.openai_server import Body

REQUEST = EvaluateScriptsRequest(
    task=Task(goal="Make tea.", constraints=["in a pot", "without milk"]),
    candidates=[Candidate(id="a", model="m", text="1. Boil it.\n2. Boil it again.\n3. Sing.\n4. Drink it.")],
    gold_answer_source=GOLD_ANSWER_SOURCE_NONE,
)
MINOR, MAJOR, CRITICAL, NONE = (
    verdict_pb2.SEVERITY_MINOR,
    verdict_pb2.SEVERITY_MAJOR,
    verdict_pb2.SEVERITY_CRITICAL,
    verdict_pb2.SEVERITY_UNSPECIFIED,
)


def fails(*findings: Body, **items: Any) -> Body:
    return {"reason": "So.", "findings": list(findings), "verdict": "fail"} | items


def constraint(number: int, verdict: str, severity: str) -> Body:
    return {"constraint": number, "reason": "So.", "steps": [], "severity": severity, "verdict": verdict}


FAULTS: dict[str, Body] = {
    criteria.NO_MISSING_STEPS: fails(
        {"missing_step": "Add tea.", "steps": [1], "problem": "Water.", "severity": "critical"},
        {"missing_step": "Pour it.", "steps": [1], "problem": "Dry.", "severity": "Major."},
    ),
    criteria.NO_REDUNDANT_STEPS: fails({"steps": [3], "problem": "A song.", "severity": "grave"}),
    criteria.NO_DUPLICATE_STEPS: fails({"steps": [1, 2], "problem": "The same.", "severity": "minor"}),
    criteria.EXECUTABLE: {
        "steps": [{"step": 4, "reason": "Too hot.", "severity": "critical", "verdict": "fail"}],
        "verdict": "fail",
    },
    criteria.SATISFIES_CONSTRAINTS: {
        "constraints": [constraint(1, "fail", "major"), constraint(2, "pass", "none")],
        "verdict": "fail",
    },
    criteria.COMPLETES_GOAL: fails({"steps": [4], "problem": "No tea.", "severity": None}),
    criteria.ORDER_CORRECT: fails({"steps": [2], "problem": "Too late."}),
}
FOUND = {
    criteria.NO_MISSING_STEPS: [CRITICAL, MAJOR],
    criteria.NO_REDUNDANT_STEPS: [NONE],
    criteria.NO_DUPLICATE_STEPS: [MINOR],
    criteria.EXECUTABLE: [CRITICAL],
    criteria.SATISFIES_CONSTRAINTS: [MAJOR],
    criteria.COMPLETES_GOAL: [NONE],
    criteria.ORDER_CORRECT: [NONE],
}
TABLE = {
    "missing step": ["2", "0", "1", "1"],
    "redundant step": ["1", "0", "0", "0"],
    "duplicate step": ["1", "1", "0", "0"],
    "implausible step": ["1", "0", "0", "1"],
    "broken constraint": ["1", "0", "1", "0"],
    "goal not reached": ["1", "0", "0", "0"],
    "wrong order": ["1", "0", "0", "0"],
}
"""The findings of a kind, and how many of them are minor, major and critical."""


class Model:
    """Finds every fault, and says nothing of severity unless it is asked."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, body: Body) -> Body:
        self.told.append(body["messages"][0]["content"])
        schema = body["response_format"]["json_schema"]["schema"]
        reasons: dict[str, Any] = {"actions": "1: ...", "comparison": "1: ...", "end": "Nothing."} | FAULTS
        if "end" in schema["properties"]:
            reasons |= {"walk": [], "left": "Nothing."}
        return {name: reasons[name] for name in schema["properties"]}


@pytest.mark.parametrize(
    ("judges", "mechanism"),
    [((CRITIC, EXECUTE, COMMONSENSE), MECHANISM_AGENTS), ((SCRIPT_JUDGE,), MECHANISM_SINGLE_JUDGE)],
    ids=["agents", "one judge"],
)
async def test_faults_have_a_severity_in_verdicts_counts_table_and_report(
    judges: Sequence[JudgeSpec[Any]], mechanism: Mechanism.ValueType
) -> None:
    model, request = Model(), EvaluateScriptsRequest(mechanism=mechanism)
    request.MergeFrom(REQUEST)
    async with gateway(model, judges=judges, severity=True) as client:
        result = [event async for event in client.evaluate_scripts(request)][-1].result
        sample = RunSample(state=SAMPLE_STATE_SUCCEEDED, scripts=result)
        summary = await client.summarize([sample], SummaryOptions())
    # Each call is answered at the first attempt: what is unreadable asks for no repair.
    assert len(model.told) == len(judges)
    assert all('"major" if they have to correct' in told for told in model.told)
    verdicts = {one.criterion: one for one in result.candidates[0].verdicts}
    assert {one.outcome for one in verdicts.values()} == {verdict_pb2.OUTCOME_FAIL}
    assert {name: [one.severity for one in verdict.findings] for name, verdict in verdicts.items()} == FOUND
    (found,) = [one for one in sections(summary) if one.title == "Findings"]
    assert [column.name for column in found.tables[0].columns][-3:] == ["minor", "major", "critical"]
    rows = [[cell.text for cell in row.cells] for row in found.tables[0].rows]
    assert {row[0]: [row[2], *row[-3:]] for row in rows if row[1] == "m"} == TABLE
    assert "(missing: Add tea.) (critical)" in card(sample)


async def test_no_judge_asks_for_a_severity_unless_it_is_set() -> None:
    model = Model()
    async with gateway(model, judges=(CRITIC, EXECUTE, COMMONSENSE)) as client:
        result = [event async for event in client.evaluate_scripts(REQUEST)][-1].result
    assert not any("severity" in told for told in model.told)
    assert {one.severity for item in result.candidates[0].verdicts for one in item.findings} == {NONE}
