from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.names import reason_name
from dramaturg.summaries.samples import usage_summary
from dramaturg.summaries.scripts import ScriptsAggregator

verdicts = st.builds(
    Verdict,
    criterion=st.sampled_from([*ABSEVAL, "tone"]),
    outcome=st.sampled_from([1, 2, 3]),
    abstain_reason=st.integers(1, 11),
)
candidates = st.builds(CandidateResult, model=st.sampled_from("ab"), verdicts=st.lists(verdicts, max_size=9))
results = st.builds(
    ScriptsResult,
    candidates=st.lists(candidates, max_size=3),
    tags=st.dictionaries(st.just("topic"), st.sampled_from(["x", "y"])),
    usage=st.builds(Usage, prompt_token_count=st.integers(0, 9)),
)


@given(st.lists(results, max_size=5))
def test_every_verdict_is_counted_once_however_it_is_grouped(samples: list[ScriptsResult]) -> None:
    aggregator = ScriptsAggregator("topic")
    for sample in samples:
        aggregator.add(sample)
    summary = aggregator.summary()
    total = sum(len(candidate.verdicts) for sample in samples for candidate in sample.candidates)
    assert sum(summary["verdicts"].values()) == total
    for groups in (summary["by_criterion"], summary["by_model"], summary["by_tag"]["topic"]):
        assert sum(sum(counts.values()) for counts in groups.values()) == total
        for outcome in ("PASS", "FAIL", "ABSTAIN"):
            assert sum(counts[outcome] for counts in groups.values()) == summary["verdicts"][outcome]
    assert sum(summary["abstentions"].values()) == summary["verdicts"]["ABSTAIN"]
    assert summary["usage"]["prompt_token_count"] == sum(one.usage.prompt_token_count for one in samples)
    assert summary["samples"] == len(samples)


def test_criteria_stand_in_the_papers_order_then_by_name() -> None:
    aggregator = ScriptsAggregator()
    outcome = Outcome.OUTCOME_PASS
    names = ["zest", "beauty", *reversed(ABSEVAL)]
    judged = [Verdict(criterion=name, outcome=outcome) for name in names]
    aggregator.add(ScriptsResult(candidates=[CandidateResult(verdicts=judged)]))
    assert list(aggregator.summary()["by_criterion"]) == [*ABSEVAL, "beauty", "zest"]
    assert "by_tag" not in aggregator.summary()


def test_a_failed_sample_counts_as_a_sample_with_no_verdict() -> None:
    aggregator = ScriptsAggregator()
    aggregator.add_failure()
    summary = aggregator.summary()
    assert (summary["samples"], summary["failed_samples"], summary["candidates"]) == (1, 1, 0)


def test_an_unknown_cost_is_no_number() -> None:
    assert usage_summary(Usage())["cost_usd"] is None
    assert usage_summary(Usage(cost_usd=0.0))["cost_usd"] == 0.0


def test_reasons_have_short_names_and_unknown_ones_a_number() -> None:
    assert reason_name(AbstainReason.ABSTAIN_REASON_TIMED_OUT) == "TIMED_OUT"
    assert reason_name(99) == "REASON_99"
