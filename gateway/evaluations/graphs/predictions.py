"""Graphs of models: ordered events, written graphs, or ordered events of written graphs."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import MeasuredGraph
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.generation.v1.edge_service_pb2 import (
    EDGE_METHOD_PAIRWISE,
    PredictEdgesRequest,
    PredictEdgesResponse,
)
from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceStub
from dramaturg.api.graph.v1.graph_service_pb2 import (
    AggregatePairsRequest,
    AggregatePairsResponse,
    PairProbability,
)
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.graphs.answers import Cleaned, Kept, clean_edges, clean_probabilities
from gateway.evaluations.graphs.event_aliases import EventAliases
from gateway.evaluations.graphs.plan import FEWEST_EVENTS, MOST_EVENTS, GraphsPlan
from gateway.evaluations.graphs.soundness import check_graph
from gateway.evaluations.model_failures import is_model_failure
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment

MOST_DROPPED = 100
"""The most dropped elements that are listed."""


class GraphMaker:
    """Makes the graph of one model.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
        model: The model, as named in the request.
    """

    def __init__(self, plan: GraphsPlan, scope: EvaluationScope, model: str) -> None:
        self._plan = plan
        self._scope = scope
        self._model = model
        self._made = MeasuredGraph(model=model)

    async def make(self) -> MeasuredGraph:
        """Makes the graph, without measures, or states the reason for its absence. Call it once."""
        made = self._made
        try:
            graph = await self._make()
        except _NoGraphError as missing:
            if missing.of_model and is_model_failure(
                missing.reason, abstains=self._plan.request.unusable_outputs_abstain
            ):
                made.failure_reason = missing.reason
            else:
                made.abstain_reason = missing.reason
            made.failures.append(f"There is no graph: {missing}.")
        else:
            made.graph.CopyFrom(graph)
        if len(made.dropped) > MOST_DROPPED:
            rest = len(made.dropped) - MOST_DROPPED
            del made.dropped[MOST_DROPPED:]
            made.dropped.append(f"and {rest} more")
        return made

    async def _make(self) -> ScriptGraph:
        task, reference = self._plan.task, self._plan.request.reference
        if task == graphs_pb2.GRAPH_TASK_PREDICT_EDGES:
            return await self._order(reference.events)
        written = await self._write()
        if task == graphs_pb2.GRAPH_TASK_GENERATE:
            return written
        # Fewer than two events have no order to predict.
        return (
            await self._order(written.events) if len(written.events) >= FEWEST_EVENTS else _unordered(written)
        )

    async def _write(self) -> ScriptGraph:
        assignment, reference = self._plan.author, self._plan.request.reference
        assert assignment is not None
        answer = await ask(
            assignment,
            self._scope,
            AuthoringServiceStub(assignment.judge.channel).WriteScriptGraph,
            WriteScriptGraphRequest(
                scenario=reference.scenario,
                event_count=len(reference.events),
                first_event=_first_event(reference),
                options=self._options(assignment),
            ),
            WriteScriptGraphResponse,
        )
        if isinstance(answer, Failure):
            raise _failed(assignment, answer)
        self._sign(assignment, answer.provenance)
        self._made.dropped.extend(answer.dropped)
        _check_abstention(assignment, answer.abstain_reason, answered=answer.HasField("graph"), of_model=True)
        fault = next(check_graph("graph", answer.graph), None)
        if fault is not None:
            raise _unparsable(assignment, f"{fault.field} {fault.description}")
        if not answer.graph.events:
            raise _unparsable(assignment, "the graph has no events")
        return answer.graph

    async def _order(self, events: Sequence[Event]) -> ScriptGraph:
        assignment, request = self._plan.edges, self._plan.request
        assert assignment is not None
        if len(events) > MOST_EVENTS:
            raise _NoGraphError(
                verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
                f"it has {len(events)} events, of which at most {MOST_EVENTS} can be ordered",
            )
        aliases = EventAliases(request.reference.scenario, events)
        answer = await ask(
            assignment,
            self._scope,
            EdgeServiceStub(assignment.judge.channel).PredictEdges,
            PredictEdgesRequest(
                scenario=request.reference.scenario,
                events=aliases.shown,
                method=request.method,
                vote_count=request.vote_count,
                options=self._options(assignment),
            ),
            PredictEdgesResponse,
        )
        if isinstance(answer, Failure):
            raise _failed(assignment, answer)
        self._sign(assignment, answer.provenance)
        self._made.dropped.extend(aliases.unmask(text) for text in answer.dropped)
        probable = bool(answer.probabilities)
        _check_abstention(
            assignment,
            answer.abstain_reason,
            answered=probable or answer.HasField("graph"),
            # The second step of a pipeline may have a model that is not under test.
            of_model=not (self._plan.writes and assignment.model),
        )
        if probable and answer.HasField("graph"):
            raise _unparsable(assignment, "it has both a graph and probabilities")
        if request.method and probable != (request.method == EDGE_METHOD_PAIRWISE):
            raise _unparsable(assignment, "it was made by another method than asked for")
        graph = ScriptGraph(scenario=request.reference.scenario, events=events)
        if probable:
            pairs = self._keep(assignment, clean_probabilities(answer.probabilities, aliases))
            known = answer.HasField("threshold") and 0 <= answer.threshold <= 1
            threshold = answer.threshold if known else None
            graph.edges.extend(await self._aggregate(events, pairs, threshold))
        else:
            graph.edges.extend(self._keep(assignment, clean_edges(answer.graph.edges, aliases)))
        return graph

    def _keep(self, assignment: JudgeAssignment, cleaned: Cleaned[Kept]) -> list[Kept]:
        """The usable elements of an answer.

        Raises:
            _NoGraphError: No element is usable.
        """
        self._made.dropped.extend(cleaned.dropped)
        if cleaned.dropped and not cleaned.kept:
            raise _unparsable(assignment, f"nothing in it can be used: {cleaned.dropped[0]}")
        return cleaned.kept

    async def _aggregate(
        self, events: Sequence[Event], pairs: Sequence[PairProbability], threshold: float | None
    ) -> Sequence[EventEdge]:
        assignment = self._plan.measurer
        answer = await ask(
            assignment,
            self._scope,
            GraphServiceStub(assignment.judge.channel).AggregatePairs,
            AggregatePairsRequest(
                events=events,
                pairs=pairs,
                threshold=threshold,
                cycle_policy=self._plan.request.cycle_policy,
            ),
            AggregatePairsResponse,
        )
        if isinstance(answer, Failure):
            raise _failed(assignment, answer)
        if not answer.HasField("graph"):
            raise _unparsable(assignment, "it has no graph")
        self._made.removed.extend(answer.removed)
        return answer.graph.edges

    def _options(self, assignment: JudgeAssignment) -> JudgeOptions:
        options = judge_options(assignment, self._plan.request)
        options.model = self._plan.model_of(assignment, self._model)
        return options

    def _sign(self, assignment: JudgeAssignment, provenance: Provenance) -> None:
        provenance.registered_name = assignment.judge.name
        self._made.provenances.append(provenance)


class _NoGraphError(Exception):
    def __init__(self, reason: AbstainReason.ValueType, explanation: str, *, of_model: bool = False) -> None:
        super().__init__(explanation)
        self.reason = reason
        self.of_model = of_model  # whether the model under test gave no usable answer


def _failed(assignment: JudgeAssignment, failure: Failure) -> _NoGraphError:
    return _NoGraphError(
        failure.reason, f"{assignment.role.name} {assignment.judge.name!r} {failure.explanation}"
    )


def _unparsable(assignment: JudgeAssignment, fault: str) -> _NoGraphError:
    return _NoGraphError(
        verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
        f"the answer of {assignment.role.name} {assignment.judge.name!r} does not keep its contract: {fault}",
    )


def _check_abstention(
    assignment: JudgeAssignment, reason: AbstainReason.ValueType, *, answered: bool, of_model: bool
) -> None:
    """Checks that an answer has either a graph or an abstention with its reason."""
    if reason and answered:
        raise _NoGraphError(
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            f"{assignment.role.name} {assignment.judge.name!r} answered and abstained at once",
        )
    if reason:
        explanation = f"{assignment.role.name} {assignment.judge.name!r} abstained"
        raise _NoGraphError(reason, explanation, of_model=of_model)
    if not answered:
        raise _unparsable(assignment, "it has neither a graph nor a reason for having none")


def _first_event(graph: ScriptGraph) -> str:
    """The text of the only event that no event precedes. Empty: there are several or none."""
    later = {edge.target_id for edge in graph.edges}
    first = [event.text for event in graph.events if event.id not in later]
    return first[0] if len(first) == 1 else ""


def _unordered(graph: ScriptGraph) -> ScriptGraph:
    return ScriptGraph(scenario=graph.scenario, events=graph.events)
