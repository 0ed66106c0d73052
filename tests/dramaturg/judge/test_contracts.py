from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1 import synthesize_service_pb2_grpc
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge import criteria, roles
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.client import judge, judge_one, judge_request
from dramaturg.judge.contracts import judge_contract, synthesize_contract
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.verdicts import passed
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.testing import serve, until
from tests.support.judges import STEPS, TASK, candidate


class OneVerdictCritic:
    name = "one-verdict"
    version = "1.2.3"
    description = "Judges redundant steps alone."
    criteria: Sequence[str] = roles.CRITIC.criteria
    capabilities = ("uses-pool",)

    def __init__(self) -> None:
        self.items: list[JudgeItem] = []

    async def judge(self, item: JudgeItem) -> Assessment:
        self.items.append(item)
        return Assessment(
            verdicts=[passed(criteria.NO_REDUNDANT_STEPS)],
            provenance=Provenance(name="somebody else", parameters={"threshold": "0.9"}),
        )


class Echo:
    """Passes what it is asked, in another order; its candidates may be told to wait or to fail."""

    name = "echo"
    version = "1.0.0"
    description = "Passes what it is asked."
    criteria: Sequence[str] = ("polite", "short")
    capabilities: Sequence[str] = ()

    def __init__(self) -> None:
        self.running = self.peak = self.cancelled = 0
        self.definitions: dict[str, str] = {}

    async def judge(self, item: JudgeItem) -> Assessment:
        self.definitions = dict(item.definitions)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(0)
            match item.candidate.id:
                case "hangs":
                    await asyncio.Event().wait()
                case "refused":
                    raise ServiceError(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        error_reason_pb2.ERROR_REASON_TOO_LARGE,
                        "too long",
                        metadata={"limit": "3"},
                    )
                case "broken":
                    raise ZeroDivisionError("a secret")
                case "strange":
                    return Assessment(verdicts=[passed("never_heard_of")])
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return Assessment(verdicts=[passed(criterion) for criterion in reversed(item.criteria)])


class AnyEcho(Echo):
    criteria = ()
    capabilities = (ANY_CRITERION,)


class Together:
    """A judge of whole batches, which answers all but the last candidate, the first one twice."""

    name = "together"
    version = "1.0.0"
    description = "Judges candidates together."
    criteria = ("short",)
    capabilities = ()

    async def judge_batch(
        self, items: Sequence[JudgeItem]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment | ServiceError]]:
        for item in (*items[:-1], items[0]):
            yield item, Assessment(verdicts=[passed("short", rationale=f"one of {len(items)}")])


class Copyist:
    name = "copyist"
    version = "1.0.0"
    description = "Hands back the first candidate."
    criteria = ()
    capabilities = ()

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        return SynthesizeResponse(script=request.candidates[0].script)


@pytest.fixture
def critic() -> OneVerdictCritic:
    return OneVerdictCritic()


@pytest.fixture
def echo() -> Echo:
    return Echo()


async def served(contract: Contract) -> AsyncIterator[grpc.aio.Channel]:
    async with serve(contract) as server, open_channel(server.target) as channel:
        yield channel


@pytest.fixture
async def critics(critic: OneVerdictCritic) -> AsyncIterator[grpc.aio.Channel]:
    async for channel in served(judge_contract(critic)):
        yield channel


@pytest.fixture
async def echoes(echo: Echo) -> AsyncIterator[grpc.aio.Channel]:
    async for channel in served(judge_contract(echo, concurrency=3)):
        yield channel


async def results(
    channel: grpc.aio.Channel, *ids: str, asked: Sequence[str] = ()
) -> dict[str, Assessment | ServiceError]:
    request = judge_request(TASK, [candidate(*STEPS, id=one) for one in ids], criteria=asked)
    return {one: result async for one, result in judge(channel, request, timeout=20)}


async def critique(channel: grpc.aio.Channel, one: Candidate, *others: Candidate) -> Assessment:
    return await judge_one(channel, judge_request(TASK, [one], pool=others), timeout=20)


def judged(result: Assessment | ServiceError) -> list[str]:
    assert isinstance(result, Assessment), result
    return [verdict.criterion for verdict in result.verdicts]


