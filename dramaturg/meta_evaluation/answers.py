"""Asks judges and panels about cases, and holds their answers against the labels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Outcome
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    GOLD_ANSWER_SOURCE_NONE,
    MECHANISM_AGENTS,
    MECHANISM_SINGLE_JUDGE,
    EvaluateScriptsRequest,
)
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ChooseOptionRequest
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnRequest
from dramaturg.api.judging.v1.challenge_judge_service_pb2_grpc import ChallengeJudgeServiceStub
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, Rating
from dramaturg.api.judging.v1.rating_judge_service_pb2_grpc import RatingJudgeServiceStub
from dramaturg.judge.client import judge_one
from dramaturg.judge.provenance import merge
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, RUBRIC_JUDGE, SCRIPT_JUDGE
from dramaturg.meta_evaluation.cases import contains, written
from dramaturg.meta_evaluation.material import (
    CANDIDATE,
    CHOICE,
    CHOICE_SWAPPED,
    PREFERENCE,
    RATING,
    TURN,
    Case,
)
from dramaturg.results.names import reason_name
from dramaturg.service.errors import ServiceError, from_rpc_error

PANEL_ROLES = tuple(role.name for role in (CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE, RUBRIC_JUDGE))
"""The roles whose panels can be asked about cases."""


async def panel_assessment(
    gateway: grpc.aio.Channel,
    panel: JudgeSelection,
    request: JudgeRequest,
    *,
    candidate_id: str,
    timeout: float,
) -> Assessment:
    """The verdicts of a panel on one candidate, with the provenance of the members that were asked.

    Args:
        gateway: The gateway that has the panel.
        panel: The panel; its role is one of ``PANEL_ROLES``.
        request: The request that a judge of the role would get.
        candidate_id: The id of the candidate.
        timeout: The timeout of the evaluation, in seconds.

    Returns:
        The verdicts by the rule of the panel. The names of prompts are "member/prompt".

    Raises:
        grpc.aio.AioRpcError: The gateway refuses the evaluation, or fails.
    """
    stub = EvaluationServiceStub(gateway)
    if panel.role == RUBRIC_JUDGE.name:
        texts = (await _result(stub.EvaluateTexts(_texts(panel, request), timeout=timeout))).texts
        found = next(one for one in texts if one.text_id == candidate_id)
    else:
        scripts = await _result(stub.EvaluateScripts(_scripts(panel, request), timeout=timeout))
        found = next(one for one in scripts.candidates if one.candidate_id == candidate_id)
    for one in found.assessments:
        for prompt in one.assessment.provenance.prompts:
            prompt.name = f"{one.judge}/{prompt.name}"
    provenance = merge(one.assessment.provenance for one in found.assessments)
    return Assessment(verdicts=found.verdicts, provenance=provenance)


async def _result(events: AsyncIterable[Any]) -> Any:
    """The result, which is the last event."""
    async for event in events:
        last = event
    return last.result


def _scripts(panel: JudgeSelection, request: JudgeRequest) -> EvaluateScriptsRequest:
    single = panel.role == SCRIPT_JUDGE.name
    made = EvaluateScriptsRequest(
        task=request.task,
        candidates=map(_candidate, request.candidates),
        judges=[panel],
        mechanism=MECHANISM_SINGLE_JUDGE if single else MECHANISM_AGENTS,
        roles=[panel.role],
        gold_answer_source=GOLD_ANSWER_SOURCE_NONE,
        options=request.options,
    )
    if request.reference.steps:
        made.gold_answer_source = GOLD_ANSWER_SOURCE_GIVEN
        made.gold_answer.CopyFrom(request.reference)
    return made


def _candidate(one: JudgeCandidate) -> Candidate:
    return (
        Candidate(id=one.id, script=one.script) if one.script.steps else Candidate(id=one.id, text=one.text)
    )


def _texts(panel: JudgeSelection, request: JudgeRequest) -> EvaluateTextsRequest:
    return EvaluateTextsRequest(
        task=request.task,
        texts=[EvaluatedText(id=one.id, text=one.text) for one in request.candidates],
        criteria=map(_criterion, request.criteria),
        judges=[panel],
        options=request.options,
    )


def _criterion(one: Criterion) -> RubricCriterion:
    if one.HasField("scale"):
        return RubricCriterion(id=one.id, description=one.definition, scale=one.scale)
    return RubricCriterion(id=one.id, passes=one.definition)


FAULTY_AT_MOST = 4
"""The highest rating that reports a fault in a faulty response (SimulBench: content or form is wrong)."""
FLAWLESS_AT_LEAST = 7
"""The lowest rating that reports no fault in a flawless response (SimulBench: nothing is wrong)."""
LOW, HIGH = 1 / 3, 2 / 3
"""The places on a scale, from 0 (lowest) to 1, up to which a score reports a fault in a faulty text, and from
which it reports none in a flawless one."""
UNSTATED = AbstainReason.ABSTAIN_REASON_UNSPECIFIED
_NO_MODEL = frozenset(
    {
        ErrorReason.ERROR_REASON_MODEL_UNKNOWN,
        ErrorReason.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        ErrorReason.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        ErrorReason.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
        ErrorReason.ERROR_REASON_PROVIDER_UNAVAILABLE,
    }
)
"""The reasons for which no request is answered."""
ROLE_METADATA = "dramaturg-role"
"""The metadata key by which a gateway chooses among judges of one contract."""


@dataclass(frozen=True)
class Judgement:
    """A judge's answer on one labelled item."""

    case: str
    item: str
    fault: bool
    """Whether there is a fault."""
    reported: bool | None
    """Whether the judge reports it; of a flawless item, whether it reports any. None: an abstention."""
    abstain_reason: str = ""
    """The reason of the abstention."""
    language: str = ""
    injected: bool = False

    @property
    def right(self) -> bool:
        """Whether report and label agree. An abstention is not right."""
        return self.reported is not None and self.reported == self.fault


