"""The judge of pairs with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge import VERSION
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import merge
from dramaturg.service.concurrency import gather_all
from services.judging.pairs.prompts_by_kind import PairPrompts
from services.judging.pairs.rounds import Round
from services.judging.pairs.settings import PairLimits
from services.judging.pairs.votes import combine, vote

_BOTH = (pb.PRESENTATION_ORDER_AS_GIVEN, pb.PRESENTATION_ORDER_SWAPPED)
_ORDERS = {
    pb.PRESENTATION_ORDER_UNSPECIFIED: _BOTH,
    pb.PRESENTATION_ORDER_BOTH: _BOTH,
    pb.PRESENTATION_ORDER_AS_GIVEN: _BOTH[:1],
    pb.PRESENTATION_ORDER_SWAPPED: _BOTH[1:],
}


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
            ServiceError: The model's configuration fails every request.
        """
        rounds = [
            Round(self._asker, self._prompts, self._limits, request, order, logprobs=self._logprobs)
            for order in _ORDERS[request.order]
        ]
        answered = await gather_all([one.play() for one in rounds])
        roles: Sequence[pb.Role | None] = request.roles or [None]
        ballots = zip(*(one.ballots for one in answered), strict=True)
        response = combine([vote(role, own) for role, own in zip(roles, ballots, strict=True)])
        response.provenance.CopyFrom(merge([one.provenance for one in answered]))
        return response
