"""Dialogues (SimulBench, section 2.5): every model continues one script, and the replies are judged.

Replies are rated, compared and, on request, scored for an attribute, for example toxicity. A reply that
abstains is not judged: its ratings, comparisons and scores abstain for its reason. A refusal has the lowest
rating without a judge; a reply that is cut off or empty is judged as it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    EvaluateDialoguesResponse,
    GivenReply,
    ModelPair,
    ModelReply,
    ReplyComparison,
    ReplyRating,
    ReplyScore,
)
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyRequest, ReplyResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    ComparePairRequest,
    ComparePairResponse,
    DialogueSubject,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.api.judging.v1.rating_judge_service_pb2_grpc import RatingJudgeServiceStub
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.judge.usage import total_usage
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.dialogues.answers import (
    no_comparison,
    no_rating,
    normalize_comparison,
    normalize_rating,
    normalize_score,
    refusal_preference,
    refusal_rating,
)
from gateway.evaluations.dialogues.plan import DialoguesPlan
from gateway.evaluations.failures import Failure
from gateway.evaluations.model_failures import is_model_failure
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.selection import JudgeAssignment

Replies = Mapping[str, asyncio.Task[ModelReply]]


class DialoguesEvaluation(Evaluation):
    """The evaluation of one test script.

    A rating or score waits for its reply, a comparison for its two replies. A failure affects no other
    judgement. Judges are not told the authors of the replies.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: DialoguesPlan, scope: EvaluationScope) -> None:
        super().__init__(EvaluateDialoguesResponse, plan.accepted)
        self._plan = plan
        self._scope = scope
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

            async def rate(judge: JudgeAssignment, scope: EvaluationScope) -> Rating:
                asked = RateReplyRequest(
                    task=script.task,
                    utterances=script.utterances,
                    response=reply.text,
                    options=judge_options(judge, self._plan.request),
                )
                stub = RatingJudgeServiceStub(judge.judge.channel)
                answer = await ask(judge, scope, stub.RateReply, asked, RateReplyResponse)
                return normalize_rating(answer, judge)

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
                answer = await self._ask_pair_judge(judge, scope, [first.text, second.text])
                return normalize_comparison(answer, judge)

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
