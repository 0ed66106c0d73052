"""The main results of the list of runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_QUOTA_EXHAUSTED
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Run, RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.service.errors import ServiceError
from gateway.console.home import MainResults
from gateway.console.visit import Visit

EXHAUSTED = ServiceError(
    grpc.StatusCode.RESOURCE_EXHAUSTED, ERROR_REASON_QUOTA_EXHAUSTED, "the quota is used up"
)


def visitor(answer: pb.GetLeaderboardResponse | ServiceError) -> tuple[Visit, list[str]]:
    """A visitor who gets an answer, and the runs that are asked for."""
    asked: list[str] = []

    async def ask(_: object, request: pb.GetLeaderboardRequest) -> pb.GetLeaderboardResponse:
        asked.append(request.run_id)
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    class Calls:
        runs = SimpleNamespace(GetLeaderboard=None)
        __call__ = staticmethod(ask)

    return cast("Visit", SimpleNamespace(calls=cast("Any", Calls()))), asked


async def test_a_failure_of_one_visitor_is_not_shown_to_the_next() -> None:
    run = Run(id="run", state=RUN_STATE_SUCCEEDED, spec=RunSpec())
    run.spec.scripts.SetInParent()
    run.progress.judgement_count = 7
    results = MainResults()
    refused, _ = visitor(EXHAUSTED)
    assert await results.of(refused, [run]) == {"run": None}
    entry = LeaderboardEntry(model="writer", rank=1, mean=0.5)
    served, asked = visitor(pb.GetLeaderboardResponse(entries=[entry]))
    for _ in range(2):
        found = (await results.of(served, [run]))["run"]
        assert found is not None
        assert found.models == ["writer"]
        assert found.text
    assert asked == ["run"]


async def test_the_model_that_alone_is_ranked_is_named() -> None:
    run = Run(id="run", state=RUN_STATE_SUCCEEDED, spec=RunSpec())
    run.spec.scripts.SetInParent()
    run.progress.judgement_count = 7
    entries = [LeaderboardEntry(model="writer", rank=1, mean=0.5), LeaderboardEntry(model="silent")]
    served, _ = visitor(pb.GetLeaderboardResponse(entries=entries))
    found = (await MainResults().of(served, [run]))["run"]
    assert found is not None
    assert found.text.startswith("writer 50")
    assert (found.interval, found.of) == ("no interval", "alone ranked of 2 models")
