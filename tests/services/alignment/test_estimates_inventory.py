"""Every figure with an interval in the contracts has a simulation of its coverage, or no interval."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor

import dramaturg.api
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from services.alignment.bootstrap import Resampling
from tests.services.alignment import test_estimates_coverage as first
from tests.services.alignment import test_estimates_further_coverage as further

DRAWS = {f"{kind}": draw for kind, draw in first.DRAWS.items()} | {
    f"table: {kind}": draw for kind, draw in further.DRAWS.items()
}
THRESHOLDS = "table: thresholds"

COVERED = {
    "AccuracyGroup.accuracy": ("table: answers", "accuracy"),
    "AccuracyGroup.accuracy_when_answered": ("table: answers", "accuracy when answered"),
    "AccuracyGroup.accuracy_abstentions_wrong": ("table: answers", "accuracy with abstentions wrong"),
    "PolicyFigures.accuracy": ("labels", "accuracy"),
    "PolicyFigures.balanced_accuracy": ("labels", "balanced accuracy"),
    "PolicyFigures.macro_precision": ("labels", "macro precision"),
    "PolicyFigures.macro_f1": ("labels", "F1"),
    "PolicyFigures.mean_squared_error": ("labels", "squared error"),
    "PolicyFigures.macro_mean_squared_error": ("table: answers", "macro mean squared error of verdicts"),
    "PolicyFigures.cohen_kappa": ("labels", "kappa"),
    "LabelFigures.precision": ("labels", "precision"),
    "LabelFigures.recall": ("labels", "recall"),
    "LabelFigures.f1": ("labels", "F1 of a label"),
    "AgreementGroup.fleiss_kappa": ("annotations", "Fleiss"),
    "AgreementGroup.krippendorff_alpha": ("annotations", "alpha, ordinal"),
    "AgreementGroup.gwet_ac1": ("annotations", "AC1"),
    "AgreementGroup.observed_agreement": ("annotations", "observed agreement"),
    "AgreementGroup.icc_one_way": ("annotations", "ICC(1,1)"),
    "AgreementGroup.icc_agreement": ("annotations", "ICC(2,1)"),
    "AgreementGroup.icc_consistency": ("annotations", "ICC(3,1)"),
    "PairAgreement.cohen_kappa": ("annotations", "Cohen, of two annotators"),
    "PairAgreement.linear_kappa": ("annotations", "linear kappa"),
    "PairAgreement.quadratic_kappa": ("annotations", "quadratic kappa"),
    "PairBiasGroup.first_share": ("table: pair judges", "share of the first text"),
    "PreferenceExcess.judge_share": ("biases", "share of a judge"),
    "PreferenceExcess.human_share": ("table: pair judges", "people's share of the first text"),
    "PreferenceExcess.excess": ("biases", "excess over people"),
    "SwapConsistency.consistent_share": ("table: pair judges", "consistent share"),
    "CalibrationGroup.brier_score": ("confidences", "Brier"),
    "CalibrationGroup.discrimination": ("confidences", "AUC"),
    "CalibrationGroup.accuracy": ("table: bins", "accuracy of the lower bin"),
    "CalibrationGroup.mean_confidence": ("table: bins", "mean confidence"),
    "ReliabilityBin.accuracy": ("table: bins", "accuracy of the lower bin"),
    "AbstentionThreshold.held_out_coverage": (THRESHOLDS, "held-out coverage"),
    "LevelCorrelation.pearson": ("levels", "Pearson, summaries"),
    "LevelCorrelation.spearman": ("levels", "Spearman, summaries"),
    "LevelCorrelation.kendall": ("levels", "Kendall, summaries"),
    "MeasureCorrelation.pearson": ("scores", "Pearson"),
    "MeasureCorrelation.spearman": ("scores", "Spearman"),
    "MeasureCorrelation.kendall": ("scores", "Kendall"),
    "CorrelationDifference.kendall_difference": ("scores", "difference of taus"),
    "PolicyComparison.baseline_mean": ("table: differences", "mean of verdicts"),
    "PolicyComparison.system_mean": ("table: differences", "mean of ratings"),
    "PolicyComparison.difference": ("table: differences", "difference of verdicts"),
    "PredictionPoweredMean.prediction_powered": ("means", "mean from labels and predictions"),
    "PredictionPoweredMean.labels_alone": ("means", "mean from labels alone"),
    "MeasurePreferencesResponse.position_effect": ("position", "position effect"),
    "WinRate.win_rate": ("preferences", "win rate"),
    "WinRate.length_controlled_win_rate": ("preferences", "length-controlled"),
    "Rating.elo": ("table: ratings", "Elo of b"),
    "RankedSystem.mean": ("table: ranks", "mean of a ranked system"),
    "RankedSystem.difference": ("table: ranks", "difference to the first"),
    "RankedSystem.rank_lower": ("table: ranks", "rank s3"),
    "RankedSystem.rank_upper": ("table: ranks", "rank s3"),
    "LeaderboardEntry.rank_lower": ("table: ranks", "rank s3"),
    "LeaderboardEntry.rank_upper": ("table: ranks", "rank s3"),
    "LeaderboardEntry.lower": ("table: results", "F1 of edges"),
    "LeaderboardEntry.upper": ("table: results", "edit distance"),
    "ModelDifference.difference": ("table: ranks", "difference to the first"),
    "JudgeComparisonFigures.agreement": ("table: results", "pass rate"),
    "JudgeComparisonFigures.cohen_kappa": ("labels", "kappa"),
    "JudgeComparisonFigures.first_pass_rate": ("table: results", "pass rate"),
    "JudgeComparisonFigures.second_pass_rate": ("table: results", "pass rate"),
    "VerdictFigures.pass_rate": ("table: results", "pass rate"),
    "RatingFigures.mean": ("table: results", "rating from 1 to 10"),
    "TaskFigures.mean": ("table: results", "rating from 1 to 10"),
    "AttributeFigures.mean": ("table: results", "F1 of edges"),
    "ScoreFigures.mean": ("table: results", "F1 of edges"),
    "ScenarioFigures.usable_rate": ("table: results", "pass rate"),
    "EdgeEstimates.precision": ("table: results", "F1 of edges"),
    "EdgeEstimates.recall": ("table: results", "F1 of edges"),
    "EdgeEstimates.f1": ("table: results", "F1 of edges"),
    "EdgeEstimates.iou": ("table: results", "F1 of edges"),
    "EdgeEstimates.edge_difference": ("table: results", "edit distance"),
    "EdgeEstimates.extra_edges": ("table: results", "edit distance"),
    "EdgeEstimates.missing_edges": ("table: results", "edit distance"),
    "DistanceFigures.mean": ("table: results", "edit distance"),
    "MeanEditsEntry.value": ("table: results", "edit distance"),
    "ReplyPairFigures.win_rate": ("table: results", "pass rate"),
    "ReplyPairFigures.tie_rate": ("table: results", "pass rate"),
    "ReplyPairFigures.lose_rate": ("table: results", "pass rate"),
    "ReplyPairFigures.difference": ("table: results", "rating from 1 to 10"),
    "PairMethodFigures.inconsistent_share": ("table: results", "pass rate"),
    "PairMethodFigures.first_presented_share": ("table: results", "pass rate"),
    "PairMethodFigures.longer_share": ("table: results", "pass rate"),
}
"""The simulation of each figure: what is drawn, and the figure's name."""

