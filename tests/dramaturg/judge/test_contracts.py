from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1 import critic_service_pb2_grpc, synthesize_service_pb2_grpc
from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1 import script_judge_service_pb2_grpc
from dramaturg.api.judging.v1.script_judge_service_pb2 import JudgeScriptRequest
from dramaturg.judge import criteria, roles
from dramaturg.judge.contracts import critic_contract, script_judge_contract, synthesize_contract
from dramaturg.judge.verdicts import passed
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Server
from tests.support.grpc_servers import server_settings
from tests.support.judges import TASK, candidate


class OneVerdictCritic:
    name = "one-verdict"
    version = "1.2.3"
    description = "Judges redundant steps alone."
    criteria = roles.CRITIC.criteria
    capabilities = ("uses-pool",)

    def __init__(self) -> None:
        self.calls = 0

    async def critique(self, request: CritiqueRequest) -> Assessment:
        self.calls += 1
        return Assessment(
            verdicts=[passed(criteria.NO_REDUNDANT_STEPS)],
            provenance=Provenance(name="somebody else", parameters={"threshold": "0.9"}),
        )


class EchoJudge:
    name = "echo"
    version = "1.0.0"
    description = "Passes what it is asked."
    criteria = ("polite", "short")
    capabilities = ()

    async def judge(self, request: JudgeScriptRequest, asked: Sequence[str]) -> Assessment:
        return Assessment(verdicts=[passed(criterion) for criterion in reversed(asked)])


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
async def channel(critic: OneVerdictCritic) -> AsyncIterator[grpc.aio.Channel]:
    contracts = [critic_contract(critic), script_judge_contract(EchoJudge()), synthesize_contract(Copyist())]
    async with Server(contracts, server_settings()) as server, open_channel(server.target) as channel:
        yield channel


async def critique(channel: grpc.aio.Channel, one: Candidate) -> Assessment:
    stub = critic_service_pb2_grpc.CriticServiceStub(channel)
    return (await stub.Critique(CritiqueRequest(task=TASK, candidate=one))).assessment


async def judge(channel: grpc.aio.Channel, *asked: str) -> Assessment:
    stub = script_judge_service_pb2_grpc.ScriptJudgeServiceStub(channel)
    request = JudgeScriptRequest(task=TASK, candidate=candidate("Heat it."), criteria=asked)
    return (await stub.JudgeScript(request)).assessment


async def test_every_criterion_gets_a_verdict_in_order(channel: grpc.aio.Channel) -> None:
    assessment = await critique(channel, candidate("Heat it."))
    assert [verdict.criterion for verdict in assessment.verdicts] == list(roles.CRITIC.criteria)
    reasons = [verdict.abstain_reason for verdict in assessment.verdicts]
    assert reasons == [
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
        verdict_pb2.ABSTAIN_REASON_UNSPECIFIED,
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
    ]


async def test_provenance_says_the_same_as_the_identity(channel: grpc.aio.Channel) -> None:
    provenance = (await critique(channel, candidate("Heat it."))).provenance
    identity = critic_contract(OneVerdictCritic()).identity
    assert (
        (provenance.name, provenance.version) == (identity.name, identity.version) == ("one-verdict", "1.2.3")
    )
    assert provenance.contract == identity.contract == roles.CRITIC.contract
    assert provenance.latency.ToNanoseconds() > 0
    assert provenance.parameters == {"threshold": "0.9"}


@pytest.mark.parametrize("empty", [Candidate(id="a"), Candidate(id="a", text=" \n"), candidate()])
async def test_an_empty_candidate_is_judged_without_the_judge(
    empty: Candidate, channel: grpc.aio.Channel, critic: OneVerdictCritic
) -> None:
    assessment = await critique(channel, empty)
    assert critic.calls == 0
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
    one: Candidate, reading: Any, channel: grpc.aio.Channel
) -> None:
    assert (await critique(channel, one)).reading == reading


async def test_judges_all_criteria_or_those_named_in_the_order_asked(channel: grpc.aio.Channel) -> None:
    assert [verdict.criterion for verdict in (await judge(channel)).verdicts] == ["polite", "short"]
    named = await judge(channel, "short", "polite")
    assert [verdict.criterion for verdict in named.verdicts] == ["short", "polite"]
    assert [verdict.criterion for verdict in (await judge(channel, "short")).verdicts] == ["short"]


async def test_an_unknown_criterion_is_refused_by_name(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await judge(channel, "polite", "witty")
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN
    assert error.metadata == {"criterion": "witty"}


async def test_a_criterion_named_twice_is_refused(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await judge(channel, "polite", "polite")
    assert [violation.field for violation in from_rpc_error(caught.value).violations] == ["criteria[1]"]


async def test_a_synthesizer_is_served_too(channel: grpc.aio.Channel) -> None:
    stub = synthesize_service_pb2_grpc.SynthesizeServiceStub(channel)
    response = await stub.Synthesize(SynthesizeRequest(task=TASK, candidates=[candidate("Heat it.")]))
    assert response.script.steps[0].text == "Heat it."
    assert (response.provenance.name, response.provenance.contract) == ("copyist", roles.SYNTHESIZE.contract)


def test_a_contract_names_what_the_judge_says_of_itself() -> None:
    contract: Contract = critic_contract(OneVerdictCritic())
    assert list(contract.identity.criteria) == list(roles.CRITIC.criteria)
    assert list(contract.identity.capabilities) == ["uses-pool"]
