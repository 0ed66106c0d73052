"""How a run ends, and when its first samples pause it."""

from __future__ import annotations

from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNKNOWN
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_SUPPORTED,
    ABSTAIN_REASON_REFUSED,
)
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunPolicy, RunSample, SampleError
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from gateway.runs.engine.policy import FailFast, conclude, words_of
from gateway.runs.records import Counts
from tests.support.runs import judged

MAX_MISSING = "max_missing_gold_answer_fraction"
KEY = "the provider 'p' answered 401: no such key"


def counts(
    samples: int = 10, failed: int = 0, judgements: int = 0, missing: int = 0, **abstained: int
) -> Counts:
    return Counts(
        gold_answers=GoldAnswerFigures(
            sample_count=samples, missing_count=missing, missing_by_reason={"REFUSED": missing}
        ),
        samples=samples,
        succeeded=samples - failed,
        failed=failed,
        failures_by_reason={"INTERNAL": failed} if failed else {},
        judgements=judgements,
        abstentions=sum(abstained.values()),
        abstentions_by_reason=abstained,
    )


@pytest.mark.parametrize(
    ("policy", "done", "state", "outcome"),
    [
        ({}, counts(judgements=70), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, REFUSED=7), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, REFUSED=8), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(judgements=70, NOT_SUPPORTED=60), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, NOT_SUPPORTED=60, REFUSED=2), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(judgements=70, NOT_SUPPORTED=70), "FAILED", "NOTHING_JUDGED"),
        ({}, counts(judgements=70, JUDGE_UNAVAILABLE=70), "FAILED", "NOTHING_JUDGED"),
        ({"min_coverage": 0}, counts(judgements=70, REFUSED=70), "FAILED", "NOTHING_JUDGED"),
        ({"min_coverage": 0}, counts(judgements=70, REFUSED=69), "SUCCEEDED", "JUDGED"),
        ({"min_coverage": 1}, counts(judgements=70, REFUSED=1), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(failed=10), "FAILED", "NOTHING_JUDGED"),
        ({}, counts(failed=1, judgements=63), "SUCCEEDED", "JUDGED"),
        ({}, counts(failed=2, judgements=56), "PARTIAL", "LOW_COVERAGE"),
        ({}, counts(failed=1, judgements=63, REFUSED=1), "PARTIAL", "LOW_COVERAGE"),
        ({"max_failed_count": 0}, counts(failed=2, judgements=56), "FAILED", "POLICY_EXCEEDED"),
        ({"max_abstained_fraction": 0.0}, counts(judgements=70, REFUSED=1), "FAILED", "POLICY_EXCEEDED"),
        ({}, counts(), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, missing=1), "SUCCEEDED", "JUDGED"),
        ({}, counts(judgements=70, missing=2), "PARTIAL", "GOLD_ANSWERS_MISSING"),
        ({}, counts(judgements=70, missing=10, REFUSED=8), "PARTIAL", "LOW_COVERAGE"),
        ({MAX_MISSING: 0}, counts(judgements=70, missing=1), "PARTIAL", "GOLD_ANSWERS_MISSING"),
        ({MAX_MISSING: 1}, counts(judgements=70, missing=10), "SUCCEEDED", "JUDGED"),
    ],
)
def test_the_end_of_a_run(policy: dict[str, Any], done: Counts, state: str, outcome: str) -> None:
    found = conclude(RunPolicy(**policy), done, KEY)
    assert run_pb2.RunState.Name(found.state) == f"RUN_STATE_{state}"
    assert run_pb2.RunOutcome.Name(found.outcome) == f"RUN_OUTCOME_{outcome}"
    assert found.reason.endswith(KEY) is (outcome != "JUDGED")


def test_reasons_are_counted_the_commonest_first() -> None:
    found = conclude(RunPolicy(), counts(20, 2, 70, REFUSED=10, TIMED_OUT=30))
    assert found.reason == (
        "the coverage is 0.386; the policy asks for 0.9: 40 of 70 judgements abstained "
        "(TIMED_OUT 30, REFUSED 10); 2 of 20 samples failed (INTERNAL 2)"
    )


def failed(reason: int) -> RunSample:
    error = SampleError(
        code=STATUS_CODE_UNKNOWN, message=KEY, reason=error_reason_pb2.ErrorReason.ValueType(reason)
    )
    return RunSample(state=run_pb2.SAMPLE_STATE_FAILED, error=error)


WRONG_KEY = failed(error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED)
NO_MODEL = failed(error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN)
DEFECT = failed(error_reason_pb2.ERROR_REASON_INTERNAL)
REJECTED = judged(0, {"m": [ABSTAIN_REASON_NOT_SUPPORTED, ABSTAIN_REASON_CALL_REJECTED]}).sample
UNREACHABLE = judged(0, {"m": [ABSTAIN_REASON_JUDGE_UNAVAILABLE] * 2}).sample
HALF = judged(0, {"m": [ABSTAIN_REASON_JUDGE_UNAVAILABLE, True]}).sample
DECLINED = judged(0, {"m": [ABSTAIN_REASON_REFUSED]}).sample


@pytest.mark.parametrize(
    ("first", "paused_after"),
    [
        ([WRONG_KEY] * 4, 3),
        ([REJECTED] * 4, 3),
        ([UNREACHABLE] * 4, 3),
        ([WRONG_KEY, NO_MODEL, WRONG_KEY, WRONG_KEY, WRONG_KEY], None),
        ([WRONG_KEY, HALF, WRONG_KEY, WRONG_KEY, WRONG_KEY], None),
        ([DEFECT] * 4, None),
        ([DECLINED] * 4, None),
    ],
)
def test_first_samples_that_all_fail_for_one_permanent_reason(
    first: list[RunSample], paused_after: int | None
) -> None:
    watch = FailFast(RunPolicy(), Counts())
    said = [watch.record(sample) for sample in first]
    assert [place + 1 for place, reason in enumerate(said) if reason] == (
        [] if paused_after is None else [paused_after]
    )
    if paused_after is not None:
        assert words_of(first[0]) in said[paused_after - 1]


def test_the_number_of_first_samples_is_chosen() -> None:
    assert FailFast(RunPolicy(fail_fast_sample_count=1), Counts()).record(WRONG_KEY).endswith(KEY)
    never = FailFast(RunPolicy(fail_fast_sample_count=0), Counts())
    assert [never.record(WRONG_KEY) for _ in range(9)] == [""] * 9
    judged_before = FailFast(RunPolicy(), Counts(samples=9, succeeded=1, judgements=7))
    assert [judged_before.record(WRONG_KEY) for _ in range(9)] == [""] * 9
