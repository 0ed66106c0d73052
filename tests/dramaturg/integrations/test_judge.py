"""The mapping that every harness shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.integrations.judge import HarnessJudge, HarnessResult, judged
from dramaturg.judge.verdicts import abstained, failed, finding, passed
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge, RegisteredJudge, in_thread, serve_gateway
from tests.support.harness_rows import COST_USD, CRITERIA, PROMPT, ROWS, gateway, scripted
from tests.support.texts import judge, registered

GOAL = "Make tea"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with gateway() as (address, _):
        yield address


def test_the_rows_are_judged_from_many_threads(target: str) -> None:
    harness_judge = HarnessJudge(CRITERIA, target=target)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda row: harness_judge(row.output, goal=row.goal), ROWS))
    for row, result in zip(ROWS, results, strict=True):
        assert {one.criterion: one.value for one in result.judgements} == row.expected()
        assert result["polite"].passed == row.polite
        assert result["polite"].abstained == (row.polite is None)
    assert {one.value for one in (result["polite"] for result in results)} == {0.0, 1.0, None}


async def test_it_is_called_within_a_running_loop(target: str) -> None:
    assert HarnessJudge(CRITERIA, target=target)(ROWS[0].output, goal="Ask")["polite"].passed


def test_all_of_a_judgement_arrives_and_is_written_and_read(target: str) -> None:
    result = HarnessJudge(CRITERIA, target=target)(ROWS[1].output, goal=ROWS[1].goal)
    rude = result["polite"]
    assert (rude.outcome, rude.rationale, rude.judge) == ("FAIL", "It is rude.", "judge-0")
    assert rude.explanation == "It is rude.\nIt greets nobody."
    (provenance,) = rude.provenance
    assert (provenance["version"], provenance["prompts"][0]["sha256"]) == ("1.0.0", PROMPT)
    assert result["clear"].label == "2 of 1 to 5"
    abstention = HarnessJudge(CRITERIA, target=target)(ROWS[2].output, goal="Ask")["polite"]
    assert (abstention.value, abstention.abstain_reason) == (None, "UNPARSABLE")
    assert abstention.explanation.splitlines()[0] == "UNPARSABLE"
    assert HarnessResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    with pytest.raises(KeyError, match="fluent"):
        result["fluent"]


def test_the_cost_is_that_of_the_sample(target: str) -> None:
    assert HarnessJudge(CRITERIA, target=target)(ROWS[0].output, goal="Ask").cost_usd == COST_USD


def test_a_panel_has_the_provenance_of_each_judge() -> None:
    panel = {"rubric-judge": ["judge-0", "judge-1"]}
    with in_thread(serve_gateway(*registered(judge(scripted), judge(scripted)))) as server:
        result = HarnessJudge(CRITERIA, judges=panel, target=server.target)(ROWS[0].output, goal="Ask")
    assert result["polite"].passed
    assert [one["registeredName"] for one in result["polite"].provenance] == ["judge-0", "judge-1"]


def test_without_a_rubric_an_output_is_a_script() -> None:
    duplicate = finding(verdict_pb2.FINDING_KIND_DUPLICATE_STEP, "Twice.", steps=[0, 1])
    critic = FakeJudge(
        lambda request, candidate: [
            passed("no_missing_steps"),
            abstained("no_redundant_steps", verdict_pb2.ABSTAIN_REASON_REFUSED),
            failed("no_duplicate_steps", [duplicate]),
        ],
        criteria=["no_missing_steps", "no_redundant_steps", "no_duplicate_steps"],
    )
    with in_thread(serve_gateway(RegisteredJudge("critic", critic.contract()))) as server:
        result = HarnessJudge(roles=["critic"], target=server.target)(
            "1. Boil. 2. Boil.", goal=GOAL, reference="Boil.\nPour."
        )
    assert result["no_duplicate_steps"].findings[0]["stepIndices"] == [0, 1]
    assert result["no_redundant_steps"].value is None
    assert [step.text for step in critic.requests[0].reference.steps] == ["Boil.", "Pour."]


def test_a_refusal_is_an_error_and_a_failed_sample_has_no_judgement(target: str) -> None:
    with pytest.raises(ServiceError):
        HarnessJudge({"Polite": "x"}, target=target)("Hi.", goal="Ask")
    assert judged(RunSample()).judgements == ()


def test_a_key_changes_with_everything_that_decides_the_judgement() -> None:
    base = HarnessJudge(CRITERIA)
    keys = {
        base.key("a", goal="g"),
        base.key("b", goal="g"),
        base.key("a", goal="h"),
        base.key("a", goal="g", reference="r"),
        HarnessJudge(CRITERIA, model="m").key("a", goal="g"),
        HarnessJudge(CRITERIA, judges={"rubric-judge": "x"}).key("a", goal="g"),
        HarnessJudge({"polite": "It greets."}).key("a", goal="g"),
        HarnessJudge(roles=["critic"]).key("a", goal="g"),
    }
    assert len(keys) == 8
    assert HarnessJudge(CRITERIA, target="elsewhere:1").key("a", goal="g") in keys
