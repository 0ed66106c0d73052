"""The judge of pairs: compares two texts, alone or in several roles, in one or both orders.

A round is one order of the texts: one call for all roles, and a second call for roles without a clear vote.
The votes of all rounds are combined as in DRPE (equations 1 to 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge import VERSION
from dramaturg.judge.contracts import request_contract
from dramaturg.judge.dialogues import require_turns
from dramaturg.judge.llm import Asker, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import merge
from dramaturg.judge.roles import PAIR_JUDGE
from dramaturg.judge.settings import JudgeSettings
from dramaturg.judge.spec import JudgeSpec, Model
from dramaturg.service.concurrency import gather_all
from dramaturg.service.contract import Contract
from dramaturg.service.errors import invalid
from services.judging.pairs.confidences import confidences
from services.judging.pairs.form import (
    FIRST_SHOWN,
    NEITHER,
    SECOND_SHOWN,
    BatchForm,
    Reading,
    SingleForm,
    Vote,
)
from services.judging.pairs.presentation import (
    ROLES,
    PairLimits,
    PairPrompts,
    continues_dialogue,
    present,
    roles_excerpt,
)

_BOTH = (pb.PRESENTATION_ORDER_AS_GIVEN, pb.PRESENTATION_ORDER_SWAPPED)
_ORDERS = {
    pb.PRESENTATION_ORDER_UNSPECIFIED: _BOTH,
    pb.PRESENTATION_ORDER_BOTH: _BOTH,
    pb.PRESENTATION_ORDER_AS_GIVEN: _BOTH[:1],
    pb.PRESENTATION_ORDER_SWAPPED: _BOTH[1:],
}
_UNCLEAR = frozenset({verdict_pb2.ABSTAIN_REASON_UNPARSABLE, verdict_pb2.ABSTAIN_REASON_CONTRADICTORY})
_AS_GIVEN = {
    FIRST_SHOWN: pb.PREFERENCE_FIRST,
    SECOND_SHOWN: pb.PREFERENCE_SECOND,
    NEITHER: pb.PREFERENCE_TIE,
}
_SWAPPED = {
    FIRST_SHOWN: pb.PREFERENCE_SECOND,
    SECOND_SHOWN: pb.PREFERENCE_FIRST,
    NEITHER: pb.PREFERENCE_TIE,
}


class PairJudgeSettings(JudgeSettings[PairLimits]):
    """Settings of the judge of pairs."""

    logprobs: bool = True
    """Whether log-probabilities, the basis of confidences, are requested. Some endpoints refuse such
    requests.
    """


class LlmPairJudge:
    """Compares pairs with one model, in all roles or without a role.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
        logprobs: Whether log-probabilities, the basis of confidences, are requested.
    """

    name: str = "llm-pair-judge"
    version: str = VERSION
    description: str = "Has a language model compare two texts, alone or in many roles at once."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(
        self, asker: Asker, library: PromptLibrary, limits: PairLimits, *, logprobs: bool = True
    ) -> None:
        self._asker = asker
        self._prompts = PairPrompts(library)
        self._limits = limits
        self._logprobs = logprobs

    async def compare(self, request: pb.ComparePairRequest) -> pb.ComparePairResponse:
        """Compares the two texts, in both orders concurrently if both are requested.

        Raises:
            ServiceError: The order is unknown, the utterances of a dialogue do not end with the user's, or
                the model's configuration fails every request.
        """
        if request.order not in _ORDERS:
            raise invalid("order", f"is {request.order}, which is not known")
        if continues_dialogue(request):
            utterances = request.dialogue.utterances
            require_turns(utterances, last=dialogue_pb2.SPEAKER_USER, path="dialogue.utterances")
        rounds = [
            Round(self._asker, self._prompts, self._limits, request, order, logprobs=self._logprobs)
            for order in _ORDERS[request.order]
        ]
        answered = await gather_all([one.play() for one in rounds])
        asked: Sequence[pb.Role | None] = request.roles or [None]
        ballots = zip(*(one.ballots for one in answered), strict=True)
        response = combine([vote(role, own) for role, own in zip(asked, ballots, strict=True)])
        response.provenance.CopyFrom(merge([one.provenance for one in answered]))
        return response


@dataclass(frozen=True)
class Answered:
    """The result of one call."""

    ballots: tuple[pb.Ballot, ...]
    """One reading for each role asked, in order; one reading without roles."""
    provenance: Provenance
    """The prompts, calls, cost and parameters."""
    readable: bool = True
    """Whether the answer is readable, so that a second call for missing votes is useful."""


class Round:
    """A request in one order.

    Args:
        asker: Asks the model.
        prompts: The prompts.
        limits: The maximum lengths of the parts of the request in the prompt.
        request: The request.
        order: The order, as given or swapped.
        logprobs: Whether log-probabilities, the basis of confidences, are requested.
    """

    def __init__(
        self,
        asker: Asker,
        prompts: PairPrompts,
        limits: PairLimits,
        request: pb.ComparePairRequest,
        order: pb.PresentationOrder.ValueType,
        *,
        logprobs: bool,
    ) -> None:
        self._asker = asker
        self._prompts = prompts
        self._limits = limits
        self._request = request
        self._order = order
        self._logprobs = logprobs
        self._shown = present(request, limits, swapped=order == pb.PRESENTATION_ORDER_SWAPPED)

    async def play(self) -> Answered:
        """Asks for the votes of all roles, and once more for missing or unclear votes.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        roles = self._request.roles
        answered = await self._ask(roles, again=False)
        unclear = [place for place, one in enumerate(answered.ballots) if one.abstain_reason in _UNCLEAR]
        if not unclear or not answered.readable:
            return answered
        repaired = await self._ask([roles[place] for place in unclear] if roles else (), again=True)
        ballots = list(answered.ballots)
        for place, one in zip(unclear, repaired.ballots, strict=True):
            ballots[place] = one
        return Answered(tuple(ballots), merge([answered.provenance, repaired.provenance]))

    async def _ask(self, roles: Sequence[pb.Role], *, again: bool) -> Answered:
        wording = self._prompts.choose(self._request, again=again)
        shown = {**self._shown, ROLES: roles_excerpt(roles, self._limits)} if roles else self._shown
        ties = not self._request.rules.forced_choice
        form = BatchForm(len(roles), ties) if roles else SingleForm(ties)
        answer = await self._asker.ask_or_abstain(
            Question(wording.prompt, shown, form, wording.values),
            self._request.options,
            logprobs=self._logprobs,
        )
        answer.provenance.parameters.update(wording.parameters)
        if answer.abstention is not None:
            ballots = (ballot(self._order, answer.abstention),) * max(1, len(roles))
            return Answered(ballots, answer.provenance, readable=False)
        readings = answer.value or []
        known = confidences(answer.completion, readings, numbered=bool(roles))
        ballots = tuple(ballot(self._order, *pair) for pair in zip(readings, known, strict=True))
        return Answered(ballots, answer.provenance)