async def test_every_criterion_gets_a_verdict_in_order(critics: grpc.aio.Channel) -> None:
    assessment = await critique(critics, candidate("Heat it."))
    assert judged(assessment) == list(roles.CRITIC.criteria)
    reasons = [verdict.abstain_reason for verdict in assessment.verdicts]
    assert reasons == [
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
        verdict_pb2.ABSTAIN_REASON_UNSPECIFIED,
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
    ]


async def test_provenance_says_the_same_as_the_identity(critics: grpc.aio.Channel) -> None:
    provenance = (await critique(critics, candidate("Heat it."))).provenance
    identity = judge_contract(OneVerdictCritic()).identity
    assert (
        (provenance.name, provenance.version) == (identity.name, identity.version) == ("one-verdict", "1.2.3")
    )
    assert provenance.contract == identity.contract == roles.JUDGE_CONTRACT
    assert provenance.latency.ToNanoseconds() > 0
    assert provenance.parameters == {"threshold": "0.9"}


@pytest.mark.parametrize("empty", [Candidate(id="a"), Candidate(id="a", text=" \n"), candidate()])
async def test_an_empty_candidate_is_judged_without_the_judge(
    empty: Candidate, critics: grpc.aio.Channel, critic: OneVerdictCritic
) -> None:
    assessment = await critique(critics, empty)
    assert not critic.items
    assert assessment.reading == verdict_pb2.READING_EMPTY
    assert [verdict.outcome for verdict in assessment.verdicts] == [
        verdict_pb2.OUTCOME_FAIL,
        verdict_pb2.OUTCOME_ABSTAIN,
        verdict_pb2.OUTCOME_ABSTAIN,
    ]


@pytest.mark.parametrize(
    ("one", "reading"),
    [
        (candidate("Heat it."), verdict_pb2.READING_STEPS),
        (Candidate(id="a", text="1. Heat it.\n2. Eat it."), verdict_pb2.READING_STEPS),
        (Candidate(id="a", text="Heat it and eat it."), verdict_pb2.READING_TEXT),
    ],
)
async def test_says_how_the_candidate_was_read(
    one: Candidate, reading: Any, critics: grpc.aio.Channel
) -> None:
    assert (await critique(critics, one)).reading == reading


async def test_the_callers_steps_count_and_a_text_without_a_reading_is_read_here(
    critics: grpc.aio.Channel, critic: OneVerdictCritic
) -> None:
    read = JudgeCandidate(id="read", text="1. a b 2. c", reading=verdict_pb2.READING_STEPS)
    read.script.steps.add(text="All of it.")
    unread = JudgeCandidate(id="unread", text="1. Heat it.\n2. Eat it.")
    request = JudgeRequest(task=TASK, candidates=[read, unread])
    assert len([one async for one in judge(critics, request, timeout=20)]) == 2
    steps = {item.candidate.id: item.candidate.steps for item in critic.items}
    assert steps == {"read": ("All of it.",), "unread": ("Heat it.", "Eat it.")}


async def test_a_judge_sees_the_other_candidates_and_the_pool(
    critics: grpc.aio.Channel, critic: OneVerdictCritic
) -> None:
    both = [candidate("Heat it.", id="a"), Candidate(id="b")]
    request = judge_request(TASK, both, pool=[candidate("Eat it.", id="p")])
    assert {one async for one, _ in judge(critics, request, timeout=20)} == {"a", "b"}
    [item] = critic.items
    assert [other.id for other in item.pool] == ["b", "p"]
    assert (item.task, item.candidate.id) == (TASK, "a")


async def test_judges_all_criteria_or_those_named_in_the_order_asked(echoes: grpc.aio.Channel) -> None:
    assert judged((await results(echoes, "a"))["a"]) == ["polite", "short"]
    assert judged((await results(echoes, "a", asked=["short", "polite"]))["a"]) == ["short", "polite"]
    assert judged((await results(echoes, "a", asked=["short"]))["a"]) == ["short"]


async def test_verdicts_on_criteria_that_were_not_asked_for_are_left_out(critics: grpc.aio.Channel) -> None:
    request = judge_request(TASK, [candidate("Heat it.")], criteria=[criteria.NO_MISSING_STEPS])
    assessment = await judge_one(critics, request, timeout=20)
    assert judged(assessment) == [criteria.NO_MISSING_STEPS]


