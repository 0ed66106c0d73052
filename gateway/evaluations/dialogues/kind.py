"""The kind ``dialogues`` (SimulBench, section 2.5): every model continues one script, and replies are judged.

Replies are rated, compared and, on request, scored for an attribute, for example toxicity. A reply that
abstains is not judged: its ratings, comparisons and scores abstain for its reason. A refusal has the lowest
rating without a judge; a reply that is cut off or empty is judged as it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    EvaluateDialoguesRequest,
    EvaluateDialoguesResponse,
    GivenReply,
    ModelPair,
    ModelReply,
    ReplyComparison,
    ReplyRating,
    ReplyScore,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyRequest, ReplyResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    ComparePairRequest,
    ComparePairResponse,
    DialogueSubject,
    Preference,
    RoleVote,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.api.judging.v1.rating_judge_service_pb2_grpc import RatingJudgeServiceStub
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse, TextScore
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.judge.excerpts import require_turns
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR, PAIR_JUDGE, RATING_JUDGE, TEXT_SCORER
from dramaturg.kinds.dialogues import DIALOGUES
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from dramaturg.service.validation import check_distinct
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.checks import check_alone
from gateway.evaluations.dialogues.summary import DialoguesKindSummary
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.kind import WRITTEN_CHARACTERS, PlannedCalls, RunKind, text_length
from gateway.evaluations.repeats import combine_comparisons, combine_ratings, repeated
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.registry import Registry
from gateway.judges.selection import (
    JudgeAssignment,
    Shadow,
    check_selections,
    counted_shadows,
    select_judges,
    select_shadows,
)

LOWEST, HIGHEST = 1, 10
"""The ends of the rating scale (SimulBench, section 2.5)."""

_PREFERENCES = frozenset(
    {
        pair_judge_service_pb2.PREFERENCE_FIRST,
        pair_judge_service_pb2.PREFERENCE_SECOND,
        pair_judge_service_pb2.PREFERENCE_TIE,
        pair_judge_service_pb2.PREFERENCE_ABSTAIN,
    }
)


@dataclass(frozen=True)
class DialoguesPlan:
    """A valid request and its judges."""

    request: EvaluateDialoguesRequest
    author: JudgeAssignment | None
    """The author of the replies. None where the request holds all replies."""
    rating_judges: tuple[JudgeAssignment, ...]
    """The judges that rate each reply. Empty where ratings are omitted."""
    pair_judges: tuple[JudgeAssignment, ...]
    """The judges that compare each pair. Empty without pairs."""
    text_scorers: tuple[JudgeAssignment, ...]
    """The scorers of each reply. Empty where no scores are requested."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the judges of ratings and pairs."""

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        replies = len(self.request.models) + len(self.request.replies)
        authors = [self.author] if self.author else []
        assignments = [*authors, *self.rating_judges, *self.pair_judges, *self.text_scorers]
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in assignments],
            assessment_count=replies * (1 + len(self.rating_judges) + len(self.text_scorers))
            + len(self.request.pairs) * len(self.pair_judges),
        )


def plan_dialogues(request: EvaluateDialoguesRequest, registry: Registry) -> DialoguesPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    needed = {
        AUTHOR: request.models,
        RATING_JUDGE: not request.ratings_omitted,
        PAIR_JUDGE: request.pairs,
        TEXT_SCORER: request.replies_scored,
    }
    roles = tuple(role for role, is_needed in needed.items() if is_needed)
    violations = [
        *_check_script(request),
        *_check_replies(request),
        *_check_pairs(request),
        *check_selections(request.judges, roles, registry.roles),
        *check_alone(request.judges, (AUTHOR,)),
    ]
    if violations:
        raise invalid_fields(violations)
    assignments = select_judges(request.judges, roles, registry, request.options.model)
    return DialoguesPlan(
        request,
        next((assignment for assignment in assignments if assignment.role == AUTHOR), None),
        tuple(assignment for assignment in assignments if assignment.role == RATING_JUDGE),
        tuple(assignment for assignment in assignments if assignment.role == PAIR_JUDGE),
        tuple(assignment for assignment in assignments if assignment.role == TEXT_SCORER),
        select_shadows(
            request.shadows, [one for one in assignments if one.role in (RATING_JUDGE, PAIR_JUDGE)], registry
        ),
    )


