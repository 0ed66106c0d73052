"""One judge for all criteria."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import criteria
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import FakeGeneration, completion, serve
from services.judging.judge import SPEC
from tests.support.judges import STEPS, TASK, all_pass, candidate, items, script, section, serve_app

REFERENCE = script("Boil water.", "Brew the tea.")


@pytest.fixture
def generation() -> FakeGeneration:
    return FakeGeneration(all_pass)


@pytest.fixture
async def judge(generation: FakeGeneration) -> AsyncIterator[grpc.aio.Channel]:
    async with (
        serve(generation.contract()) as server,
        serve_app(SPEC(generation_target=server.target)) as channel,
    ):
        yield channel


async def ask(
    judge: grpc.aio.Channel,
    *asked: str,
    one: Candidate | None = None,
    task: Task = TASK,
    reference: Script | None = None,
) -> Assessment:
    request = judge_request(task, [one or candidate(*STEPS)], criteria=asked, reference=reference)
    return await judge_one(judge, request)


async def test_judges_all_seven_in_one_call(judge: grpc.aio.Channel, generation: FakeGeneration) -> None:
    assessment = await ask(judge)
    assert [verdict.criterion for verdict in assessment.verdicts] == list(criteria.ABSEVAL)
    assert {verdict.outcome for verdict in assessment.verdicts} == {verdict_pb2.OUTCOME_PASS}
    assert len(generation.requests) == 1
    assert assessment.provenance.name == "llm-script-judge"
    assert [prompt.name for prompt in assessment.provenance.prompts] == ["judge_script"]


async def test_judges_those_named_and_asks_for_no_others(
    judge: grpc.aio.Channel, generation: FakeGeneration
) -> None:
    assessment = await ask(judge, criteria.ORDER_CORRECT, criteria.EXECUTABLE)
    assert [verdict.criterion for verdict in assessment.verdicts] == ["order_correct", "executable"]
    assert "completes_goal" not in "".join(generation.messages)
    assert "completes_goal" not in generation.requests[0].json_format.schema


async def test_every_kind_of_section_is_read(judge: grpc.aio.Channel, generation: FakeGeneration) -> None:
    generation.reply = lambda _: completion(
        {
            "actions": "...",
            "no_missing_steps": section("fail", {"missing_step": "Boil.", "steps": [0], "problem": "Cold."}),
            "no_redundant_steps": section("pass", {"steps": [1], "problem": "Idle."}),
            "no_duplicate_steps": section("unsure"),
            "executable": items("step", ["pass", "fail", "pass"], "fail"),
            "satisfies_constraints": items("constraint", ["pass", "pass"], "pass", steps=[]),
            "completes_goal": section("fail"),
            "order_correct": section("perhaps"),
        }
    )
    verdicts = {verdict.criterion: verdict for verdict in (await ask(judge)).verdicts}
    assert {name: verdict.outcome for name, verdict in verdicts.items() if not verdict.abstain_reason} == {
        "no_missing_steps": verdict_pb2.OUTCOME_FAIL,
        "executable": verdict_pb2.OUTCOME_FAIL,
        "satisfies_constraints": verdict_pb2.OUTCOME_PASS,
        "completes_goal": verdict_pb2.OUTCOME_FAIL,
    }
    assert {name: verdict.abstain_reason for name, verdict in verdicts.items() if verdict.abstain_reason} == {
        "no_redundant_steps": verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        "no_duplicate_steps": verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE,
        "order_correct": verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
    }


async def test_is_shown_a_reference_where_there_is_one(
    judge: grpc.aio.Channel, generation: FakeGeneration
) -> None:
    assessment = await ask(judge, reference=REFERENCE)
    assert "Step 2: Brew the tea.\n" in generation.messages[-1]
    assert [prompt.name for prompt in assessment.provenance.prompts] == ["judge_script_with_reference"]
    await ask(judge)
    assert "eference" not in "".join(generation.messages)


async def test_an_unknown_criterion_is_refused(judge: grpc.aio.Channel, generation: FakeGeneration) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(judge, "no_missing_steps", "witty")
    error = from_rpc_error(caught.value)
    assert error.reason == error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN
    assert error.metadata["criterion"] == "witty"
    assert not generation.requests


async def test_only_constraints_without_any_need_no_model(
    judge: grpc.aio.Channel, generation: FakeGeneration
) -> None:
    assessment = await ask(judge, criteria.SATISFIES_CONSTRAINTS, task=Task(goal="Make tea"))
    assert [verdict.abstain_reason for verdict in assessment.verdicts] == [
        verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    ]
    assert not generation.requests


async def test_an_empty_candidate_is_judged_on_the_criteria_asked(
    judge: grpc.aio.Channel, generation: FakeGeneration
) -> None:
    assessment = await ask(judge, criteria.ORDER_CORRECT, criteria.COMPLETES_GOAL, one=Candidate(id="a"))
    assert [verdict.criterion for verdict in assessment.verdicts] == ["order_correct", "completes_goal"]
    assert [verdict.outcome for verdict in assessment.verdicts] == [
        verdict_pb2.OUTCOME_ABSTAIN,
        verdict_pb2.OUTCOME_FAIL,
    ]
    assert not generation.requests
