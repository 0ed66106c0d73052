"""The service as a client sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.service.errors import ServiceError, from_rpc_error
from tests.support.event_loop import SHORT_PAUSE, shortest_pause
from tests.support.graphs import message


async def failure(call: Awaitable[object]) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def hard_pair(size: int, seed: int = 0) -> tuple[ScriptGraph, ScriptGraph]:
    """Two unrelated dense graphs: no solver ends soon."""
    rng = random.Random(seed)

    def one(prefix: str) -> ScriptGraph:
        ids = [f"{prefix}{i}" for i in range(size)]
        return ScriptGraph(
            events=[Event(id=name, text=name) for name in ids],
            edges=[
                EventEdge(source_id=a, target_id=b)
                for i, a in enumerate(ids)
                for b in ids[i + 1 :]
                if rng.random() < 0.15
            ],
        )

    return one("a"), one("b")


async def test_parses_what_a_model_wrote(graph_service: rpc.GraphServiceAsyncStub) -> None:
    text = "Sure:\nStep0: find the recipe;\nStep1: mix;\nStep0 --> Step1;"
    response = await graph_service.ParseGraph(pb.ParseGraphRequest(text=text))
    assert [event.text for event in response.graph.events] == ["find the recipe", "mix"]
    assert [(edge.source_id, edge.target_id) for edge in response.graph.edges] == [("0", "1")]
    assert response.dialect == pb.GRAPH_DIALECT_STEPS
    assert [(repair.kind, repair.text) for repair in response.repairs] == [
        (pb.REPAIR_KIND_TEXT_DROPPED, "Sure:")
    ]


async def test_a_text_without_a_graph_gives_none(graph_service: rpc.GraphServiceAsyncStub) -> None:
    response = await graph_service.ParseGraph(pb.ParseGraphRequest(text="I cannot help with that."))
    assert not response.HasField("graph")
    assert response.repair_count == 1


async def test_checks_and_makes_canonical(graph_service: rpc.GraphServiceAsyncStub) -> None:
    request = pb.CheckGraphRequest(
        graph=message("a>b b>c a>c"),
        canonical_form=pb.CanonicalForm(root=Event(id="root"), leaf=Event(id="leaf")),
    )
    response = await graph_service.CheckGraph(request)
    assert [(edge.source_id, edge.target_id) for edge in response.report.shortcut_edges] == [("a", "c")]
    edges = {(edge.source_id, edge.target_id) for edge in response.canonical.edges}
    assert edges == {("root", "a"), ("a", "b"), ("b", "c"), ("c", "leaf")}


async def test_a_cycle_is_an_answer(graph_service: rpc.GraphServiceAsyncStub) -> None:
    request = pb.CheckGraphRequest(graph=message("a>b b>a b>c"), canonical_form=pb.CanonicalForm())
    response = await graph_service.CheckGraph(request)
    assert sorted(response.report.cycle) == ["a", "b"]
    assert not response.report.acyclic
    assert not response.HasField("canonical")


async def test_bad_graphs_are_refused_with_every_violation(graph_service: rpc.GraphServiceAsyncStub) -> None:
    graph = ScriptGraph(
        events=[Event(id="a"), Event(id="a"), Event(id=""), Event(id="b", duration_minutes=-1)],
        edges=[EventEdge(source_id="a")],
    )
    error = await failure(graph_service.CheckGraph(pb.CheckGraphRequest(graph=graph)))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == [
        "graph.events[1].id",
        "graph.events[2].id",
        "graph.events[3].duration_minutes",
        "graph.edges[0].target_id",
    ]


async def test_scores_can_be_added_up_in_parts(graph_service: rpc.GraphServiceAsyncStub) -> None:
    pairs = [
        pb.GraphPair(
            id=str(i),
            predicted=message(predicted),
            reference=message(reference),
            tags={"domain": domain},
        )
        for i, (predicted, reference, domain) in enumerate(
            [("a>b", "a>b", "x"), ("a>b b>c", "a>c c>b", "y"), ("a b", "a>b", "x")]
        )
    ]
    whole = await graph_service.ScoreEdges(pb.ScoreEdgesRequest(pairs=pairs, by=["domain"], closure=True))
    first = await graph_service.ScoreEdges(pb.ScoreEdgesRequest(pairs=pairs[:2], closure=True))
    parts = pb.ScoreEdgesRequest(pairs=pairs[2:], scored=first.scores, by=["domain"], closure=True)
    both = await graph_service.ScoreEdges(parts)
    assert both.summary == whole.summary
    assert both.groups == whole.groups
    assert whole.summary.exact_match_count == 1
    assert whole.summary.macro.f1.value == pytest.approx(1 / 3)
    assert [(group.value, group.summary.pair_count) for group in whole.groups] == [("x", 2), ("y", 1)]


async def test_impossible_earlier_scores_are_refused(graph_service: rpc.GraphServiceAsyncStub) -> None:
    score = pb.EdgeScore(counts=pb.EdgeCounts(predicted=1, reference=2, shared=2))
    error = await failure(graph_service.ScoreEdges(pb.ScoreEdgesRequest(scored=[score])))
    assert [violation.field for violation in error.violations] == ["scored[0].counts.shared"]


@pytest.mark.parametrize(
    ("mode", "distance"),
    [
        (pb.DISTANCE_MODE_UNSPECIFIED, 5),
        (pb.DISTANCE_MODE_STRUCTURAL, 2),
        (pb.DISTANCE_MODE_ANCHORED, 6),
        (pb.DISTANCE_MODE_LABEL_FREE, 0),
    ],
)
async def test_the_modes_are_different_distances(
    graph_service: rpc.GraphServiceAsyncStub, mode: pb.DistanceMode.ValueType, distance: int
) -> None:
    request = pb.MeasureEditDistanceRequest(
        first=message("a>b b>c c>d"), second=message("a>c c>b b>d"), mode=mode
    )
    response = await graph_service.MeasureEditDistance(request)
    assert response.distance == response.lower_bound == response.upper_bound == distance
    assert response.proven
    assert response.edits_proven
    assert response.mode == (mode or pb.DISTANCE_MODE_PROSCRIPT)
    assert len(response.mapping) == 4


async def test_labels_can_be_given(graph_service: rpc.GraphServiceAsyncStub) -> None:
    first, second = message("a>b", {"a": "Put it  away."}), message("x>y", {"x": "put it away"})
    texts = await graph_service.MeasureEditDistance(pb.MeasureEditDistanceRequest(first=first, second=second))
    assert (texts.edits.replaced_events, texts.edits.replaced_edges) == (1, 1)
    given = pb.MeasureEditDistanceRequest(
        first=first,
        second=second,
        label_rule=pb.LABEL_RULE_GIVEN,
        equal_labels=[pb.EventPair(first_id=a, second_id=b) for a, b in [("a", "x"), ("b", "y")]],
    )
    assert (await graph_service.MeasureEditDistance(given)).distance == 0
    given.equal_labels[0].second_id = "nobody"
    error = await failure(graph_service.MeasureEditDistance(given))
    assert error.violations[0].field == "equal_labels[0].second_id"


async def test_the_way_back_has_the_edits_reversed(graph_service: rpc.GraphServiceAsyncStub) -> None:
    long, short = message("a>b b>c c>d"), message("a>c")
    there = await graph_service.MeasureEditDistance(pb.MeasureEditDistanceRequest(first=long, second=short))
    back = await graph_service.MeasureEditDistance(pb.MeasureEditDistanceRequest(first=short, second=long))
    assert there.distance == back.distance
    assert there.edits.deleted_events == back.edits.inserted_events == 2
    assert there.edits.deleted_edges == back.edits.inserted_edges
    assert {(pair.first_id, pair.second_id) for pair in there.mapping} == {
        (pair.second_id, pair.first_id) for pair in back.mapping
    }


async def test_more_than_forty_events_are_too_many(graph_service: rpc.GraphServiceAsyncStub) -> None:
    large = ScriptGraph(events=[Event(id=str(i)) for i in range(41)])
    call = graph_service.MeasureEditDistance(pb.MeasureEditDistanceRequest(first=large, second=message("a")))
    error = await failure(call)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
    assert error.metadata == {"limit": "40", "actual": "41"}


async def test_at_the_time_limit_there_are_bounds(graph_service: rpc.GraphServiceAsyncStub) -> None:
    first, second = hard_pair(36)
    # Without the limit this pair takes far longer than the call has.
    request = pb.MeasureEditDistanceRequest(first=first, second=second, time_limit=Duration(seconds=1))
    response = await graph_service.MeasureEditDistance(request, timeout=60)
    assert not response.proven
    assert response.lower_bound < response.upper_bound == response.distance
    # The pool of one is free again.
    small = pb.MeasureEditDistanceRequest(first=message("a>b"), second=message("b>a"))
    assert (await graph_service.MeasureEditDistance(small)).proven


async def test_before_the_deadline_there_are_bounds(graph_service: rpc.GraphServiceAsyncStub) -> None:
    small = pb.MeasureEditDistanceRequest(first=message("a>b"), second=message("b>a"))
    await graph_service.MeasureEditDistance(small)
    first, second = hard_pair(36)
    request = pb.MeasureEditDistanceRequest(first=first, second=second, time_limit=Duration(seconds=60))
    response = await graph_service.MeasureEditDistance(request, timeout=3)
    assert response.lower_bound < response.upper_bound


@pytest.mark.alone
async def test_a_cancelled_call_frees_its_solver_and_the_loop_never_blocks(
    graph_service: rpc.GraphServiceAsyncStub,
) -> None:
    first, second = hard_pair(36)
    request = pb.MeasureEditDistanceRequest(first=first, second=second, time_limit=Duration(seconds=60))
    small = pb.MeasureEditDistanceRequest(first=message("a>b"), second=message("b>a"))
    await graph_service.MeasureEditDistance(small)

    async def cancel_and_call_again() -> None:
        call = graph_service.MeasureEditDistance(request)
        await asyncio.wait([asyncio.ensure_future(call.initial_metadata())], timeout=0.5)
        call.cancel()
        # The pool has one process: this call gets it only once the other is gone.
        assert (await graph_service.MeasureEditDistance(small, timeout=30)).proven

    assert await shortest_pause(cancel_and_call_again, 0.05) < 0.05


def huge_graph(size: int, edges: int) -> ScriptGraph:
    """A graph in which nearly every event lies on a cycle."""
    rng = random.Random(1)
    return ScriptGraph(
        events=[Event(id=str(i), text="e") for i in range(size)],
        edges=[
            EventEdge(source_id=str(rng.randrange(size)), target_id=str(rng.randrange(size)))
            for _ in range(edges)
        ],
    )


@pytest.mark.alone
async def test_hostile_requests_do_not_block_the_event_loop(
    graph_service: rpc.GraphServiceAsyncStub,
) -> None:
    huge = huge_graph(5_000, 20_000)
    pair = pb.GraphPair(predicted=huge, reference=huge)
    text = "; ".join(f"step{i} -> step{i * 7919 % 5000}" for i in range(9_000))
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: graph_service.CheckGraph(pb.CheckGraphRequest(graph=huge)),
        lambda: graph_service.ParseGraph(pb.ParseGraphRequest(text=text)),
        lambda: graph_service.ParseGraph(pb.ParseGraphRequest(text="digraph {" + "{a}" * 60_000)),
        lambda: graph_service.ScoreEdges(pb.ScoreEdgesRequest(pairs=[pair], closure=True)),
        lambda: graph_service.MeasureEditDistance(pb.MeasureEditDistanceRequest(first=huge, second=huge)),
    ]
    assert max([await shortest_pause(call) for call in calls]) < SHORT_PAUSE


async def test_larger_graphs_are_refused(graph_service: rpc.GraphServiceAsyncStub) -> None:
    graph = huge_graph(10, 100_000)
    error = await failure(graph_service.CheckGraph(pb.CheckGraphRequest(graph=graph)))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == ["graph.edges"]


async def test_pairs_become_an_acyclic_graph(graph_service: rpc.GraphServiceAsyncStub) -> None:
    weights = {("a", "b"): 0.9, ("b", "c"): 0.8, ("c", "a"): 0.7, ("a", "c"): 0.6, ("b", "a"): 0.2}
    request = pb.AggregatePairsRequest(
        events=[Event(id=name) for name in "abcd"],
        pairs=[pb.PairProbability(source_id=s, target_id=t, probability=p) for (s, t), p in weights.items()],
    )
    paper = await graph_service.AggregatePairs(request)
    # The lightest edge on a cycle is a > c (with c > a); then c > a closes a > b > c.
    assert [(edge.source_id, edge.target_id) for edge in paper.removed] == [("a", "c"), ("c", "a")]
    assert {(edge.source_id, edge.target_id) for edge in paper.graph.edges} == {("a", "b"), ("b", "c")}
    assert [event.id for event in paper.graph.events] == list("abcd")
    request.cycle_policy = pb.CYCLE_POLICY_MIN_FAS
    request.keep_shortcuts = True
    least = await graph_service.AggregatePairs(request)
    assert least.proven
    assert [(edge.source_id, edge.target_id) for edge in least.removed] == [("c", "a")]
    assert len(least.graph.edges) == 3


async def test_too_many_events_on_cycles_are_refused(graph_service: rpc.GraphServiceAsyncStub) -> None:
    names = [str(i) for i in range(31)]
    pairs = [
        pb.PairProbability(source_id=a, target_id=b, probability=0.9)
        for a, b in zip(names, [*names[1:], names[0]], strict=True)
    ]
    request = pb.AggregatePairsRequest(
        events=[Event(id=name) for name in names], pairs=pairs, cycle_policy=pb.CYCLE_POLICY_MIN_FAS
    )
    error = await failure(graph_service.AggregatePairs(request))
    assert error.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE


async def test_votes_are_decided_by_majority(graph_service: rpc.GraphServiceAsyncStub) -> None:
    better, equal, worse = pb.PREFERENCE_BETTER, pb.PREFERENCE_EQUAL, pb.PREFERENCE_WORSE
    request = pb.AggregatePreferencesRequest(
        comparisons=[
            pb.Comparison(id="1", votes=[better, better, worse]),
            pb.Comparison(id="2", votes=[better, equal, worse]),
            pb.Comparison(id="3", votes=[worse, pb.PREFERENCE_UNDECIDED]),
            pb.Comparison(id="4"),
        ]
    )
    response = await graph_service.AggregatePreferences(request)
    assert response.counts == pb.PreferenceCounts(better=1, worse=1, undecided=2)
    request.split_rule = pb.SPLIT_RULE_EQUAL
    response = await graph_service.AggregatePreferences(request)
    assert response.counts == pb.PreferenceCounts(better=1, equal=1, worse=1, undecided=1)


async def test_baselines_can_be_drawn_in_parts(graph_service: rpc.GraphServiceAsyncStub) -> None:
    graphs = [message("r>a r>b a>c b>c c>s", graph_id=str(i)) for i in range(4)]
    whole = await graph_service.DrawBaseline(pb.DrawBaselineRequest(graphs=graphs, seed=7))
    rest = await graph_service.DrawBaseline(pb.DrawBaselineRequest(graphs=graphs[2:], seed=7, first_index=2))
    assert rest.graphs == whole.graphs[2:]
    other = await graph_service.DrawBaseline(pb.DrawBaselineRequest(graphs=graphs, seed=8))
    assert other.graphs != whole.graphs
    error = await failure(graph_service.DrawBaseline(pb.DrawBaselineRequest(graphs=[message("a>b c>b")])))
    assert error.violations[0].field == "graphs[0]"


async def test_scripts_without_agreement_are_filtered(graph_service: rpc.GraphServiceAsyncStub) -> None:
    scripts = [
        pb.AnnotatedScript(id="agreed", graphs=[message("a>b b>c"), message("a>b b>c"), message("c>b b>a")]),
        pb.AnnotatedScript(id="disputed", graphs=[message("a>b b>c"), message("b>a c>b")]),
    ]
    response = await graph_service.SelectByAgreement(pb.SelectByAgreementRequest(scripts=scripts))
    kept, dropped = response.selections
    assert (kept.kept, kept.agreement, kept.tied_count) == (True, 1.0, 2)
    assert kept.graph_index in {0, 1}
    assert (dropped.kept, dropped.agreement) == (False, 0.0)
    assert response.threshold == pytest.approx(0.65)
    again = await graph_service.SelectByAgreement(pb.SelectByAgreementRequest(scripts=scripts))
    assert again == response


@pytest.mark.parametrize("size", [3, 400], ids=["in the event loop", "in a thread"])
async def test_scores_come_with_the_reports_of_the_predicted_graphs(
    graph_service: rpc.GraphServiceAsyncStub, size: int
) -> None:
    chain = message(" ".join(f"e{i}>e{i + 1}" for i in range(size)))
    cycle = message("a>b b>a b>c")
    request = pb.ScoreEdgesRequest(
        pairs=[pb.GraphPair(predicted=graph, reference=chain) for graph in (chain, cycle)]
    )
    assert not (await graph_service.ScoreEdges(request)).reports
    request.report_predicted = True
    scored = await graph_service.ScoreEdges(request)
    checked = [
        (await graph_service.CheckGraph(pb.CheckGraphRequest(graph=graph))).report for graph in (chain, cycle)
    ]
    assert list(scored.reports) == checked
    assert [report.acyclic for report in scored.reports] == [True, False]