def _check_script(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    try:
        require_turns(request.script.utterances, last=dialogue_pb2.SPEAKER_USER, path="script.utterances")
    except ServiceError as error:
        yield from error.violations


def _check_replies(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    if not request.models and not request.replies:
        yield Violation("models", "must name a model, or replies must not be empty")
    yield from check_distinct("models", request.models)
    seen = set(request.models)
    for index, reply in enumerate(request.replies):
        if reply.model in seen:
            yield Violation(f"replies[{index}].model", f"is {reply.model!r}, which already has a reply")
        seen.add(reply.model)


def _check_pairs(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    known = {*request.models, *(reply.model for reply in request.replies)}
    seen: set[frozenset[str]] = set()
    for index, pair in enumerate(request.pairs):
        models = frozenset({pair.first_model, pair.second_model})
        for field in ("first_model", "second_model"):
            if (model := getattr(pair, field)) not in known:
                yield Violation(
                    f"pairs[{index}].{field}", f"is {model!r}, which is not among the models and replies"
                )
        if len(models) == 1:
            yield Violation(f"pairs[{index}]", "compares a model with itself")
        elif models in seen:
            yield Violation(f"pairs[{index}]", "repeats an earlier pair: each is judged in both orders")
        seen.add(models)


def no_rating(reason: AbstainReason.ValueType, rationale: str) -> Rating:
    """Returns a rating that abstains."""
    return Rating(abstain_reason=reason, rationale=rationale)


def refusal_rating() -> Rating:
    """Returns the rating of a refusal, which no judge makes."""
    return Rating(value=LOWEST, rationale="The model refused to reply.")


def refusal_preference(first: bool, second: bool) -> Preference.ValueType:
    """The preference between two replies of which at least one is a refusal.

    Args:
        first: Whether the first reply is a refusal.
        second: Whether the second reply is a refusal.
    """
    if first and second:
        return pair_judge_service_pb2.PREFERENCE_TIE
    return pair_judge_service_pb2.PREFERENCE_SECOND if first else pair_judge_service_pb2.PREFERENCE_FIRST


def normalize_rating(answer: RateReplyResponse | Failure, assignment: JudgeAssignment) -> Rating:
    """The rating of an answer. A rating that is missing, off the scale or contradictory abstains."""
    if isinstance(answer, Failure):
        return no_rating(answer.reason, f"The judge {assignment.judge.name!r} {answer.explanation}.")
    answer.rating.provenance.registered_name = assignment.judge.name
    answer.rating.ClearField("measured_confidence")  # the gateway's word
    _normalize_value(answer.rating, LOWEST, HIGHEST)
    return answer.rating


def normalize_score(
    answer: ScoreTextsResponse | Failure, assignment: JudgeAssignment, model: str
) -> ReplyScore:
    """The score of one reply. It abstains where a rating would, and without exactly one score.

    Args:
        answer: The answer of the scorer.
        assignment: The assignment of the scorer.
        model: The model that replied.
    """
    scored = ReplyScore(model=model, judge=assignment.judge.name)
    if isinstance(answer, Failure):
        scored.score.abstain_reason = answer.reason
        return scored
    scored.attribute = answer.attribute
    scored.provenance.CopyFrom(answer.provenance)
    scored.provenance.registered_name = assignment.judge.name
    if len(answer.scores) == 1:
        scored.score.CopyFrom(answer.scores[0])
    _normalize_value(scored.score, 0, 1)
    return scored


def _normalize_value(judgement: Rating | TextScore, lowest: float, highest: float) -> None:
    problem = None
    if judgement.HasField("value") and judgement.abstain_reason:
        problem = verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    elif judgement.HasField("value"):
        # Also false for NaN.
        problem = None if lowest <= judgement.value <= highest else verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    elif not judgement.abstain_reason:
        problem = verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    if problem is not None:
        judgement.ClearField("value")
        judgement.abstain_reason = problem


def no_comparison(reason: AbstainReason.ValueType) -> ComparePairResponse:
    """Returns a comparison that abstains."""
    abstain = pair_judge_service_pb2.PREFERENCE_ABSTAIN
    return ComparePairResponse(
        preference=abstain, votes=[RoleVote(preference=abstain, abstain_reason=reason)]
    )


def normalize_comparison(
    answer: ComparePairResponse | Failure, assignment: JudgeAssignment
) -> ComparePairResponse:
    """The comparison of an answer. A comparison without a preference abstains."""
    if isinstance(answer, Failure):
        return no_comparison(answer.reason)
    comparison = answer
    if answer.preference not in _PREFERENCES:
        comparison = no_comparison(verdict_pb2.ABSTAIN_REASON_UNPARSABLE)
        comparison.provenance.CopyFrom(answer.provenance)
    comparison.provenance.registered_name = assignment.judge.name
    return comparison


Replies = Mapping[str, asyncio.Task[ModelReply]]


class DialoguesEvaluation(Evaluation[DialoguesPlan]):
    """The evaluation of one test script.

    A rating or score waits for its reply, a comparison for its two replies. A failure affects no other
    judgement. Judges are not told the authors of the replies.
    """

    response_type = EvaluateDialoguesResponse

    def __init__(self, plan: DialoguesPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._shadows = ShadowCalls(plan.shadows, scope)

    async def work(self, emit: Emit) -> DialogueResult:
        wait = self._plan.request.shadow_wait.ToNanoseconds() / 1e9
        return await self._shadows.beside(self._evaluate(emit), wait, judged=lambda result: result.shadows)

    async def _evaluate(self, emit: Emit) -> DialogueResult:
        request = self._plan.request
        async with asyncio.TaskGroup() as group:
            replies: Replies = {
                **{model: group.create_task(self._reply(model, emit)) for model in request.models},
                **{given.model: group.create_task(_take(given, emit)) for given in request.replies},
            }
            ratings = [
                group.create_task(self._rate(assignment, place, replies[model], emit))
                for place, model in enumerate(replies)
                for assignment in self._plan.rating_judges
            ]
            comparisons = [
                group.create_task(self._compare(assignment, place, pair, replies, emit))
                for place, pair in enumerate(request.pairs)
                for assignment in self._plan.pair_judges
            ]
            scores = [
                group.create_task(self._score(assignment, replies[model], emit))
                for model in replies
                for assignment in self._plan.text_scorers
            ]
        result = DialogueResult(
            script=request.script,
            tags=request.tags,
            replies=[task.result() for task in replies.values()],
            ratings=[task.result() for task in ratings],
            comparisons=[task.result() for task in comparisons],
            scores=[task.result() for task in scores],
        )
        provenances = [
            *(reply.provenance for reply in result.replies),
            *(rated.rating.provenance for rated in result.ratings),
            *(compared.comparison.provenance for compared in result.comparisons),
            *(scored.provenance for scored in result.scores),
        ]
        result.usage.CopyFrom(total_usage(provenance.usage for provenance in provenances))
        return result

    async def _reply(self, model: str, emit: Emit) -> ModelReply:
        request, assignment = self._plan.request, self._plan.author
        assert assignment is not None
        options = JudgeOptions(model=model, repeat_index=request.options.repeat_index)
        if request.HasField("sampling"):
            options.sampling.CopyFrom(request.sampling)
        asked = ReplyRequest(utterances=request.script.utterances, options=options)
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, self._scope, stub.Reply, asked, ReplyResponse)
        if isinstance(answer, Failure):
            reply = ModelReply(model=model, abstain_reason=answer.reason)
        else:
            reply = ModelReply(
                model=model,
                text=answer.text,
                abstain_reason=answer.abstain_reason,
                provenance=answer.provenance,
            )
            reply.provenance.registered_name = assignment.judge.name
            if is_model_failure(reply.abstain_reason, abstains=request.unusable_outputs_abstain):
                reply.failure_reason = reply.abstain_reason
                reply.ClearField("abstain_reason")
        emit(reply=reply)
        return reply

    async def _rate(
        self, assignment: JudgeAssignment, place: int, replied: asyncio.Task[ModelReply], emit: Emit
    ) -> ReplyRating:
        script = self._plan.request.script
        reply = await replied
        rated = ReplyRating(model=reply.model, judge=assignment.judge.name)
        if reply.abstain_reason:
            rated.rating.CopyFrom(no_rating(reply.abstain_reason, "There is no reply to rate."))
        elif _is_refusal(reply):
            rated.rating.CopyFrom(refusal_rating())
        else:

            async def rate_once(judge: JudgeAssignment, scope: EvaluationScope) -> Rating:
                asked = RateReplyRequest(
                    task=script.task,
                    utterances=script.utterances,
                    response=reply.text,
                    options=judge_options(judge, self._plan.request),
                )
                stub = RatingJudgeServiceStub(judge.judge.channel)
                answer = await ask(judge, scope, stub.RateReply, asked, RateReplyResponse)
                return normalize_rating(answer, judge)

            async def rate(judge: JudgeAssignment, scope: EvaluationScope) -> Rating:
                options = self._plan.request.options
                return await repeated(judge, options, lambda one: rate_once(one, scope), combine_ratings)

            answer = await self._shadows.judged(assignment, rate, "rating", place, model=reply.model)
            rated.rating.CopyFrom(answer)
        emit(rating=rated)
        return rated

    async def _score(
        self, assignment: JudgeAssignment, replied: asyncio.Task[ModelReply], emit: Emit
    ) -> ReplyScore:
        reply = await replied
        scored = ReplyScore(model=reply.model, judge=assignment.judge.name)
        if reply.abstain_reason or _is_refusal(reply):
            scored.score.abstain_reason = reply.abstain_reason or reply.failure_reason
        else:
            asked = ScoreTextsRequest(
                texts=[reply.text], options=judge_options(assignment, self._plan.request)
            )
            stub = TextScorerServiceStub(assignment.judge.channel)
            answer = await ask(assignment, self._scope, stub.ScoreTexts, asked, ScoreTextsResponse)
            scored = normalize_score(answer, assignment, reply.model)
        emit(score=scored)
        return scored

    async def _compare(
        self, assignment: JudgeAssignment, place: int, pair: ModelPair, replies: Replies, emit: Emit
    ) -> ReplyComparison:
        first, second = await replies[pair.first_model], await replies[pair.second_model]
        compared = ReplyComparison(
            first_model=pair.first_model, second_model=pair.second_model, judge=assignment.judge.name
        )
        if missing := first.abstain_reason or second.abstain_reason:
            compared.comparison.CopyFrom(no_comparison(missing))
        elif _is_refusal(first) or _is_refusal(second):
            compared.comparison.preference = refusal_preference(_is_refusal(first), _is_refusal(second))
        else:

            async def compare(judge: JudgeAssignment, scope: EvaluationScope) -> ComparePairResponse:
                async def once(one: JudgeAssignment) -> ComparePairResponse:
                    answer = await self._ask_pair_judge(one, scope, [first.text, second.text])
                    return normalize_comparison(answer, one)

                return await repeated(judge, self._plan.request.options, once, combine_comparisons)

            models = {"model": first.model, "second_model": second.model}
            answer = await self._shadows.judged(assignment, compare, "comparison", place, **models)
            compared.comparison.CopyFrom(answer)
        emit(comparison=compared)
        return compared

    async def _ask_pair_judge(
        self, assignment: JudgeAssignment, scope: EvaluationScope, texts: Sequence[str]
    ) -> ComparePairResponse | Failure:
        script = self._plan.request.script
        asked = ComparePairRequest(
            dialogue=DialogueSubject(task=script.task, utterances=script.utterances),
            first=texts[0],
            second=texts[1],
            order=pair_judge_service_pb2.PRESENTATION_ORDER_BOTH,
            options=judge_options(assignment, self._plan.request),
            rules=self._plan.request.rules if self._plan.request.HasField("rules") else None,
        )
        stub = PairJudgeServiceStub(assignment.judge.channel)
        return await ask(assignment, scope, stub.ComparePair, asked, ComparePairResponse)


def _is_refusal(reply: ModelReply) -> bool:
    return reply.failure_reason == verdict_pb2.ABSTAIN_REASON_REFUSED


async def _take(given: GivenReply, emit: Emit) -> ModelReply:
    reply = ModelReply(model=given.model, text=given.text)
    emit(reply=reply)
    return reply


class DialoguesKind(RunKind):
    method = "EvaluateDialogues"
    request_type = EvaluateDialoguesRequest
    planner = staticmethod(plan_dialogues)
    evaluation = DialoguesEvaluation
    items = ("models", "replies", "pairs")
    name = "dialogues"
    results = DIALOGUES
    summary = DialoguesKindSummary()
    roles = (AUTHOR, RATING_JUDGE, PAIR_JUDGE, TEXT_SCORER)

    def planned_calls(
        self, request: EvaluateDialoguesRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_dialogues(request, context.registry)
        script = text_length(request.script)
        replies = [text_length(reply) for reply in request.replies]
        mean = sum(replies) // len(replies) if replies else WRITTEN_CHARACTERS
        count = len(request.models) + len(replies)
        given = sum(replies) + len(request.models) * mean
        written = [
            PlannedCalls(plan.author.judge, model, 1, script, None)
            for model in request.models
            if plan.author is not None
        ]
        shadows = counted_shadows(plan.shadows)
        raters = [*plan.rating_judges, *(one for one in shadows if one.role == RATING_JUDGE)]
        rated = [PlannedCalls(one.judge, one.model, count, count * script + given) for one in raters]
        # Each pair is judged in both orders.
        pairs = 2 * len(request.pairs)
        pair_judges = [*plan.pair_judges, *(one for one in shadows if one.role == PAIR_JUDGE)]
        compared = [
            PlannedCalls(one.judge, one.model, pairs, pairs * (script + 2 * mean)) for one in pair_judges
        ]
        return [*written, *rated, *compared]

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for index, pair in enumerate(spec.dialogues.pairs):
            if pair.first_model == pair.second_model:
                yield Violation(f"dialogues.pairs[{index}]", f"compares {pair.first_model!r} with itself")

    def _apply_options(self, request: EvaluateDialoguesRequest, spec: RunSpec) -> None:
        options = spec.dialogues
        if options.pairs:
            del request.pairs[:]
            request.pairs.extend(options.pairs)
        if options.ratings_omitted:
            request.ratings_omitted = True
        if options.HasField("rules"):
            request.rules.CopyFrom(options.rules)
        # The sampling of the run is for judges and replies, unless replies have their own.
        if options.HasField("sampling"):
            request.sampling.CopyFrom(options.sampling)
        elif spec.options.HasField("sampling"):
            request.sampling.CopyFrom(spec.options.sampling)
        if spec.HasField("seed") and not request.sampling.HasField("seed"):
            # The author sets its own temperature if sampling has none.
            request.sampling.seed = spec.seed

    def model_provenances(self, result: DialogueResult) -> Iterator[tuple[str, Provenance]]:
        yield from ((reply.model, reply.provenance) for reply in result.replies)
        yield from ((rated.model, rated.rating.provenance) for rated in result.ratings)
        yield from ((scored.model, scored.provenance) for scored in result.scores)


KIND = DialoguesKind()
