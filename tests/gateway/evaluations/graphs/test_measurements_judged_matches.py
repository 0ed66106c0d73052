"""Judges match written events with the reference's, through a real graph service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_LOW_CONFIDENCE, Verdict
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_EMBEDDINGS,
    EVENT_MATCHING_JUDGE,
    EvaluateGraphsRequest,
    MeasuredGraph,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge, serve
from gateway.app import App as Gateway
from gateway.evaluations.graphs.measurements import MAX_EVENTS
from gateway.evaluations.graphs.summary import Counts
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.evaluations import contract
from tests.support.graph_evaluations import GENERATE, asked, eggs, graphs_result, only_graph, writing
from tests.support.texts import judge

WRITTEN = eggs("1>2 2>4 3>4", {"1": "get a pan", "2": "warm oil", "3": "crack eggs", "4": "cook"})
"""The script of ``eggs`` in other words."""
SAME: Mapping[str, str] = {
    "get a pan": "find a pan",
    "warm oil": "heat oil",
    "crack eggs": "break the eggs",
    "cook": "fry the eggs",
}


def matcher(
    same: Mapping[str, Sequence[str] | str] = SAME, unsure: Sequence[str] = (), **fields: str
) -> FakeJudge:
    """A judge that takes a text as the same step as these events, and abstains on some events."""

    def verdicts(request: JudgeRequest, candidate: JudgeCandidate) -> list[Verdict]:
        found = []
        for one in request.criteria:
            event = one.definition.splitlines()[0].partition("this event: ")[2]
            names = same.get(candidate.text, ())
            if event in unsure:
                found.append(abstained(one.id, ABSTAIN_REASON_LOW_CONFIDENCE, "unsure"))
            elif event in ([names] if isinstance(names, str) else names):
                found.append(passed(one.id, rationale=f"as {event}"))
            else:
                found.append(failed(one.id))
        return found

    return judge(verdicts, **fields)


@asynccontextmanager
async def gateway(
    graph: str, written: ScriptGraph, *judges: FakeJudge, embedding: bool = False
) -> AsyncIterator[str]:
    async def embed(request: EmbedRequest) -> EmbedResponse:
        """All texts differ."""
        answer = EmbedResponse(model="encoder")
        for place in range(len(request.texts)):
            answer.embeddings.add(values=[float(place == other) for other in range(len(request.texts))])
        return answer

    served = [
        ("author", "fake", contract("author", {"WriteScriptGraph": writing(written)})),
        *(("rubric-judge", f"judge-{index}", one.contract()) for index, one in enumerate(judges)),
        *([("embedding", "fake", contract("embedding", {"Embed": embed}))] if embedding else []),
    ]
    entries = [JudgeEntry(role="graph", name="built-in", target=graph)]
    async with AsyncExitStack() as stack:
        for role, name, one in served:
            target = (await stack.enter_async_context(serve(one, drain_grace_seconds=0.2))).target
            entries.append(
                JudgeEntry(role=role, name=name, target=target, default=name in {"fake", "judge-0"})
            )
        contracts = await stack.enter_async_context(Gateway(GatewaySettings(judges=tuple(entries))).open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


def request(**fields: Any) -> EvaluateGraphsRequest:
    return asked(task=GENERATE, event_matching=EVENT_MATCHING_JUDGE, **fields)


def pairs(measured: MeasuredGraph) -> list[tuple[str, str]]:
    return [(one.event_id, one.reference_id) for one in measured.event_matches.matches]


async def test_a_right_script_in_other_words_has_no_distance_by_judge(graph: str) -> None:
    asked_judge = matcher(name="matcher", version="2.1")
    async with gateway(graph, WRITTEN, asked_judge, embedding=True) as target:
        result = await graphs_result(target, request())
    (measured,) = result.graphs
    assert (measured.distance.distance, measured.distance.proven) == (0, True)
    assert measured.distance.label_rule == graph_service_pb2.LABEL_RULE_GIVEN
    matches = measured.event_matches
    assert (matches.matching, matches.service) == (EVENT_MATCHING_JUDGE, "judge-0")
    assert pairs(measured) == [("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")]
    assert matches.matches[0].rationale == "as find a pan"
    assert not matches.unclear
    # The result states the judge and its version; all events are judged in one call.
    assert {(one.registered_name, one.name, one.version) for one in matches.provenances} == {
        ("judge-0", "matcher", "2.1")
    }
    (one,) = asked_judge.requests
    assert (one.task.goal, len(one.candidates), len(one.criteria)) == ("fry eggs", 4, 4)
    # The other rules stand beside it.
    assert measured.text_distance.distance == 7
    assert measured.embedding_distance.distance == 7
    assert measured.embedding_matches.matching == EVENT_MATCHING_EMBEDDINGS
    rows = {row.measure: row.value for row in flatten(RunSample(graphs=result))}
    assert rows == {
        "edit_distance": 0,
        "edit_distance/lower_bound": 0,
        "edit_distance/text": 7,
        "edit_distance/embeddings": 7,
    }
    counts = Counts()
    counts.add([measured])
    assert {matching: sums.upper.total for (_, matching), sums in counts.distances.items()} == {
        "judge": 0,
        "embeddings": 7,
        "text": 7,
    }


async def test_unclear_events_are_unmatched_with_their_reason(graph: str) -> None:
    several = {**SAME, "get a pan": ["find a pan", "heat oil"], "warm oil": []}
    shared = {**SAME, "warm oil": "find a pan"}
    async with gateway(graph, WRITTEN, matcher(several)) as target:
        measured = await only_graph(target, request())
    assert pairs(measured) == [("3", "3"), ("4", "4")]
    reasons = {one.event_id: one.reason for one in measured.event_matches.unclear}
    # Event 2 is no step of the reference: that is clear.
    assert reasons == {"1": "it is the same step as several events: 1, 2"}
    counts = Counts()
    counts.add([measured])
    assert counts.unclear_events == 1
    async with gateway(graph, WRITTEN, matcher(shared)) as target:
        measured = await only_graph(target, request())
    assert pairs(measured) == [("3", "3"), ("4", "4")]
    assert {one.event_id: one.reason for one in measured.event_matches.unclear} == {
        "1": "other events are also the same step as 1",
        "2": "other events are also the same step as 1",
    }
    async with gateway(graph, WRITTEN, matcher(unsure=["heat oil"])) as target:
        measured = await only_graph(target, request())
    assert not pairs(measured)
    assert {one.reason for one in measured.event_matches.unclear} == {"undecided on 2: LOW_CONFIDENCE"}
    assert measured.distance.distance == 7


async def test_a_panel_decides_by_majority(graph: str) -> None:
    wrong = matcher({"cook": "find a pan"})
    judges = [JudgeSelection(role="rubric-judge", judge=f"judge-{index}") for index in range(3)]
    async with gateway(graph, WRITTEN, matcher(), matcher(), wrong) as target:
        measured = await only_graph(target, request(judges=judges))
    assert measured.distance.distance == 0
    assert measured.event_matches.service == "judge-0, judge-1, judge-2"
    assert len(measured.event_matches.provenances) == 12


async def test_a_judge_that_fails_leaves_the_distance_by_text(graph: str) -> None:
    async def broken(request: JudgeRequest, candidate: JudgeCandidate) -> Verdict:
        raise RuntimeError

    async with gateway(graph, WRITTEN, judge(broken)) as target:
        result = await graphs_result(target, request())
    (measured,) = result.graphs
    assert not measured.HasField("distance")
    assert measured.text_distance.distance == 7
    (problem,) = measured.failures
    assert problem.startswith(
        "The edit distance by judges is not measured: 'judge-0' did not judge event '1' ("
    )
    rows = {row.measure: row for row in flatten(RunSample(graphs=result))}
    assert not rows["edit_distance"].HasField("value")
    assert rows["edit_distance/text"].value == 7


async def test_without_a_judge_the_request_is_refused(graph: str) -> None:
    async with gateway(graph, WRITTEN) as target:
        with pytest.raises(ServiceError) as raised:
            await only_graph(target, request())
    assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND


async def test_a_reference_of_too_many_events_is_not_judged(graph: str) -> None:
    long = eggs("1>2", {str(number): f"step {number}" for number in range(1, MAX_EVENTS + 2)})
    given = [{"model": "person", "graph": WRITTEN}]
    one = matcher()
    async with gateway(graph, WRITTEN, one) as target:
        measured = await only_graph(
            target,
            asked(
                reference=long,
                models=[],
                graphs=given,
                distance_mode=graph_service_pb2.DISTANCE_MODE_PROSCRIPT,
                event_matching=EVENT_MATCHING_JUDGE,
            ),
        )
    assert not one.requests
    assert any(
        "at most 200 events with a reference of at most 50" in problem for problem in measured.failures
    )
