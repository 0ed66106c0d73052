"""Measures a graph against the reference: description, edges, edit distance.

For the distance of written graphs, judges of any criterion can match events with those of the reference. A
candidate is then an event of the model. A criterion is an event of the reference; it passes if both are the
same step. A judge judges all candidates of a graph in one call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_PASS, READING_TEXT, Verdict
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_JUDGE,
    EVENT_MATCHING_TEXT,
    EvaluateGraphsRequest,
    EventMatches,
    MeasuredGraph,
)
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate
from dramaturg.judge.roles import JudgeRole
from dramaturg.results.names import abstention_name
from dramaturg.service.threads import gather_all
from gateway.evaluations.assessments import AskedCriteria, Assessor
from gateway.evaluations.calls import ask
from gateway.evaluations.failures import Failure
from gateway.evaluations.graphs.plan import GraphsPlan
from gateway.evaluations.panels import decide
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.verdict_normalization import requested_criteria
from gateway.judges.directory import JudgeDirectory
from gateway.judges.selection import JudgeAssignment

MAX_EVENTS = 50
"""The most events of a reference that are matched by a judge (``judging.v1.JudgeRequest.criteria``)."""
MAX_CANDIDATES = 200
"""The most events of a graph that are matched by a judge."""


class EventJudges:
    """Has one judge or a panel decide which events are the same step.

    Args:
        assignments: The judges.
        request: The request of the evaluation.
        directory: The identities of judges.
        scope: What the calls of the evaluation share.
    """

    def __init__(
        self,
        assignments: Sequence[JudgeAssignment],
        request: EvaluateGraphsRequest,
        directory: JudgeDirectory,
        scope: EvaluationScope,
    ) -> None:
        self._assignments = assignments
        self._scenario = request.reference.scenario
        self._reference = {
            f"same_step_as_{number}": event
            for number, event in enumerate((one for one in request.reference.events if one.text.strip()), 1)
        }
        # The sampling and the model of the request are those of the models under test.
        self._options = EvaluateGraphsRequest(options=JudgeOptions(repeat_index=request.options.repeat_index))
        self._directory = directory
        self._scope = scope

    async def match(self, events: Sequence[Event], matches: EventMatches) -> str:
        """Matches events one to one. Events without text match none.

        An event is matched if it passes exactly one criterion, which no other event passes, and no criterion
        abstains. Other events that pass any are listed as unmatched, with the reason.

        Args:
            events: The events of the model.
            matches: Gets the judges, the matches and the unclear events.

        Returns:
            The problem, as a sentence without its end, if an event was not judged; else empty.
        """
        matches.matching = EVENT_MATCHING_JUDGE
        seats = {one.panel.name if one.panel else one.judge.name: None for one in self._assignments}
        matches.service = ", ".join(seats)
        candidates = {event.id: event for event in events if event.text.strip()}
        if not (candidates and self._reference):
            return ""
        if len(self._reference) > MAX_EVENTS or len(candidates) > MAX_CANDIDATES:
            return f"a judge matches at most {MAX_CANDIDATES} events with a reference of at most {MAX_EVENTS}"
        verdicts = await self._judge(list(candidates.values()), matches)
        for name, some in verdicts.items():
            if all(one.outcome == OUTCOME_ABSTAIN for one in some):
                first = some[0]
                reason = f"{abstention_name(first.abstain_reason)}: {first.rationale}".rstrip(": .")
                return f"{matches.service!r} did not judge event {name!r} ({reason})"
        self._decide(verdicts, matches)
        return ""

    async def _judge(self, events: Sequence[Event], matches: EventMatches) -> Mapping[str, Sequence[Verdict]]:
        """The verdicts of each event, in the order of the reference."""
        task = Task(goal=self._scenario or "a procedure")
        # Ids of candidates are positions: those of events may be too long, or reveal an order.
        candidates = [
            JudgeCandidate(id=str(index), text=event.text, reading=READING_TEXT)
            for index, event in enumerate(events)
        ]
        assessor = Assessor(task, candidates, self._options, self._directory)
        assessed = await assessor.assess_all(
            self._assignments, self._scope, self._ask, _no_reference, _discard
        )
        found = {}
        for index, event in enumerate(events):
            row = assessed[str(index)]
            assessments = [one for _, one in row]
            matches.provenances.extend(one.assessment.provenance for one in assessments)
            found[event.id] = decide(assessments, list(self._reference), [judge for judge, _ in row])
        return found

    def _ask(self, role: JudgeRole, identity: Identity | None) -> AskedCriteria:
        del role
        criteria = {
            name: Criterion(
                id=name,
                definition=f"Pass: The text names the same step as this event: {event.text.strip()}\n"
                "Fail: It names another step, a part of the step, or several steps. Other words for the same "
                "step do not matter.",
            )
            for name, event in self._reference.items()
        }
        known = [*criteria] if identity is None else requested_criteria([*criteria], identity)
        return AskedCriteria([*criteria], [criteria[name] for name in known] or None)

    def _decide(self, verdicts: Mapping[str, Sequence[Verdict]], matches: EventMatches) -> None:
        passed = {
            name: [one for one in some if one.outcome == OUTCOME_PASS] for name, some in verdicts.items()
        }
        claims = Counter(one.criterion for some in passed.values() for one in some)
        for name, some in verdicts.items():
            mine = passed[name]
            ids = [self._reference[one.criterion].id for one in mine]
            abstained = next((one for one in some if one.outcome == OUTCOME_ABSTAIN), None)
            if len(mine) > 1:
                reason = f"it is the same step as several events: {', '.join(ids)}"
            elif mine and claims[mine[0].criterion] > 1:
                reason = f"other events are also the same step as {ids[0]}"
            elif abstained is not None:
                other = self._reference[abstained.criterion].id
                reason = f"undecided on {other}: {abstention_name(abstained.abstain_reason)}"
            elif mine:
                matches.matches.add(event_id=name, reference_id=ids[0], rationale=mine[0].rationale)
                continue
            else:
                continue
            matches.unclear.add(event_id=name, reason=reason)


async def _no_reference(role: JudgeRole, identity: Identity | None) -> Script | None:
    del role, identity
    return None


def _discard(**event: object) -> None:
    del event


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
