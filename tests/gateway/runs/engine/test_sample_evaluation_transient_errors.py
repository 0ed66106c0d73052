"""Which errors and abstentions are retried."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import (
    CompletionReference,
    PromptReference,
    Provenance,
)
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.judge.verdicts import abstained
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import Failure
from gateway.evaluations.pairs.kind import PairsKind
from gateway.evaluations.scripts.kind import ScriptsKind
from gateway.runs.engine.sample_evaluation import is_transient, transient_gap

UNAVAILABLE = verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, True),
        (grpc.StatusCode.ABORTED, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (grpc.StatusCode.INTERNAL, False),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.FAILED_PRECONDITION, False),
    ],
)
def test_which_errors_are_transient(code: grpc.StatusCode, transient: bool) -> None:
    error = ServiceError(code, error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED, "not now")
    assert is_transient(error) is transient


def test_an_exhausted_budget_is_permanent() -> None:
    error = ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED, "spent"
    )
    assert not is_transient(error)


def test_transient_abstentions_are_found_at_any_depth() -> None:
    def scripts(reason: Any) -> Any:
        result = run_pb2.RunSample().scripts
        assessment = Assessment(verdicts=[abstained("executable", reason, "x")])
        result.candidates.add().assessments.add(assessment=assessment)
        return result

    assert transient_gap(scripts(UNAVAILABLE), []).description
    assert transient_gap(scripts(verdict_pb2.ABSTAIN_REASON_TIMED_OUT), []).description
    assert not transient_gap(scripts(verdict_pb2.ABSTAIN_REASON_UNPARSABLE), []).description
    assert transient_gap(DecisionResult(choices=[ModelChoice(abstain_reason=UNAVAILABLE)]), []).description
    assert not transient_gap(DecisionResult(choices=[ModelChoice()]), []).description
    assert transient_gap(DecisionResult(), [Failure(UNAVAILABLE, "is down")]).description
    assert not transient_gap(
        DecisionResult(), [Failure(verdict_pb2.ABSTAIN_REASON_OVER_BUDGET, "spent")]
    ).description


def test_a_judge_that_did_not_answer_in_time_is_found_by_its_failure_or_the_gap_of_a_panel() -> None:
    late = verdict_pb2.ABSTAIN_REASON_TIMED_OUT
    for reason, expected in ((late, True), (UNAVAILABLE, False)):
        result = run_pb2.RunSample().scripts
        assert transient_gap(result, [Failure(reason, "x")]).timed_out is expected
        result.candidates.add().verdicts.append(abstained("executable", reason, "x"))
        assert transient_gap(result, []).timed_out is expected


def test_a_gap_is_described_as_exactly_as_it_is_known() -> None:
    result = run_pb2.RunSample().scripts
    result.candidates.add().verdicts.append(abstained("executable", UNAVAILABLE, "The judge 'x' is down."))
    down = [Failure(verdict_pb2.ABSTAIN_REASON_OVER_BUDGET, "spent"), Failure(UNAVAILABLE, "is down")]
    assert transient_gap(result, down).description == "The judge 'x' is down."
    chosen = DecisionResult(choices=[ModelChoice(), ModelChoice(model="m", abstain_reason=UNAVAILABLE)])
    named = [failure._replace(judge="critic 'llm'") for failure in down]
    assert transient_gap(chosen, named).description == "critic 'llm' is down"
    assert transient_gap(chosen, []).description == "model 'm' abstained: JUDGE_UNAVAILABLE"


def test_a_text_that_no_model_was_asked_for_may_still_come() -> None:
    result = run_pb2.RunSample().scripts
    result.gold_answer.failure = "The model could not be asked."
    # Without a prompt no model was to be called: the failure is permanent.
    assert not transient_gap(result, [], ScriptsKind().preparation(result)).description
    result.gold_answer.provenance.CopyFrom(Provenance(prompts=[PromptReference(name="synthesize")]))
    assert transient_gap(result, [], ScriptsKind().preparation(result)).description
    result.gold_answer.provenance.completions.append(CompletionReference(raw_text="no"))
    assert not transient_gap(result, [], ScriptsKind().preparation(result)).description
    pair = PairResult()
    pair.roles.generation.failure = "The model could not be asked."
    pair.roles.generation.provenance.prompts.add(name="roles")
    assert transient_gap(pair, [], PairsKind().preparation(pair)).description