@dataclass(frozen=True)
class CaseAnswer:
    """The answer to one case."""

    case: Case
    judgements: Sequence[Judgement]
    provenance: Provenance = field(default_factory=Provenance)
    error: str = ""
    """The error of a failed call. Empty: the judge answered."""
    error_reason: ErrorReason.ValueType = ErrorReason.ERROR_REASON_UNSPECIFIED
    """The reason of ``error``."""
    orders: tuple[bool, ...] = ()
    """Whether the two orders agree, for each vote of a comparison."""

    @property
    def found_no_model(self) -> bool:
        """Whether nothing was judged because no model can be called: its server, key, name or credit."""
        reasons = {judgement.abstain_reason for judgement in self.judgements}
        return self.error_reason in _NO_MODEL or reasons == {"PROVIDER_UNAVAILABLE"}


@dataclass(frozen=True)
class Connections:
    """The judges."""

    gateway: grpc.aio.Channel | None
    """A gateway that forwards calls to judges."""
    judges: Mapping[str, grpc.aio.Channel] = field(default_factory=dict)
    """Judges that are called directly, by role."""
    panel: JudgeSelection | None = None
    """The panel of the gateway that judges texts in place of a judge. None: none."""

    def channel(self, role: str) -> grpc.aio.Channel:
        """The channel for a role."""
        channel = self.judges.get(role, self.gateway)
        assert channel is not None
        return channel


async def ask_all(
    cases: Sequence[Case],
    connections: Connections,
    options: JudgeOptions,
    *,
    concurrency: int,
    timeout: float,
    rules: pairs_pb.ComparisonRules | None = None,
) -> list[CaseAnswer]:
    """Asks about cases, and returns the answers in the order of the cases.

    Args:
        cases: The cases.
        connections: The judges.
        options: The model and its sampling.
        concurrency: The maximum number of concurrent requests.
        timeout: The time limit of a request, in seconds.
        rules: The rules of the votes of comparisons. None: the default.
    """
    slots = asyncio.Semaphore(concurrency)

    async def ask(case: Case) -> CaseAnswer:
        async with slots:
            try:
                return await _ask(case, connections, options, rules, timeout)
            except ServiceError as error:
                return _failed(case, error)
            except grpc.aio.AioRpcError as error:
                return _failed(case, from_rpc_error(error))

    return list(await asyncio.gather(*map(ask, cases)))


async def _ask(
    case: Case,
    connections: Connections,
    options: JudgeOptions,
    rules: pairs_pb.ComparisonRules | None,
    timeout: float,
) -> CaseAnswer:
    request = type(case.request)()
    request.MergeFrom(case.request)  # type: ignore[arg-type]
    request.options.CopyFrom(options)
    channel = connections.channel(case.judge)
    call: dict[str, Any] = {"timeout": timeout, "metadata": ((ROLE_METADATA, case.judge),)}
    if isinstance(request, JudgeRequest):
        judged = CANDIDATE if len(request.candidates) > 1 else request.candidates[0].id
        if connections.panel is not None:
            panel = connections.panel
            answer = panel_assessment(channel, panel, request, candidate_id=judged, timeout=timeout)
            return _assessed(case, request, await answer)
        return _assessed(case, request, await judge_one(channel, request, candidate_id=judged, **call))
    if isinstance(request, pairs_pb.ComparePairRequest):
        request.rules.CopyFrom(rules or request.rules)
        return _compared(case, await PairJudgeServiceStub(channel).ComparePair(request, **call))
    if isinstance(request, FindChallengingTurnRequest):
        found = await ChallengeJudgeServiceStub(channel).FindChallengingTurn(request, **call)
        reported = found.turn == case.value if case.value else found.turn > 0
        return CaseAnswer(case, [_judgement(case, TURN, reported, found.abstain_reason)], found.provenance)
    if isinstance(request, RateReplyRequest):
        return _rated(case, (await RatingJudgeServiceStub(channel).RateReply(request, **call)).rating)
    if isinstance(request, ChooseOptionRequest):
        return await _chosen(case, AuthoringServiceStub(channel), request, call)
    text, provenance = await written(channel, request, **call)
    judgements = [
        _judgement(case, item, contains(case, text, item), UNSTATED, text.failure) for item in case.faults
    ]
    return CaseAnswer(case, judgements, provenance)


