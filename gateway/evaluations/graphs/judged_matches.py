"""Matches written events with those of the reference by judges of any criterion.

A candidate is an event of the model. A criterion is an event of the reference; it passes if both are the
same step. A judge judges all candidates of a graph in one call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_PASS, READING_TEXT, Verdict
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_JUDGE,
    EvaluateGraphsRequest,
    EventMatches,
)
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate
from dramaturg.judge.roles import JudgeRole
from dramaturg.results.names import abstention_name
from dramaturg.service.concurrency import gather_all
from gateway.evaluations.assessments import AskedCriteria, Assessor
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
        columns = await gather_all(
            [
                assessor.assess(one, self._scope, self._ask, _no_reference, _discard)
                for one in self._assignments
            ]
        )
        found = {}
        for index, event in enumerate(events):
            assessments = [column[index] for column in columns]
            matches.provenances.extend(one.assessment.provenance for one in assessments)
            found[event.id] = decide(assessments, list(self._reference), self._assignments)
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
