"""A judge that misbehaves in many ways. The id of the task says in which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from dramaturg.api.common.v1.error_status_pb2 import ErrorStatus
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    READING_EMPTY,
    Assessment,
    Finding,
    Verdict,
)
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, GetIdentityResponse, Identity
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.judge.roles import CRITIC
from tests.hostile.values import TEXTS

CONTRACT = CRITIC.contract
ID = "c0"
"""The id of the only candidate."""

Behaviour = Callable[[JudgeRequest, Any], AsyncGenerator[Any]]
Introduction = Callable[[GetIdentityRequest, Any], Any]


def verdicts(**fields: Any) -> list[Verdict]:
    """A verdict on each criterion of the role, PASS by default."""
    return [Verdict(**{"criterion": one, "outcome": OUTCOME_PASS, **fields}) for one in CRITIC.criteria]


def assessed(*given: Verdict, provenance: Provenance | None = None, **fields: Any) -> JudgeResponse:
    assessment = Assessment(verdicts=given or verdicts(), provenance=provenance, **fields)
    return JudgeResponse(candidate_id=ID, assessment=assessment)


def says(*responses: Any) -> Behaviour:
    """Sends these responses, messages or bytes."""

    async def behave(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
        del request, context
        for response in responses:
            yield response

    return behave


def fails(code: grpc.StatusCode, details: str = "", trailing: Any = ()) -> Behaviour:
    """Ends the call with a status."""

    async def behave(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
        del request
        await context.abort(code, details, trailing)
        yield

    return behave


def endless(response: JudgeResponse) -> Behaviour:
    async def behave(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
        del request, context
        while True:
            yield response
            await asyncio.sleep(0)

    return behave


async def hangs(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
    del request, context
    await asyncio.Event().wait()
    yield


async def crashes(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
    del request, context
    yield assessed()
    raise RuntimeError("a judge with a defect")


def _retry_after(seconds: int) -> tuple[tuple[str, bytes], ...]:
    status = status_pb2.Status(code=14)
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=seconds)))
    return (("grpc-status-details-bin", status.SerializeToString()),)


def _provenance(**fields: Any) -> Provenance:
    return Provenance(name="hostile", version="1", **fields)


def _claims(**amounts: Any) -> Behaviour:
    return says(assessed(provenance=_provenance(usage=Usage(**amounts))))


def _call(**amounts: Any) -> Behaviour:
    call = Usage(provider_call_count=1, **amounts)
    return says(assessed(provenance=_provenance(usage=call, completions=[CompletionReference(usage=call)])))


def _took(latency: Duration) -> Provenance:
    return _provenance(latency=latency, completions=[CompletionReference(latency=latency)])


def _error(**fields: Any) -> Behaviour:
    return says(JudgeResponse(candidate_id=ID, error=ErrorStatus(**fields)))


def _contradictory() -> list[Verdict]:
    return [*verdicts(), *verdicts(outcome=OUTCOME_FAIL)]


MISBEHAVIOURS: Mapping[str, Behaviour] = {
    "answers nothing": says(),
    "answers with an empty message": says(b""),
    "answers with damaged bytes": says(b"\x0a\xff"),
    "answers with a text that is not UTF-8": says(b"\x0a\x02\xff\xfe"),
    "answers with 20 MB": says(b"\xfa\x3f\x80\x80\x80\x0a" + b"x" * (20 << 20)),
    "answers about another candidate": says(JudgeResponse(candidate_id="other", assessment=Assessment())),
    "answers twice": says(assessed(*verdicts(outcome=OUTCOME_FAIL)), assessed()),
    "answers about another without end": endless(JudgeResponse(candidate_id="other")),
    "answers the same without end": endless(assessed()),
    "never answers": hangs,
    "crashes after its answer": crashes,
    "gives no verdict": says(JudgeResponse(candidate_id=ID, assessment=Assessment())),
    "leaves a verdict out": says(assessed(*verdicts()[1:])),
    "contradicts itself": says(assessed(*_contradictory())),
    "judges by 5,000 criteria of its own": says(
        assessed(*(Verdict(criterion=f"own_{n}", outcome=OUTCOME_PASS) for n in range(5000)))
    ),
    "judges by criteria without a name": says(assessed(*verdicts(criterion=""))),
    "has an outcome that does not exist": says(assessed(*verdicts(outcome=99))),
    "abstains without a reason": says(assessed(*verdicts(outcome=OUTCOME_ABSTAIN))),
    "abstains for a reason that does not exist": says(
        assessed(*verdicts(outcome=OUTCOME_ABSTAIN, abstain_reason=999))
    ),
    "passes with the reason of an abstention": says(
        assessed(*verdicts(abstain_reason=ABSTAIN_REASON_REFUSED))
    ),
    "passes with findings": says(assessed(*verdicts(findings=[Finding(description="a")]))),
    "finds steps that do not exist": says(
        assessed(*verdicts(outcome=OUTCOME_FAIL, findings=[Finding(step_indices=[0, 7, 2**32 - 1])]))
    ),
    "scores NaN": says(assessed(*verdicts(score=float("nan")))),
    "scores infinity": says(assessed(*verdicts(score=float("inf"), confidence=-float("inf")))),
    "scores beyond the scale": says(assessed(*verdicts(score=1e308, confidence=-5.0))),
    "writes 10 MB": says(assessed(*verdicts(rationale="x" * 3_400_000))),
    "finds 100,000 faults": says(
        assessed(*verdicts(outcome=OUTCOME_FAIL, findings=[Finding(description="a")] * 30_000))
    ),
    "writes hostile texts": says(assessed(*verdicts(rationale="\n".join(TEXTS.values())))),
    "claims the usage of others": _claims(prompt_token_count=10**12, cost_usd=1e9),
    "claims negative usage": _claims(cost_usd=-1e9),
    "claims a cost of NaN": _claims(cost_usd=float("nan")),
    "lists a call of negative cost": _call(cost_usd=-1e9),
    "lists a call of a trillion tokens": _call(prompt_token_count=10**12),
    "took longer than time lasts": says(assessed(provenance=_took(Duration(seconds=2**62, nanos=-5)))),
    "took ten thousand years": says(assessed(provenance=_took(Duration(seconds=315_576_000_000)))),
    "took less than no time": says(assessed(provenance=_took(Duration(seconds=-1)))),
    "names itself as another": says(
        assessed(provenance=Provenance(name="fake-critic", version="1.0.0", registered_name="honest"))
    ),
    "forges corrections": says(
        assessed(provenance=_provenance(parameters={"gateway-corrections": "none", "a\0": "x" * 100_000}))
    ),
    "lists 50,000 parameters": says(
        assessed(provenance=_provenance(parameters={str(n): "x" for n in range(50_000)}))
    ),
    "reads the candidate itself": says(assessed(reading=READING_EMPTY)),
    "fails with a code that does not exist": _error(code=99, message="a"),
    "fails for a reason that does not exist": _error(code=13, reason=999, message="a"),
    "fails with absurd delays": _error(
        code=14, message="a", retry_delay=Duration(seconds=2**62, nanos=-(2**31))
    ),
    "fails with the code OK": _error(code=0, message="a"),
    "fails in 3 MB of words": _error(code=13, message="x" * 3_000_000),
    "fails with an address": _error(code=14, message="ipv4:10.1.2.3:50051: connection refused"),
    "refuses the caller": fails(grpc.StatusCode.UNAUTHENTICATED, "token of another"),
    "is cancelled": fails(grpc.StatusCode.CANCELLED),
    "is busy for ten years": fails(grpc.StatusCode.UNAVAILABLE, "busy", _retry_after(10**9)),
    "has exhausted a quota": fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota", _retry_after(10**9)),
    "fails with damaged details": fails(
        grpc.StatusCode.INTERNAL, "a", (("grpc-status-details-bin", b"\xff\xff"),)
    ),
    "fails with hostile words": fails(grpc.StatusCode.INTERNAL, TEXTS["a script"] + TEXTS["right to left"]),
}


async def _identity(request: GetIdentityRequest, context: Any) -> Any:
    del request, context
    return GetIdentityResponse(
        identity=Identity(name="hostile", version="1", contract=CONTRACT, criteria=CRITIC.criteria)
    )


async def _silent(request: GetIdentityRequest, context: Any) -> Any:
    del request, context
    await asyncio.Event().wait()


def _introduces(identity: Identity | bytes) -> Introduction:
    async def answer(request: GetIdentityRequest, context: Any) -> Any:
        del request, context
        return identity if isinstance(identity, bytes) else GetIdentityResponse(identity=identity)

    return answer


IDENTITIES: Mapping[str, Introduction] = {
    "has no name": _introduces(Identity(contract=CONTRACT)),
    "has a name of 3 MB": _introduces(Identity(name="x" * 3_000_000, version="y" * 500_000)),
    "declares 50,000 criteria": _introduces(
        Identity(name="a", version="1", contract=CONTRACT, criteria=[f"own_{n}" for n in range(50_000)])
    ),
    "declares criteria of hostile names": _introduces(
        Identity(name="a", version="1", contract=CONTRACT, criteria=[*TEXTS.values(), *CRITIC.criteria])
    ),
    "declares 50,000 capabilities": _introduces(
        Identity(
            name="a",
            version="1",
            contract=CONTRACT,
            criteria=CRITIC.criteria,
            capabilities=[f"own-{n}" for n in range(50_000)],
        )
    ),
    "is of another contract": _introduces(Identity(name="a", version="1", contract="other.v1.Service")),
    "has damaged bytes": _introduces(b"\x0a\xff"),
    "does not say who it is": _silent,
}
"""Misbehaviours of identities; the judge itself passes everything."""


@asynccontextmanager
async def hostile_judge(
    introduce: Callable[[GetIdentityRequest, Any], Any] = _identity,
) -> AsyncIterator[str]:
    """Serves a judge on this machine; yields its address."""

    async def judge(request: JudgeRequest, context: Any) -> AsyncGenerator[Any]:
        behave = MISBEHAVIOURS.get(request.task.id, says(assessed()))
        async for response in behave(request, context):
            yield response

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    methods: dict[str, dict[str, Any]] = {
        CONTRACT: {"Judge": grpc.unary_stream_rpc_method_handler(judge, JudgeRequest.FromString, _bytes_of)},
        "dramaturg.api.identity.v1.IdentityService": {
            "GetIdentity": grpc.unary_unary_rpc_method_handler(
                introduce, GetIdentityRequest.FromString, _bytes_of
            )
        },
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, handlers) for name, handlers in methods.items()]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def _bytes_of(response: Any) -> bytes:
    return response if isinstance(response, bytes) else bytes(response.SerializeToString())