async def test_an_unknown_criterion_is_refused_by_name(echoes: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await results(echoes, "a", asked=["polite", "witty"])
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN
    assert error.metadata == {"criterion": "witty"}


async def test_a_judge_of_any_criterion_gets_it_with_its_definition() -> None:
    echo = AnyEcho()
    async for channel in served(judge_contract(echo)):
        request = judge_request(TASK, [candidate("Heat it.")])
        request.criteria.append(Criterion(id="witty", definition="It makes people smile."))
        assert judged(await judge_one(channel, request, timeout=20)) == ["witty"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await results(channel, "a")
    assert echo.definitions == {"witty": "It makes people smile."}
    assert [violation.field for violation in from_rpc_error(caught.value).violations] == ["criteria"]


async def test_what_is_named_twice_is_refused(echoes: grpc.aio.Channel) -> None:
    async def fields(request: JudgeRequest) -> list[str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in JudgeServiceStub(echoes).Judge(request, timeout=20):
                pass
        return [violation.field for violation in from_rpc_error(caught.value).violations]

    one = candidate("Heat it.")
    assert await fields(judge_request(TASK, [one], criteria=["polite", "polite"])) == ["criteria[1].id"]
    assert await fields(judge_request(TASK, [one, one])) == ["candidates[1].id"]
    assert await fields(judge_request(TASK, [one], pool=[one])) == ["pool[0].id"]


async def test_a_candidate_that_fails_has_an_error_of_its_own(echoes: grpc.aio.Channel) -> None:
    found = await results(echoes, "a", "refused", "broken", "strange", "b")
    assert judged(found["a"]) == judged(found["b"]) == ["polite", "short"]
    refused, broken, strange = (found[name] for name in ("refused", "broken", "strange"))
    assert isinstance(refused, ServiceError)
    assert refused.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
    assert (refused.message, refused.metadata) == ("too long", {"limit": "3"})
    for error in (broken, strange):
        assert isinstance(error, ServiceError)
        assert (error.code, error.message) == (grpc.StatusCode.INTERNAL, "internal error")


async def test_candidates_are_judged_side_by_side_up_to_a_limit(echoes: grpc.aio.Channel, echo: Echo) -> None:
    found = await results(echoes, *(str(number) for number in range(10)))
    assert len(found) == 10
    assert echo.peak == 3


async def test_a_slow_candidate_holds_up_no_other_and_ends_with_the_call(
    echoes: grpc.aio.Channel, echo: Echo
) -> None:
    candidates = [candidate("Heat it.", id=one) for one in ("hangs", "a", "b", "c", "d")]
    call = JudgeServiceStub(echoes).Judge(judge_request(TASK, candidates), timeout=60)
    came: list[str] = []
    async for response in call:
        came.append(response.candidate_id)
        if len(came) == 4:
            break
    assert sorted(came) == ["a", "b", "c", "d"]
    call.cancel()
    await until(lambda: echo.cancelled == 1 and not echo.running)


async def test_each_candidate_counts_against_the_calls_that_a_server_takes_at_once(echo: Echo) -> None:
    async with (
        serve(judge_contract(echo), max_concurrent_calls=4) as server,
        open_channel(server.target) as channel,
    ):
        assert len(await results(channel, "a", "b", "c", "d")) == 4
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await results(channel, "a", "b", "c", "d", "e")
    assert from_rpc_error(raised.value).reason == error_reason_pb2.ERROR_REASON_OVERLOADED


async def test_a_judge_may_judge_all_candidates_together() -> None:
    async for channel in served(judge_contract(Together())):
        found = await results(channel, "a", "b", "c")
    rationales = [one.verdicts[0].rationale for one in found.values() if isinstance(one, Assessment)]
    assert rationales == ["one of 3"] * 2
    error = found["c"]
    assert isinstance(error, ServiceError)
    assert "no assessment" in error.message


async def test_a_synthesizer_is_served_too() -> None:
    async for channel in served(synthesize_contract(Copyist())):
        stub = synthesize_service_pb2_grpc.SynthesizeServiceStub(channel)
        response = await stub.Synthesize(SynthesizeRequest(task=TASK, candidates=[candidate("Heat it.")]))
    assert response.script.steps[0].text == "Heat it."
    assert (response.provenance.name, response.provenance.contract) == ("copyist", roles.SYNTHESIZE.contract)


def test_a_contract_names_what_the_judge_says_of_itself() -> None:
    contract = judge_contract(OneVerdictCritic())
    assert list(contract.identity.criteria) == list(roles.CRITIC.criteria)
    assert list(contract.identity.capabilities) == ["uses-pool"]