def _assessed(case: Case, request: JudgeRequest, assessment: Assessment) -> CaseAnswer:
    verdicts = {verdict.criterion: verdict for verdict in assessment.verdicts}
    scales = {one.id: one.scale for one in request.criteria if one.HasField("scale")}
    judgements = []
    for item in case.faults:
        verdict = verdicts.get(item)
        if verdict is None:
            judgements.append(_judgement(case, item, None, AbstainReason.ABSTAIN_REASON_NOT_SUPPORTED))
            continue
        reported = verdict.outcome == Outcome.OUTCOME_FAIL
        if verdict.outcome == Outcome.OUTCOME_SCORED and item in scales:
            lowest, highest = scales[item].lowest, scales[item].highest
            place = (verdict.score - lowest) / (highest - lowest)
            reported = place <= LOW if case.faults[item] else place < HIGH
        judgements.append(_judgement(case, item, reported, verdict.abstain_reason))
    return CaseAnswer(case, judgements, assessment.provenance)


def _rated(case: Case, rating: Rating) -> CaseAnswer:
    faulty = rating.value <= FAULTY_AT_MOST if case.faults[RATING] else rating.value < FLAWLESS_AT_LEAST
    return CaseAnswer(case, [_judgement(case, RATING, faulty, rating.abstain_reason)], rating.provenance)


async def _chosen(
    case: Case, author: Any, request: ChooseOptionRequest, call: Mapping[str, Any]
) -> CaseAnswer:
    """Puts a decision in both orders of its options."""
    judgements, choices, provenance = [], [], []
    for item, is_swapped in ((CHOICE, False), (CHOICE_SWAPPED, True)):
        request.options_swapped = is_swapped
        answer = await author.ChooseOption(request, **call)
        reported = answer.choice == case.value if case.faults[item] else answer.choice != case.value
        judgements.append(_judgement(case, item, reported, answer.abstain_reason))
        choices.append(answer.choice)
        provenance.append(answer.provenance)
    both = all(judgement.reported is not None for judgement in judgements)
    orders = (choices[0] == choices[1],) if both else ()
    return CaseAnswer(case, judgements, merge(provenance), orders=orders)


def _compared(case: Case, compared: pairs_pb.ComparePairResponse) -> CaseAnswer:
    """The better text stands first in the request; of two equal ones neither may be preferred."""
    preferred = (
        compared.preference == pairs_pb.PREFERENCE_FIRST
        if case.faults[PREFERENCE]
        else compared.preference in (pairs_pb.PREFERENCE_FIRST, pairs_pb.PREFERENCE_SECOND)
    )
    cast = [vote for vote in compared.votes if vote.preference != pairs_pb.PREFERENCE_ABSTAIN]
    reason = UNSTATED
    if not cast and compared.votes:
        reason = compared.votes[0].abstain_reason
    return CaseAnswer(
        case,
        [_judgement(case, PREFERENCE, preferred, reason)],
        compared.provenance,
        orders=tuple(not vote.inconsistent for vote in cast),
    )


def _judgement(
    case: Case, item: str, reported: bool | None, reason: AbstainReason.ValueType, error: str = ""
) -> Judgement:
    named = error or reason_name(reason)
    return Judgement(
        case=case.id,
        item=item,
        fault=case.faults[item],
        reported=None if named else reported,
        abstain_reason=named,
        language=case.language,
        injected=case.injected,
    )


def _failed(case: Case, error: ServiceError) -> CaseAnswer:
    judgements = [_judgement(case, item, None, UNSTATED, error.code.name) for item in case.faults]
    return CaseAnswer(
        case, judgements, error=f"{error.code.name}: {error.message}", error_reason=error.reason
    )


def describe(judgement: Judgement) -> dict[str, Any]:
    """A judgement as a JSON object."""
    return {
        "case": judgement.case,
        "item": judgement.item,
        "fault": judgement.fault,
        "reported": judgement.reported,
        "abstain_reason": judgement.abstain_reason,
        "language": judgement.language,
        "injected": judgement.injected,
    }
