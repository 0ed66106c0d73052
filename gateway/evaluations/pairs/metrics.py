"""Text metrics of a pair: baselines that make no model call."""

from __future__ import annotations

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.text_pb2 import ScoreTextRequest, ScoreTextResponse
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from gateway.evaluations.calls import ask
from gateway.evaluations.failures import Failure
from gateway.evaluations.pairs.plan import PairsPlan
from gateway.evaluations.scope import EvaluationScope


async def score_texts(plan: PairsPlan, scope: EvaluationScope) -> PairResult:
    """The metrics of a result: the score of the first text less that of the second, by metric.

    There is no reference for texts that are compared with each other. The source takes its place, so a metric
    tells how much of the source a text contains. A metric that is undefined for a text is missing.
    """
    request, result = plan.request, PairResult(text_metrics=plan.request.text_metrics)
    if plan.scorer is None:
        return result
    asked = ScoreTextRequest(metrics=request.text_metrics)
    for text in (request.first.text, request.second.text):
        asked.pairs.add(candidate=text, reference=request.source)
    stub = AlignmentServiceStub(plan.scorer.judge.channel)
    response = await ask(plan.scorer, scope, stub.ScoreText, asked, ScoreTextResponse)
    if isinstance(response, Failure):
        result.metrics_failure = f"the alignment service {response.explanation}"
        return result
    first, second = (one.scores for one in response.scores)
    for metric in request.text_metrics:
        if metric in first and metric in second:
            result.metric_differences[metric] = first[metric] - second[metric]
    return result