WITHOUT = {
    "AccuracyGroup.macro_accuracy": "none is computed",
    "AccuracyGroup.majority_baseline": "chosen and measured on the same items",
    "AbstentionThreshold.chosen_accuracy": "chosen and measured on the same items",
    "AbstentionThreshold.held_out_accuracy": "chosen and measured on the same items",
    "CalibrationGroup.expected_calibration_error": "biased resamples",
    "CalibrationGroup.maximum_calibration_error": "biased resamples",
    "Recalibration.brier_score": "the halves depend on each other",
    "Recalibration.expected_calibration_error": "biased resamples",
    "CorrelationDifference.williams_t": "a test statistic, with a p-value",
    "PredictionPoweredMean.predictions_alone": "has the bias of the predictions",
    "MethodRanking.stability": "biased resamples",
    "RankCorrelation.spearman": "biased resamples",
    "RankCorrelation.kendall": "biased resamples",
    # Exact, one-sided bounds: their errors are summed in ``tests/dramaturg/results/test_equivalence.py``.
    "CertifiedProperty.lower": "no interval",
    "CertifiedProperty.upper": "no interval",
    # Their errors follow from the level of a check: ``tests/gateway/judges/test_drift.py``.
    "DriftCheck.changed_lower": "no interval",
    "DriftCheck.changed_upper": "no interval",
    # The ends of a bin of confidences.
    "ReliabilityBin.lower": "no interval",
    "ReliabilityBin.upper": "no interval",
}
"""The figures that have no interval, and why."""


def _fields(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        estimate = (
            field.message_type is not None and field.message_type.full_name == Estimate.DESCRIPTOR.full_name
        )
        if estimate or field.name.split("_")[-1] in ("lower", "upper"):
            yield f"{message.name}.{field.name}"
    for nested in message.nested_types:
        yield from _fields(nested)


def test_every_interval_of_the_contracts_has_a_simulation() -> None:
    found: set[str] = set()
    for module in pkgutil.walk_packages(dramaturg.api.__path__, "dramaturg.api."):
        if module.name.endswith("_pb2"):
            import_module(module.name)
            for message in sys.modules[module.name].DESCRIPTOR.message_types_by_name.values():
                found.update(_fields(message))
    found -= {"Estimate.lower", "Estimate.upper"}
    assert found == COVERED.keys() | WITHOUT.keys()
    assert not COVERED.keys() & WITHOUT.keys()


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in COVERED.values()} - {THRESHOLDS}))
def test_the_simulations_have_these_figures(kind: str) -> None:
    drawn = DRAWS[kind](np.random.default_rng(1), 40, 40, Resampling(0, 1, 0.95, lambda: None))
    assert {name for of, name in COVERED.values() if of == kind} <= drawn.keys()


def test_the_simulation_of_thresholds_has_these_figures() -> None:
    drawn = further.threshold_coverage(40, 40, 2)
    assert {name for of, name in COVERED.values() if of == THRESHOLDS} == drawn.keys()
