"""The comparison of ranked models with the first one, through a gateway with its alignment service."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_PASS
from gateway.evaluations.statistics import MAX_MODELS, SampleMeans
from tests.dramaturg.report.many import MODELS, many
from tests.dramaturg.report.samples import summarized


def test_a_difference_is_that_of_sample_means() -> None:
    samples = list(many("scripts", 24))
    summary = summarized(samples)
    ranked = [entry.model for entry in summary.leaderboard]
    assert [one.model for one in summary.model_differences] == ranked[1:]
    for one in summary.model_differences:
        differences = []
        for sample in samples:
            means = {}
            for candidate in sample.scripts.candidates:
                judged = [
                    verdict.outcome == OUTCOME_PASS for verdict in candidate.verdicts if verdict.outcome < 3
                ]
                means[candidate.model] = sum(judged) / len(judged)
            differences.append(means[one.model] - means[ranked[0]])
        assert one.first_model == ranked[0]
        assert one.difference.value == pytest.approx(sum(differences) / len(differences))
        assert one.difference.lower < one.difference.value < one.difference.upper
        assert 0 < one.p_value <= one.adjusted_p_value <= 1
    first, *others = summary.leaderboard
    assert first.rank_lower == 1
    for entry, one in zip(others, summary.model_differences, strict=True):
        assert entry.rank_lower <= entry.rank <= entry.rank_upper <= len(ranked)
        assert (entry.rank_lower > 1) >= (one.adjusted_p_value <= 0.05)


def test_one_model_has_no_differences() -> None:
    assert not summarized(list(many("scripts", 6, MODELS[:1]))).model_differences


def test_too_many_models_are_not_compared() -> None:
    models = [str(number) for number in range(MAX_MODELS + 1)]
    with pytest.raises(ValueError, match="100 models"):
        SampleMeans().request(models, "", 0)
