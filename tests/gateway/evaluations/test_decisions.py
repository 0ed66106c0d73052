"""EvaluateDecisions over real gRPC, with an author made of a function."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import decision_pb2, error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import (
    DecisionResult,
    EvaluateDecisionsRequest,
    EvaluateDecisionsResponse,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ChooseOptionRequest,
    ChooseOptionResponse,
    DecisionDemonstration,
)
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from tests.support.evaluations import CALL, decision, gateway_target

FIRST, SECOND, EITHER = (
    decision_pb2.CHOICE_OPTION_1,
    decision_pb2.CHOICE_OPTION_2,
    decision_pb2.CHOICE_EITHER,
)
NAIVE, STORY = authoring_decisions_pb2.DECISION_PROMPT_NAIVE, authoring_decisions_pb2.DECISION_PROMPT_STORY


async def first(request: ChooseOptionRequest) -> ChooseOptionResponse:
    return ChooseOptionResponse(choice=FIRST, text="1", provenance=CALL)


def asked(**fields: Any) -> EvaluateDecisionsRequest:
    return EvaluateDecisionsRequest(**{"decision": decision(), "gold": FIRST, "models": ["a"], **fields})


async def events(
    choose: Any, request: EvaluateDecisionsRequest, **settings: Any
) -> list[EvaluateDecisionsResponse]:
    async with (
        gateway_target({"author": {"ChooseOption": choose}}, **settings) as target,
        DramaturgClient(target) as client,
    ):
        return [event async for event in client.evaluate_decisions(request, timeout=20)]


async def result(choose: Any, request: EvaluateDecisionsRequest, **settings: Any) -> DecisionResult:
    return (await events(choose, request, **settings))[-1].result


async def refused(request: EvaluateDecisionsRequest) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        await events(first, request)
    return raised.value


async def test_every_model_prompt_and_order_is_asked_once_and_listed_in_order() -> None:
    seen: list[ChooseOptionRequest] = []

    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        seen.append(request)
        return ChooseOptionResponse(choice=SECOND if request.options_swapped else FIRST, provenance=CALL)

    request = asked(
        models=["a", "b"],
        prompts=[STORY, NAIVE],
        option_order=decisions_pb2.OPTION_ORDER_BOTH,
        tags={"level": "easy"},
    )
    found = await events(choose, request)
    assert found[0].accepted.assessment_count == 8
    assert found[0].accepted.judges == [JudgeSelection(role="author", judge="fake")]
    assert [event.WhichOneof("event") for event in found[1:]] == ["choice"] * 8 + ["result"]
    whole = found[-1].result
    keys = [(one.model, one.prompt, one.options_swapped) for one in whole.choices]
    assert keys == [
        (model, prompt, swapped)
        for model in ("a", "b")
        for prompt in (STORY, NAIVE)
        for swapped in (False, True)
    ]
    assert sorted(keys) == sorted((one.options.model, one.prompt, one.options_swapped) for one in seen)
    assert [one.correct for one in whole.choices] == [True, False] * 4
    assert whole.usage.provider_call_count == 8
    assert whole.usage.prompt_token_count == 80
    assert dict(whole.tags) == {"level": "easy"}
    assert whole.choices[0].provenance.registered_name == "fake"


async def test_a_request_without_models_asks_the_authors_own() -> None:
    seen: list[ChooseOptionRequest] = []

    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        seen.append(request)
        return await first(request)

    whole = await result(choose, asked(models=[]))
    assert [one.model for one in whole.choices] == [""]
    assert (seen[0].options.model, seen[0].prompt) == ("", NAIVE)
    await result(choose, asked(models=[], judges=[JudgeSelection(role="author", model="m")]))
    assert seen[1].options.model == "m"


async def test_a_model_that_fails_abstains_and_the_others_stand() -> None:
    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        if request.options.model == "broken":
            raise ServiceError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED,
                "no money left",
            )
        return await first(request)

    whole = await result(choose, asked(models=["a", "broken", "b"]))
    broken = whole.choices[1]
    assert broken.choice == decision_pb2.CHOICE_UNSPECIFIED
    assert broken.abstain_reason == verdict_pb2.ABSTAIN_REASON_OVER_BUDGET
    assert not broken.HasField("correct")
    assert not broken.HasField("provenance")
    assert [one.choice for one in whole.choices] == [FIRST, 0, FIRST]


async def test_a_model_that_hangs_is_timed_out() -> None:
    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        if request.options.model == "slow":
            await asyncio.Event().wait()
        return await first(request)

    whole = await result(choose, asked(models=["slow", "a"]), judge_timeout_seconds=0.3)
    assert [one.abstain_reason for one in whole.choices] == [verdict_pb2.ABSTAIN_REASON_TIMED_OUT, 0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ChooseOptionResponse(text="hm"), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            ChooseOptionResponse(choice=FIRST, abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        ),
        (
            ChooseOptionResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_CONTENT_FILTERED),
            verdict_pb2.ABSTAIN_REASON_CONTENT_FILTERED,
        ),
        (ChooseOptionResponse(choice=9), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),  # type: ignore[arg-type] # of a later version
    ],
)
async def test_an_unclear_answer_is_an_abstention(answer: ChooseOptionResponse, reason: int) -> None:
    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        return answer

    (choice,) = (await result(choose, asked())).choices
    assert (choice.choice, choice.abstain_reason) == (0, reason)
    assert not choice.HasField("correct")
    assert choice.text == answer.text


@pytest.mark.parametrize(
    "reason",
    [
        verdict_pb2.ABSTAIN_REASON_REFUSED,
        verdict_pb2.ABSTAIN_REASON_EMPTY,
        verdict_pb2.ABSTAIN_REASON_TRUNCATED,
    ],
)
async def test_an_unusable_answer_is_a_wrong_choice_unless_it_shall_abstain(
    reason: AbstainReason.ValueType,
) -> None:
    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        return ChooseOptionResponse(abstain_reason=reason, text="no", provenance=CALL)

    (choice,) = (await result(choose, asked())).choices
    assert (choice.choice, choice.abstain_reason, choice.failure_reason) == (0, 0, reason)
    assert choice.HasField("correct")
    assert not choice.correct
    (choice,) = (await result(choose, asked(unusable_outputs_abstain=True))).choices
    assert (choice.abstain_reason, choice.failure_reason) == (reason, 0)
    assert not choice.HasField("correct")
    (choice,) = (await result(choose, asked(gold=decision_pb2.CHOICE_UNSPECIFIED))).choices
    assert choice.failure_reason == reason
    assert not choice.HasField("correct")


async def test_without_a_gold_choice_nothing_is_scored() -> None:
    (choice,) = (await result(first, asked(gold=decision_pb2.CHOICE_UNSPECIFIED))).choices
    assert choice.choice == FIRST
    assert not choice.HasField("correct")


async def test_calls_at_once_are_bounded() -> None:
    running = peak = 0

    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return ChooseOptionResponse(choice=EITHER, provenance=Provenance(name="fake"))

    await result(choose, asked(models=[str(number) for number in range(12)]), calls_per_judge=3)
    assert peak == 3


async def test_bad_requests_are_refused_with_every_field() -> None:
    demonstrations = [
        DecisionDemonstration(decision=decision("is late")),
        DecisionDemonstration(decision=decision(id="other"), choice=FIRST),
    ]
    error = await refused(
        asked(
            models=["a", "a", " "],
            prompts=[NAIVE, authoring_decisions_pb2.DECISION_PROMPT_UNSPECIFIED],
            demonstrations=demonstrations,
            judges=[JudgeSelection(role="critic"), JudgeSelection(role="author")],
        )
    )
    assert [violation.field for violation in error.violations] == [
        "models[1]",
        "models[2]",
        "prompts[1]",
        "demonstrations[0].choice",
        "demonstrations[1]",
        "judges[0].role",
    ]
    panel = [JudgeSelection(role="author", model=model) for model in ("x", "y")]
    assert [one.field for one in (await refused(asked(judges=panel))).violations] == ["judges[1]"]
    unknown = await refused(asked(judges=[JudgeSelection(role="author", judge="nobody")]))
    assert unknown.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN


async def test_an_unbound_role_refuses_the_request() -> None:
    async with gateway_target({}) as target, DramaturgClient(target) as client:
        with pytest.raises(ServiceError) as raised:
            [event async for event in client.evaluate_decisions(asked())]
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND


async def test_leaving_cancels_the_calls() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def choose(request: ChooseOptionRequest) -> ChooseOptionResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ChooseOptionResponse()

    async with (
        gateway_target({"author": {"ChooseOption": choose}}) as target,
        DramaturgClient(target) as client,
    ):
        stream = client.evaluate_decisions(asked())
        await anext(stream)
        await until(started.is_set)
        await stream.aclose()
        await until(cancelled.is_set)
