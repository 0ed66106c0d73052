from __future__ import annotations

from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, ModelReply, ReplyRating
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswer
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from gateway.runs.store.attempts import usage_by_model
from tests.support.runs import judged


def cost(tokens: int) -> Provenance:
    return Provenance(usage=Usage(prompt_token_count=tokens))


def tokens(sample: RunSample) -> dict[str, int]:
    return {model: usage.prompt_token_count for model, usage in usage_by_model([sample]).items()}


def test_each_model_bears_its_own() -> None:
    scripts = judged(0, {"m": [True], "n": [True]}, tokens=5).sample
    scripts.scripts.gold_answer.CopyFrom(GoldAnswer(provenance=cost(100)))
    assert tokens(scripts) == {"m": 5, "n": 5}
    choices = [ModelChoice(model="m", provenance=cost(1)), ModelChoice(model="m", provenance=cost(2))]
    assert tokens(RunSample(decision=DecisionResult(choices=choices))) == {"m": 3}
    dialogue = DialogueResult(
        replies=[ModelReply(model="m", provenance=cost(1))],
        ratings=[ReplyRating(model="m", rating=Rating(provenance=cost(4)))],
    )
    assert tokens(RunSample(dialogue=dialogue)) == {"m": 5}
    graph = MeasuredGraph(model="m", provenances=[cost(1), cost(2)])
    assert tokens(RunSample(graphs=GraphsResult(graphs=[graph]))) == {"m": 3}
    assert tokens(RunSample(pair=PairResult(usage=Usage(prompt_token_count=9)))) == {}
    assert tokens(RunSample()) == {}
