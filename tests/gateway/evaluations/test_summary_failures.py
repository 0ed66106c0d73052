"""Failures of models in summaries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.message import Message

from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, Decision
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
)
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
    ModelReply,
    ReplyRating,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
)
from dramaturg.api.evaluation.v1.summary_pb2 import ModelFailures
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from tests.support.evaluation_samples import (
    edge_score,
)
from tests.support.results import scripts_result
from tests.support.stored_runs import address_of, assert_consumers_agree, client, store_run

REFUSED = ABSTAIN_REASON_REFUSED
FAILING: dict[str, Sequence[Message]] = {
    "scripts": [
        scripts_result(f"t{place}", {"good": {"adequacy": place < 2}, "shy": {"adequacy": False}})
        for place in range(3)
    ],
    "graphs": [
        GraphsResult(
            reference=ScriptGraph(id="r"),
            graphs=[
                MeasuredGraph(model="good", graph=ScriptGraph(id="1"), score=edge_score(1)),
                MeasuredGraph(model="shy", failure_reason=REFUSED, score=edge_score(0)),
            ],
        )
        for _ in range(3)
    ],
    "decision": [
        DecisionResult(
            decision=Decision(id="d"),
            gold=CHOICE_OPTION_1,
            choices=[
                ModelChoice(model="good", choice=CHOICE_OPTION_1, correct=True),
                ModelChoice(model="shy", failure_reason=REFUSED, correct=False),
            ],
        )
        for _ in range(3)
    ],
    "dialogue": [
        DialogueResult(
            script=DialogueScript(id="s"),
            replies=[ModelReply(model="good"), ModelReply(model="shy", failure_reason=REFUSED)],
            ratings=[
                ReplyRating(model="good", judge="j", rating=Rating(value=8)),
                ReplyRating(model="shy", judge="j", rating=Rating(value=1)),
            ],
        )
        for _ in range(3)
    ],
}
for _result in FAILING["scripts"]:
    _result.candidates[1].failure_reason = REFUSED  # type: ignore[attr-defined]  # a ScriptsResult


@pytest.mark.parametrize(("kind", "worst"), [("scripts", 0), ("graphs", 0), ("decision", 0), ("dialogue", 1)])
async def test_failures_of_a_model_lower_its_mean_and_are_no_abstentions(
    tmp_path: Path, kind: str, worst: float
) -> None:
    some = [
        RunSample(index=index, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, attempt_count=1)
        for index in range(3)
    ]
    for sample, result in zip(some, FAILING[kind], strict=True):
        getattr(sample, kind).CopyFrom(result)
    store_run(address_of(tmp_path), "run", some)
    measures = 2 if kind == "graphs" else 1
    async with client(tmp_path, "alignment", "graph") as gateway:
        found = await gateway.summarize(some)
        of_run = await gateway.runs.summary("run")
        await assert_consumers_agree(gateway, tmp_path, some, found)
        stored = [row async for row in gateway.runs.results("run", numbers_only=True)]
        table = await gateway.runs.results("run").to_arrow()
    assert table["failure_reason"].to_pylist() == ([None] * measures + ["REFUSED"] * measures) * 3
    assert str(of_run.summary) == str(found)
    assert not found.problems
    good, shy = found.leaderboard
    assert (good.model, good.rank, shy.model, shy.rank) == ("good", 1, "shy", 2)
    assert (shy.mean, shy.mean_lowest, shy.mean_highest, shy.coverage) == (worst, worst, worst, 1)
    assert not found.abstentions_by_reason
    (failures,) = found.model_failures
    assert failures == ModelFailures(model="shy", reason="REFUSED", judgement_count=3 * measures)
    assert {(row.model, row.abstain_reason, row.failure_reason) for row in stored} == {
        ("good", 0, 0),
        ("shy", 0, REFUSED),
    }
    if kind == "decision":
        wrong = next(one for one in found.decisions.figures if one.model == "shy")
        assert (wrong.accuracy.accuracy.value, wrong.accuracy_abstentions_right) == (0, 0)
    if kind == "graphs":
        failed = next(one for one in found.graphs.figures if one.model == "shy")
        assert (failed.edges.macro.f1.value, failed.graph_count) == (0, 3)
    if kind == "dialogue":
        assert [one.judgement_count for one in found.judges] == [3]
        assert found.dialogues.unusable_replies[0].reason == "REFUSED"
