"""Measures a graph against the reference: description, edges, edit distance."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.graphs_pb2 import EVENT_MATCHING_TEXT, EventMatches, MeasuredGraph
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.calls import ask
from gateway.evaluations.failures import Failure
from gateway.evaluations.graphs.judged_matches import EventJudges
from gateway.evaluations.graphs.plan import GraphsPlan
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.directory import JudgeDirectory
from gateway.judges.selection import JudgeAssignment


class GraphMeasurer:
    """Measures graphs. A failed measure is named in ``failures``; the others are kept.

    Args:
        plan: The plan of the evaluation.
        directory: The identities of judges.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: GraphsPlan, directory: JudgeDirectory, scope: EvaluationScope) -> None:
        self._plan = plan
        self._judges = EventJudges(plan.event_judges, plan.request, directory, scope)
        self._scope = scope
        self._stub = GraphServiceStub(plan.measurer.judge.channel)

    async def measure(self, measured: MeasuredGraph) -> None:
        """Adds the requested measures. A missing graph has none unless it is a failure of the model."""
        if measured.failure_reason:
            await self._measure_failure(measured)
        if not measured.HasField("graph"):
            return
        foreign = self._foreign_event(measured.graph)
        wanted = [self._check(measured) if foreign else self._check_and_score(measured)]
        if foreign is not None and not self._plan.writes:
            measured.failures.append(f"The edges are not scored: {foreign}.")
        if self._plan.distance_mode is not None:
            wanted.append(self._compare(measured, self._plan.distance_mode, same_events=foreign is None))
        # In the order of the measures, regardless of which fails first.
        for failures in await gather_all(wanted):
            measured.failures.extend(failures)

    async def _measure_failure(self, measured: MeasuredGraph) -> None:
        """Measures a failure as the graph without edges, and without events if models write them."""
        reference, writes = self._plan.request.reference, self._plan.writes
        if not (writes or reference.edges):  # such a graph would be right
            measured.abstain_reason = measured.failure_reason
            measured.ClearField("failure_reason")
            return
        graph = ScriptGraph(scenario=reference.scenario, events=() if writes else reference.events)
        blank = MeasuredGraph(graph=graph)
        wanted = [] if writes else [self._check_and_score(blank)]
        if self._plan.distance_mode is not None:
            wanted.append(self._compare(blank, self._plan.distance_mode, same_events=not writes))
        for failures in await gather_all(wanted):
            measured.failures.extend(failures)
        if blank.HasField("score"):
            measured.score.CopyFrom(blank.score)
        for name in ("distance", "text_distance", "event_matches", "embedding_distance", "embedding_matches"):
            if blank.HasField(name):
                getattr(measured, name).CopyFrom(getattr(blank, name))

    async def _check(self, measured: MeasuredGraph) -> Sequence[str]:
        answer = await ask(
            self._plan.measurer,
            self._scope,
            self._stub.CheckGraph,
            pb.CheckGraphRequest(graph=measured.graph),
            pb.CheckGraphResponse,
        )
        if isinstance(answer, Failure) or not answer.HasField("report"):
            return [self._failure("The graph is not checked", answer)]
        measured.report.CopyFrom(answer.report)
        return []

    async def _check_and_score(self, measured: MeasuredGraph) -> Sequence[str]:
        request = self._plan.request
        pair = pb.GraphPair(
            id=request.reference.id,
            predicted=measured.graph,
            reference=request.reference,
            tags=request.tags,
        )
        answer = await ask(
            self._plan.measurer,
            self._scope,
            self._stub.ScoreEdges,
            pb.ScoreEdgesRequest(pairs=[pair], reduce=request.reduce, report_predicted=True),
            pb.ScoreEdgesResponse,
        )
        failures = []
        if isinstance(answer, Failure) or len(answer.reports) != 1:
            failures.append(self._failure("The graph is not checked", answer))
        else:
            measured.report.CopyFrom(answer.reports[0])
        if isinstance(answer, Failure) or len(answer.scores) != 1:
            failures.append(self._failure("The edges are not scored", answer))
        else:
            measured.score.CopyFrom(answer.scores[0])
        return failures

    async def _compare(
        self, measured: MeasuredGraph, mode: pb.DistanceMode.ValueType, *, same_events: bool
    ) -> Sequence[str]:
        if same_events:
            # The same text may name two events, and an event that only edges name has none.
            return await self._distance(measured, measured.distance, mode, pb.LABEL_RULE_ID)
        embedder, judged = self._plan.embedder, bool(self._plan.event_judges)
        if embedder is None and not judged:
            measured.event_matches.matching = EVENT_MATCHING_TEXT
            return await self._distance(measured, measured.distance, mode, pb.LABEL_RULE_NORMALISED_TEXT)
        wanted = [self._distance(measured, measured.text_distance, mode, pb.LABEL_RULE_NORMALISED_TEXT)]
        if embedder is not None:
            matches = measured.embedding_matches if judged else measured.event_matches
            place = measured.embedding_distance if judged else measured.distance
            wanted.insert(0, self._compare_by_meaning(measured, embedder, mode, matches, place))
        if judged:
            wanted.insert(0, self._compare_by_judges(measured, mode))
        return [failure for failures in await gather_all(wanted) for failure in failures]

    async def _compare_by_judges(
        self, measured: MeasuredGraph, mode: pb.DistanceMode.ValueType
    ) -> Sequence[str]:
        problem = await self._judges.match(measured.graph.events, measured.event_matches)
        if problem:
            return [f"The edit distance by judges is not measured: {problem}."]
        return await self._distance_of_matches(measured, mode, measured.event_matches, measured.distance)

    async def _compare_by_meaning(
        self,
        measured: MeasuredGraph,
        embedder: JudgeAssignment,
        mode: pb.DistanceMode.ValueType,
        matches: EventMatches,
        place: pb.MeasureEditDistanceResponse,
    ) -> Sequence[str]:
        # Imported here: it needs NumPy, which is slow to load.
        from gateway.evaluations.graphs.matching import DEFAULT_THRESHOLD, match_events

        request = self._plan.request
        threshold = request.match_threshold if request.HasField("match_threshold") else DEFAULT_THRESHOLD
        found = await match_events(
            embedder, self._scope, measured.graph.events, request.reference.events, threshold
        )
        if isinstance(found, str):
            who = f"{embedder.role.name} {embedder.judge.name!r}"
            return [f"The edit distance by meaning is not measured: {who} {found}."]
        matches.CopyFrom(found)
        return await self._distance_of_matches(measured, mode, matches, place)

    async def _distance_of_matches(
        self,
        measured: MeasuredGraph,
        mode: pb.DistanceMode.ValueType,
        matches: EventMatches,
        place: pb.MeasureEditDistanceResponse,
    ) -> Sequence[str]:
        equal = [
            pb.EventPair(first_id=match.event_id, second_id=match.reference_id) for match in matches.matches
        ]
        return await self._distance(measured, place, mode, pb.LABEL_RULE_GIVEN, equal)

    async def _distance(
        self,
        measured: MeasuredGraph,
        place: pb.MeasureEditDistanceResponse,
        mode: pb.DistanceMode.ValueType,
        label_rule: pb.LabelRule.ValueType,
        equal_labels: Sequence[pb.EventPair] = (),
    ) -> Sequence[str]:
        request = self._plan.request
        answer = await ask(
            self._plan.measurer,
            self._scope,
            self._stub.MeasureEditDistance,
            pb.MeasureEditDistanceRequest(
                first=measured.graph,
                second=request.reference,
                mode=mode,
                label_rule=label_rule,
                equal_labels=equal_labels,
                reduce=request.reduce,
            ),
            pb.MeasureEditDistanceResponse,
        )
        if isinstance(answer, Failure) or answer.mode != mode:
            return [self._failure("The edit distance is not measured", answer)]
        place.CopyFrom(answer)
        return []

    def _failure(self, what: str, answer: Failure | Message) -> str:
        why = answer.explanation if isinstance(answer, Failure) else "answered without the measure"
        assignment = self._plan.measurer
        return f"{what}: {assignment.role.name} {assignment.judge.name!r} {why}."

    def _foreign_event(self, graph: ScriptGraph) -> str | None:
        """The first difference of the events from those of the reference; None: they are equal.

        Events that models were given, and those of given graphs, are equal by id; edges may name events that
        are not listed. Ids of events that models wrote may be equal by accident: those events are equal only
        where all texts are equal as well.
        """
        texts = {event.id: event.text for event in self._plan.request.reference.events}
        for event in graph.events:
            if event.id not in texts:
                return f"event {event.id!r} is none of the reference's"
            if event.text != texts[event.id] and (event.text or self._plan.writes):
                return f"event {event.id!r} has another text than the reference's"
        if self._plan.writes and len(graph.events) != len(texts):
            return f"it has {len(graph.events)} events, the reference {len(texts)}"
        return None
