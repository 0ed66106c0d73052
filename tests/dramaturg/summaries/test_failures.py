from __future__ import annotations

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.summaries.failures import worst_failures
from tests.support.results import scripts_result


def test_the_most_failed_criteria_come_first_then_the_largest_share() -> None:
    samples = [
        RunSample(index=0, sample_id="t", scripts=scripts_result("t", {"a": {"x": False, "y": True}})),
        RunSample(
            index=1,
            scripts=scripts_result(
                "u", {"b": {"x": False, "y": None}, "c": {"x": False, "y": False}, "d": {"x": True}}
            ),
        ),
        RunSample(index=2),
    ]
    found = worst_failures(samples)
    assert [(one.sample, one.candidate, one.failed, one.decided, one.measure) for one in found] == [
        ("sample 2", "c", 2, 2, "x"),
        ("sample 2", "b", 1, 1, "x"),
        ("t", "a", 1, 2, "x"),
    ]
    assert len(worst_failures(samples, 1)) == 1
