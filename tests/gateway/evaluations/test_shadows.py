"""Shadows over real gRPC: they see the same items, and change nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeRegistration, JudgeShadow
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    SHADOW_MISS_LATE,
    SHADOW_MISS_QUEUE_FULL,
    ScriptsResult,
    ShadowAssessment,
)
from dramaturg.client import DramaturgClient
from dramaturg.judge.verdicts import failed
from dramaturg.service import context
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve, serve_gateway, until
from gateway.settings import GatewaySettings
from tests.support.gateway import (
    GOLD_STEPS,
    Answer,
    Asked,
    Fake,
    agents,
    all_pass,
    criteria_of,
    evaluate_result,
    gateway_client,
    scripts_request,
)
from tests.support.telemetry import counted

CRITIC = criteria_of("critic")
WAIT = Duration(seconds=20)


async def fail(request: Any) -> Assessment:
    return Assessment(verdicts=[failed(criterion, rationale="No.") for criterion in CRITIC])


async def hang(request: Any) -> Assessment:
    await asyncio.Event().wait()
    raise AssertionError


async def collapse(request: Any) -> Assessment:
    raise ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "no luck today")


@asynccontextmanager
async def shadowed(answer: Answer | None, *fakes: Fake, **settings: Any) -> AsyncIterator[DramaturgClient]:
    """A gateway whose critic "fake" has the shadow "shadow"; settings other than ``shadow`` are its own."""
    async with AsyncExitStack() as stack:
        entries: list[dict[str, Any]] = []
        for fake in (*agents(*fakes), Fake("critic", answer, name="shadow")):
            target = (await stack.enter_async_context(serve(fake.contract(), drain_grace_seconds=0.2))).target
            entries.append({"role": fake.role, "name": fake.name, "target": target})
        entries[-1]["shadow"] = {"of": "fake", **settings.pop("shadow", {})}
        entries[-1] |= settings.pop("entry", {})
        gateway = await stack.enter_async_context(serve_gateway(judges=entries, **settings))
        yield await stack.enter_async_context(DramaturgClient(gateway.target))


def shadows(result: ScriptsResult) -> list[ShadowAssessment]:
    return [one for candidate in result.candidates for one in candidate.shadows]


def outcomes(result: ScriptsResult) -> set[int]:
    return {verdict.outcome for candidate in result.candidates for verdict in candidate.verdicts}


async def test_a_shadow_sees_what_the_judge_sees_and_changes_nothing() -> None:
    asked: dict[str, list[Asked]] = {"judge": [], "shadow": []}

    async def judge(request: Asked) -> Assessment:
        asked["judge"].append(request)
        return all_pass("critic")

    async def shadow(request: Asked) -> Assessment:
        asked["shadow"].append(request)
        return await fail(request)

    async with shadowed(shadow, Fake("critic", judge), shadow={"model": "cheap"}) as client:
        result = await evaluate_result(client, scripts_request(2, shadow_wait=WAIT))
        alone = await evaluate_result(client, scripts_request(2))
    assert outcomes(result) == {verdict_pb2.OUTCOME_PASS}
    assert {one.judge for candidate in result.candidates for one in candidate.assessments} == {"fake"}
    assert result.usage == alone.usage
    seen = shadows(result)
    assert [(one.role, one.judge, one.shadow_of, one.miss) for one in seen] == [
        ("critic", "shadow", "fake", 0)
    ] * 2
    assert {verdict.outcome for one in seen for verdict in one.assessment.verdicts} == {
        verdict_pb2.OUTCOME_FAIL
    }
    assert all(one.latency.ToNanoseconds() > 0 for one in seen)
    first, second = asked["judge"][0].request, asked["shadow"][0].request
    assert [step.text for step in second.reference.steps] == [*GOLD_STEPS]
    assert second.options.model == "cheap"
    second.options.ClearField("model")
    assert first == second


async def test_a_shadow_that_hangs_delays_no_result_and_is_cancelled() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def judge(request: Any) -> Assessment:
        await begun.wait()
        return all_pass("critic")

    async def hanging(request: Any) -> Assessment:
        begun.set()
        try:
            return await hang(request)
        finally:
            gone.set()

    async with shadowed(hanging, Fake("critic", judge)) as client:
        began = time.monotonic()
        result = await evaluate_result(client, scripts_request(2))
        assert time.monotonic() - began < 5
        assert outcomes(result) == {verdict_pb2.OUTCOME_PASS}
        assert [one.miss for one in shadows(result)] == [SHADOW_MISS_LATE] * 2
        await until(gone.is_set)


async def test_a_call_that_waits_waits_no_longer_than_it_says_or_than_the_deadline_of_the_shadow() -> None:
    async with shadowed(hang) as client:
        result = await evaluate_result(client, scripts_request(1, shadow_wait=Duration(nanos=200_000_000)))
        assert [one.miss for one in shadows(result)] == [SHADOW_MISS_LATE]
    async with shadowed(hang, entry={"timeout_seconds": 0.2}) as client:
        (late,) = shadows(await evaluate_result(client, scripts_request(1, shadow_wait=WAIT)))
    # The deadline of the shadow is a failure of the shadow, stated as its abstentions.
    reasons = {verdict.abstain_reason for verdict in late.assessment.verdicts}
    assert late.miss == SHADOW_MISS_LATE or reasons == {verdict_pb2.ABSTAIN_REASON_TIMED_OUT}


async def test_an_error_of_a_shadow_is_its_own_abstention() -> None:
    async with shadowed(collapse) as client:
        result = await evaluate_result(client, scripts_request(1, shadow_wait=WAIT))
    assert outcomes(result) == {verdict_pb2.OUTCOME_PASS}
    (one,) = shadows(result)
    assert {verdict.abstain_reason for verdict in one.assessment.verdicts} == {
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    }


async def test_candidates_beyond_the_queue_are_not_sent_and_counted() -> None:
    asked = 0

    async def counting(request: Any) -> Assessment:
        nonlocal asked
        asked += 1
        return all_pass("critic")

    with counted() as counts:
        async with shadowed(counting, shadow={"queue_size": 1}) as client:
            one = await evaluate_result(client, scripts_request(1, shadow_wait=WAIT))
            two = await evaluate_result(client, scripts_request(2, shadow_wait=WAIT))
        misses = counts.now().by("dramaturg_shadow_misses_total", "reason", judge="shadow")
    assert misses == {"queue-full": 2}
    assert [found.miss for found in shadows(one)] == [0]
    assert [found.miss for found in shadows(two)] == [SHADOW_MISS_QUEUE_FULL] * 2
    assert asked == 1


async def test_a_shadow_that_the_request_names_judges_and_shadows_nothing() -> None:
    async with shadowed(fail) as client:
        result = await evaluate_result(
            client, scripts_request(1, judges=[JudgeSelection(role="critic", judge="shadow")])
        )
    assert not shadows(result)
    verdicts = {verdict.criterion: verdict.outcome for verdict in result.candidates[0].verdicts}
    assert {verdicts[criterion] for criterion in CRITIC} == {verdict_pb2.OUTCOME_FAIL}


async def test_the_attempts_of_a_shadow_are_those_of_another_request() -> None:
    ids: dict[str, str] = {}

    def noting(name: str) -> Answer:
        async def answer(request: Any) -> Assessment:
            served = context.current()
            assert served is not None
            ids[name] = served.request_id
            return all_pass("critic")

        return answer

    async with shadowed(noting("shadow"), Fake("critic", noting("judge"))) as client:
        await evaluate_result(client, scripts_request(1, shadow_wait=WAIT))
    assert ids["shadow"] == f"{ids['judge']}/shadow-0"


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"shadow": {"of": "b"}}, "a shadow of 'b'"),
        ({"shadow": {"of": "s"}}, "a shadow of itself"),
        ({"shadow": {"of": "a"}, "default": True}, "not the default"),
        ({"shadow": {"of": "t"}}, "or a shadow"),
    ],
)
def test_shadows_of_what_is_no_judge_are_refused(entry: dict[str, Any], fault: str) -> None:
    judges = [
        {"role": "critic", "name": "a", "target": "x:1"},
        {"role": "critic", "name": "t", "target": "x:2", "shadow": {"of": "a"}},
        {"role": "critic", "name": "s", "target": "x:3", **entry},
    ]
    with pytest.raises(ValueError, match=fault):
        GatewaySettings.model_validate({"judges": judges}).check_members()


async def test_a_shadow_is_never_the_default_and_is_listed_as_a_shadow() -> None:
    async with shadowed(None) as client:
        listed = {judge.name: judge for judge in await client.list_judges("critic")}
    assert listed["fake"].default_for_role
    assert not listed["shadow"].default_for_role
    assert listed["shadow"].shadow.of == "fake"
    assert listed["shadow"].shadow.queue_size == 256


async def test_a_request_names_shadows_whose_usage_is_its_own() -> None:
    fakes = [*agents(Fake("critic", default=True)), Fake("critic", name="other")]
    named = JudgeSelection(role="critic", judge="other", model="big")
    async with gateway_client(*fakes) as client:
        alone = await evaluate_result(client, scripts_request(2))
        result = await evaluate_result(client, scripts_request(2, shadows=[named], shadow_wait=WAIT))
    assert [(one.judge, one.shadow_of) for one in shadows(result)] == [("other", "fake")] * 2
    assert result.usage.provider_call_count == alone.usage.provider_call_count + 2


@pytest.mark.parametrize(
    ("named", "judges", "words"),
    [
        (JudgeSelection(role="critic", judge="gone"), (), "shadows[0].judge is 'gone'"),
        (JudgeSelection(role="rubric-judge", judge="other"), (), "its judges are none"),
        (JudgeSelection(role="critic", judge="fake"), ("fake", "other"), "its judges are fake, other"),
    ],
)
async def test_a_shadow_of_a_request_needs_one_judge_to_be_compared_with(
    named: JudgeSelection, judges: Sequence[str], words: str
) -> None:
    fakes = [*agents(Fake("critic", default=True)), Fake("critic", name="other")]
    async with gateway_client(*fakes) as client:
        selected = [JudgeSelection(role="critic", judge=judge) for judge in judges]
        with pytest.raises(ServiceError) as raised:
            await evaluate_result(client, scripts_request(1, shadows=[named], judges=selected))
    assert words in raised.value.message


async def test_roles_of_a_request_restrict_its_judges() -> None:
    async with gateway_client(*agents()) as client:
        critic = await evaluate_result(client, scripts_request(1, roles=["critic"]))
        commonsense = await evaluate_result(client, scripts_request(1, roles=["commonsense"]))
        with pytest.raises(ServiceError, match="which this evaluation does not use"):
            await evaluate_result(client, scripts_request(1, roles=["script-judge"]))
    assert {one.criterion for one in critic.candidates[0].verdicts} == {*CRITIC}
    assert critic.gold_answer.script.steps
    assert {one.role for one in commonsense.candidates[0].assessments} == {"commonsense"}
    assert not commonsense.HasField("gold_answer")


async def test_a_shadow_is_registered_at_run_time_and_its_usage_counts(tmp_path: Path) -> None:
    runs = {"enabled": True, "url": f"sqlite:///{tmp_path}/runs.sqlite3"}
    fakes = agents()
    async with (
        serve(Fake("critic").contract()) as theirs,
        gateway_client(*fakes, runs=runs, judge_targets=("127.0.0.1:*",)) as client,
    ):
        alone = await evaluate_result(client, scripts_request(1))
        made = JudgeRegistration(
            role="critic", name="next", target=theirs.target, shadow=JudgeShadow(of="gone")
        )
        with pytest.raises(ServiceError, match="no judge of 'critic', or a shadow"):
            await client.register_judge(made)
        made.shadow.of = "fake"
        registered = await client.register_judge(made)
        result = await evaluate_result(client, scripts_request(1, shadow_wait=WAIT))
        cleared = await client.update_judge(JudgeRegistration(role="critic", name="next"), ["shadow"])
        without = await evaluate_result(client, scripts_request(1, shadow_wait=WAIT))
    assert (registered.shadow.of, registered.registration.shadow.of) == ("fake", "fake")
    assert [one.judge for one in shadows(result)] == ["next"]
    assert result.usage.provider_call_count == alone.usage.provider_call_count + 1
    assert not cleared.HasField("shadow")
    assert not shadows(without)