def ballot(
    order: pb.PresentationOrder.ValueType, reading: Reading, confidence: float | None = None
) -> pb.Ballot:
    """Makes the ballot of a role in one order, in terms of the request's first and second text."""
    if not isinstance(reading, Vote):
        return pb.Ballot(
            order=order,
            preference=pb.PREFERENCE_ABSTAIN,
            rationale=reading.explanation,
            abstain_reason=reading.reason,
        )
    preferences = _SWAPPED if order == pb.PRESENTATION_ORDER_SWAPPED else _AS_GIVEN
    return pb.Ballot(
        order=order,
        preference=preferences[reading.choice],
        rationale=reading.reason.strip(),
        confidence=confidence,
    )


def vote(role: pb.Role | None, ballots: Sequence[pb.Ballot]) -> pb.RoleVote:
    """Returns a role's vote over all orders: the agreed preference, else a tie. An abstention is kept."""
    abstention = next((one for one in ballots if one.preference == pb.PREFERENCE_ABSTAIN), None)
    if abstention is not None:
        return pb.RoleVote(
            role=role,
            preference=pb.PREFERENCE_ABSTAIN,
            abstain_reason=abstention.abstain_reason,
            ballots=ballots,
        )
    inconsistent = len({one.preference for one in ballots}) > 1
    return pb.RoleVote(
        role=role,
        preference=pb.PREFERENCE_TIE if inconsistent else ballots[0].preference,
        ballots=ballots,
        inconsistent=inconsistent,
        confidence=_mean_confidence(ballots),
    )


def combine(votes: Sequence[pb.RoleVote]) -> pb.ComparePairResponse:
    """Combines the votes into the response, without provenance."""
    cast = [one for one in votes if one.preference != pb.PREFERENCE_ABSTAIN]
    if not cast:
        return pb.ComparePairResponse(votes=votes, preference=pb.PREFERENCE_ABSTAIN)
    first = [one for one in cast if one.preference == pb.PREFERENCE_FIRST]
    second = [one for one in cast if one.preference == pb.PREFERENCE_SECOND]
    preference = pb.PREFERENCE_TIE
    if len(first) != len(second):
        preference = pb.PREFERENCE_FIRST if len(first) > len(second) else pb.PREFERENCE_SECOND
    ties = len(cast) - len(first) - len(second)
    scored = all(one.HasField("confidence") for one in cast)
    return pb.ComparePairResponse(
        votes=votes,
        preference=preference,
        first_drpe_score=_drpe_score(first) if scored else None,
        second_drpe_score=_drpe_score(second) if scored else None,
        first_vote_share=(len(first) + ties / 2) / len(cast),
    )


def _drpe_score(votes: Iterable[pb.RoleVote]) -> float:
    """Equation 4: the sum of the confidences, which all votes have."""
    return math.fsum(one.confidence for one in votes)


def _mean_confidence(ballots: Sequence[pb.Ballot]) -> float | None:
    if not all(one.HasField("confidence") for one in ballots):
        return None
    return math.fsum(one.confidence for one in ballots) / len(ballots)


def _llm(model: Model[PairJudgeSettings]) -> Contract:
    settings = model.settings
    judge = LlmPairJudge(model.asker, model.library, settings.excerpts, logprobs=settings.logprobs)
    return request_contract(
        pb.DESCRIPTOR.services_by_name["PairJudgeService"],
        pb_grpc.add_PairJudgeServiceServicer_to_server,
        judge,
        judge.compare,
    )


SPEC = JudgeSpec(
    role=PAIR_JUDGE,
    prompts=Path(__file__).parent / "prompts",
    settings=PairJudgeSettings,
    llm=_llm,
)
