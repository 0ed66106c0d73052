"""What a pair costs: one call for all roles, and one for all votes of an order (DRPE, section 4.2)."""

from __future__ import annotations

import pytest

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesRequest
from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.judge.provenance import add_usage
from dramaturg.judge.role_sets import role_set
from services.judging.pairs.judge import SPEC as PAIR_JUDGE_SPEC
from services.roles.app import App as RolesApp
from services.roles.settings import RoleSettings
from tests.support.judges import serve_app
from tests.support.openai_server import Body, OpenAIServer
from tests.support.readers import generation_target, prefer_text, votes


def respond(body: Body) -> Body:
    if "coarse" in body["response_format"]["json_schema"]["schema"]["properties"]:
        kinds = (("coarse", 3), ("fine", 2))
        return {
            kind: [{"type": f"{kind} {n}", "description": "Reads."} for n in range(count)]
            for kind, count in kinds
        }
    return votes(prefer_text(["better", "worse"]))(body)


@pytest.mark.parametrize(
    ("order", "calls"), [(pb.PRESENTATION_ORDER_AS_GIVEN, 2), (pb.PRESENTATION_ORDER_BOTH, 3)]
)
async def test_two_calls_a_pair_in_one_order_and_three_in_both(
    order: pb.PresentationOrder.ValueType, calls: int
) -> None:
    async with (
        OpenAIServer(respond) as server,
        generation_target(server) as target,
        serve_app(RolesApp(RoleSettings(generation_target=target))) as roles,
        serve_app(PAIR_JUDGE_SPEC(generation_target=target)) as judge,
    ):
        generated = await RoleServiceStub(roles).GenerateRoles(GenerateRolesRequest(source="s"))
        compared = await PairJudgeServiceStub(judge).ComparePair(
            pb.ComparePairRequest(
                source="s",
                first="better",
                second="worse",
                roles=[*role_set("summarisation"), *generated.roles],
                order=order,
            )
        )
    assert len(server.requests) == calls
    usage = add_usage(generated.provenance.usage, compared.provenance.usage)
    assert usage.provider_call_count == calls
    assert len(compared.votes) == 8
    assert compared.preference == pb.PREFERENCE_FIRST
