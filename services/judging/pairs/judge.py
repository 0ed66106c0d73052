"""The judge of pairs: compares two texts, alone or in several roles, in one or both orders.

A round is one order of the texts: one call for all roles, and a second call for roles without a clear vote.
The votes of all rounds are combined as in DRPE (equations 1 to 4).

The prompt of each kind of request has its texts fenced, with neutral labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc as pb_grpc
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, Role
from dramaturg.judge import VERSION
from dramaturg.judge.contracts import request_contract
from dramaturg.judge.excerpts import DialogueLimits, Excerpt, dialogue_excerpt, require_turns, task_excerpt
from dramaturg.judge.fence import fence, list_items
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, Question
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import merge
from dramaturg.judge.role_sets import combine_votes
from dramaturg.judge.roles import PAIR_JUDGE
from dramaturg.judge.spec import JudgeSettings, JudgeSpec, Model
from dramaturg.service.contract import Contract
from dramaturg.service.errors import invalid
from dramaturg.service.threads import gather_all
from services.judging.pairs.form import (
    FIRST_SHOWN,
    NEITHER,
    SECOND_SHOWN,
    BatchForm,
    Reading,
    SingleForm,
    Vote,
    confidences,
)

SOURCE, TASK, DIALOGUE = "source", "task", "dialogue"
"""The placeholders of the context that the texts were written for."""
INSTRUCTION, TEXT_1, TEXT_2, ROLES = "instruction", "text_1", "text_2", "roles"
"""The placeholders of the instruction to the writers, the texts in the order shown, and the roles."""

_TEXTS, _REPLIES = "compare_texts", "compare_replies"
_RULES, _REMINDER = "rules", "reminder"
_VOTING = "voting"
_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN = "tie", "forced_choice", "bias_caution", "again"
_PARTS = (_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN)
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


class PairLimits(DialogueLimits):
    """The maximum length of each part of a request in the prompt, in characters. Longer parts are truncated.

    Both texts are truncated to the same length, so that truncation favours neither.
    """

    source: int = Field(default=100_000, ge=1000)
    """The source text."""
    instruction: int = Field(default=20_000, ge=100)
    """The instruction to the writers."""
    text: int = Field(default=50_000, ge=1000)
    """Each of the two texts. For replies to a dialogue ``response`` applies."""
    roles: int = Field(default=100_000, ge=1000)
    """All roles together."""


def continues_dialogue(request: ComparePairRequest) -> bool:
    """Whether the texts are replies to a dialogue. Otherwise they have a source text or no context."""
    return request.WhichOneof("subject") == "dialogue"


def present(request: ComparePairRequest, limits: PairLimits, *, swapped: bool) -> dict[str, Excerpt]:
    """Returns the excerpts of a request by placeholder, except the roles.

    Args:
        request: The request.
        limits: The maximum lengths of the excerpts.
        swapped: Whether the second text is shown first.
    """
    shown = _subject(request, limits)
    shown[INSTRUCTION] = _optional("instruction", request.instruction, limits.instruction)
    limit = limits.response if continues_dialogue(request) else limits.text
    texts = [("first", request.first), ("second", request.second)]
    for number, (name, text) in enumerate(reversed(texts) if swapped else texts, start=1):
        fenced = fence(f"text {number}", text, limit=limit)
        # Prompts label a text by its place, provenance by its name in the request.
        shown[f"text_{number}"] = Excerpt((replace(fenced, label=name),))
    return shown


def roles_excerpt(roles: Sequence[Role], limits: PairLimits) -> Excerpt:
    """The roles, numbered from 1. They are instructions, not material, and stand in no fence."""
    lines = [f"{role.type}: {role.description}" for role in roles]
    return Excerpt((list_items("roles", "Role", lines, limit=limits.roles),))


@dataclass(frozen=True)
class Wording:
    """A prompt with the values of its fixed placeholders."""

    prompt: Prompt
    values: Mapping[str, str]
    """The values of the placeholders that do not come from the content of the request."""
    parameters: Mapping[str, str]
    """The rules that differ from the default, for provenance."""


class PairPrompts:
    """The prompts by kind of comparison, with or without roles.

    Args:
        library: The prompt files.

    Raises:
        PromptError: A prompt file cannot be used.
    """

    def __init__(self, library: PromptLibrary) -> None:
        subjects = {_TEXTS: (SOURCE,), _REPLIES: (TASK, DIALOGUE)}
        self._alone = {kind: _load(library, kind, *subject) for kind, subject in subjects.items()}
        self._by_roles = {
            kind: _load(library, f"{kind}_by_roles", *subject, ROLES) for kind, subject in subjects.items()
        }

    def choose(self, request: ComparePairRequest, *, again: bool) -> Wording:
        """Chooses the prompt of a request.

        Args:
            request: The request.
            again: Whether an earlier answer lacked votes. The prompt then says so, which also avoids the
                cached answer to an equal prompt.
        """
        prompts = self._by_roles if request.roles else self._alone
        prompt = prompts[_REPLIES if continues_dialogue(request) else _TEXTS]
        rules = [] if request.rules.bias_caution_omitted else [_BIAS_CAUTION]
        rules.append(_FORCED_CHOICE if request.rules.forced_choice else _TIE)
        values = {
            _RULES: " ".join(prompt.parts[rule] for rule in rules),
            _REMINDER: prompt.parts[_AGAIN] if again else "",
        }
        parameters = {field.name: "true" for field, _ in request.rules.ListFields()}
        return Wording(prompt, values, parameters)


def _subject(request: ComparePairRequest, limits: PairLimits) -> dict[str, Excerpt]:
    if not continues_dialogue(request):
        return {SOURCE: _optional("source", request.source, limits.source)}
    subject = request.dialogue
    return {
        TASK: task_excerpt(subject.task, subject.utterances, limits),
        DIALOGUE: dialogue_excerpt(subject.utterances, limits),
    }


def _optional(label: str, text: str, limit: int) -> Excerpt:
    return Excerpt((fence(label, text, limit=limit),) if text.strip() else ())


def _load(library: PromptLibrary, name: str, *subject: str) -> Prompt:
    return library.load(
        name,
        fixed=(_RULES, _REMINDER, ANSWER_PLACEHOLDER),
        content=(*subject, INSTRUCTION, TEXT_1, TEXT_2),
        parts=_PARTS,
        parts_from=_VOTING,
    )


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
        response = combine_votes([vote(role, own) for role, own in zip(asked, ballots, strict=True)])
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
