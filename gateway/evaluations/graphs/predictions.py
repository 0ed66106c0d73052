"""Graphs of models: ordered events, written graphs, or ordered events of written graphs.

Events are shown under aliases and in an order that do not reveal their order in the script.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

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
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.graphs.plan import FEWEST_EVENTS, MOST_EVENTS, GraphsPlan, check_graph
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment

_ALIAS = re.compile(r"event-[0-9a-f]{12}(?:-\d+)?")


class EventAliases:
    """Aliases of events, derived from a hash of scenario and text.

    Consecutive ids and the order of a list may reveal the order to be predicted. Equal sets of events get
    equal aliases, so equal requests share a completion.

    Args:
        scenario: The scenario of the script.
        events: The events; their ids are unique.
    """

    def __init__(self, scenario: str, events: Sequence[Event]) -> None:
        texts = Counter(event.text for event in events)
        # The id orders events of the same text alone.
        hashed = sorted(
            (
                _digest(scenario, event.text),
                _digest(scenario, event.id) if texts[event.text] > 1 else "",
                index,
            )
            for index, event in enumerate(events)
        )
        repeated: Counter[str] = Counter()
        self._events: dict[str, Event] = {}
        for digest, _, index in hashed:
            event = events[index]
            alias = f"event-{digest[:12]}"
            repeated[alias] += 1
            self._events[alias if repeated[alias] == 1 else f"{alias}-{repeated[alias]}"] = event

    @property
    def shown(self) -> list[Event]:
        """The events under their aliases, in the order of the aliases."""
        return [Event(id=alias, text=event.text) for alias, event in self._events.items()]

    def id_of(self, alias: str) -> str | None:
        """The id of the event with an alias; None for an unknown alias."""
        event = self._events.get(alias)
        return None if event is None else event.id

    def unmask(self, text: str) -> str:
        """Replaces the aliases in a text by ids."""
        return _ALIAS.sub(lambda match: self.id_of(match[0]) or match[0], text)


def _digest(scenario: str, text: str) -> str:
    return hashlib.sha256(f"{len(scenario)}\n{scenario}\n{text}".encode()).hexdigest()


Kept = TypeVar("Kept")


@dataclass
class Cleaned(Generic[Kept]):
    """A part of an answer."""

    kept: list[Kept] = field(default_factory=list)
    """The usable elements, in the order answered."""
    dropped: list[str] = field(default_factory=list)
    """The dropped elements, as text."""


def clean_edges(edges: Iterable[EventEdge], aliases: EventAliases) -> Cleaned[EventEdge]:
    """The distinct edges between known events.

    An edge from an event to itself is kept: it is a cycle and measured as one.

    Args:
        edges: The edges, between aliases.
        aliases: The aliases.
    """
    cleaned = Cleaned[EventEdge]()
    seen: set[tuple[str, str]] = set()
    for edge in edges:
        ends = _ends(edge, aliases)
        if ends is None:
            cleaned.dropped.append(f"{_called(edge, aliases)}: there is no such event")
        elif ends not in seen:
            seen.add(ends)
            cleaned.kept.append(EventEdge(source_id=ends[0], target_id=ends[1]))
    return cleaned


def clean_probabilities(pairs: Iterable[PairProbability], aliases: EventAliases) -> Cleaned[PairProbability]:
    """The probabilities in [0, 1] of distinct pairs of known events.

    Args:
        pairs: The pairs, of aliases.
        aliases: The aliases.
    """
    cleaned = Cleaned[PairProbability]()
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        ends = _ends(pair, aliases)
        fault = next(_faults(pair, ends, seen), None)
        if fault is not None or ends is None:
            cleaned.dropped.append(f"{_called(pair, aliases)}: {fault}")
            continue
        seen.add(ends)
        cleaned.kept.append(
            PairProbability(source_id=ends[0], target_id=ends[1], probability=pair.probability)
        )
    return cleaned


class _Directed(Protocol):
    @property
    def source_id(self) -> str: ...

    @property
    def target_id(self) -> str: ...


def _faults(pair: PairProbability, ends: tuple[str, str] | None, seen: set[tuple[str, str]]) -> Iterator[str]:
    if ends is None:
        yield "there is no such event"
    elif ends[0] == ends[1]:
        yield "it is one event"
    elif ends in seen:
        yield "it is repeated"
    # Also false for NaN.
    if not 0 <= pair.probability <= 1:
        yield f"{pair.probability} is no probability"


def _ends(edge: _Directed, aliases: EventAliases) -> tuple[str, str] | None:
    source, target = aliases.id_of(edge.source_id), aliases.id_of(edge.target_id)
    return None if source is None or target is None else (source, target)


def _called(edge: _Directed, aliases: EventAliases) -> str:
    name: Callable[[str], str] = lambda alias: repr(aliases.id_of(alias) or alias[:200])  # noqa: E731
    return f"edge from {name(edge.source_id)} to {name(edge.target_id)}"


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
