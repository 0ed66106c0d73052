"""One order of the texts: one call for all roles, and a second call for roles without a clear vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge.llm import Asker, Question
from dramaturg.judge.provenance import merge
from services.judging.pairs.confidences import confidences
from services.judging.pairs.form import BatchForm, SingleForm
from services.judging.pairs.presentation import ROLES, present, roles_excerpt
from services.judging.pairs.prompts_by_kind import PairPrompts
from services.judging.pairs.settings import PairLimits
from services.judging.pairs.votes import ballot

_UNCLEAR = frozenset({verdict_pb2.ABSTAIN_REASON_UNPARSABLE, verdict_pb2.ABSTAIN_REASON_CONTRADICTORY})


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
