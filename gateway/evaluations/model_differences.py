"""Compares the ranked models with the first one."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dramaturg.api.alignment.v1.accuracy_pb2 import ABSTENTION_POLICY_EXCLUDED
from dramaturg.api.alignment.v1.compare_pb2 import (
    ComparedItem,
    CompareRunsRequest,
    CompareRunsResponse,
    SystemOutcome,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry, RunResult
from dramaturg.api.evaluation.v1.summary_pb2 import ModelDifference

MAX_SAMPLES = 200_000
"""The most samples of a comparison, as AlignmentService takes items."""
MAX_MODELS = 100
"""The most models of a comparison, as AlignmentService takes systems."""

_PERMUTATIONS = 1999


class SampleMeans:
    """The mean of the values of each sample, by model and measure. It keeps 16 bytes for each."""

    def __init__(self) -> None:
        self._samples: defaultdict[tuple[str, str], array[int]] = defaultdict(lambda: array("Q"))
        self._means: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))

    def add(self, sample: int, rows: Mapping[tuple[str, str], Sequence[RunResult]]) -> None:
        """Adds the judgements of a sample.

        Args:
            sample: The number of the sample.
            rows: Its judgements, by model and measure.
        """
        for key, some in rows.items():
            values = [row.value for row in some if row.HasField("value")]
            if values:
                self._samples[key].append(sample)
                self._means[key].append(sum(values) / len(values))

    def request(self, models: Sequence[str], measure: str, seed: int) -> CompareRunsRequest:
        """The request that compares models with the first of them; the systems are their positions.

        Args:
            models: The models by rank.
            measure: The measure that ranks.
            seed: The seed of permutations.

        Raises:
            ValueError: There are too many samples or models; the message names the limits.
        """
        samples = {number for model in models for number in self._samples[model, measure]}
        if len(samples) > MAX_SAMPLES or len(models) > MAX_MODELS:
            raise ValueError(
                f"models are compared for at most {MAX_SAMPLES:,} samples and {MAX_MODELS} models: "
                f"these are {len(samples):,} samples of {len(models)} models"
            )
        return CompareRunsRequest(
            items=self._items(models, measure),
            baseline=_system(0),
            permutation_count=_PERMUTATIONS,
            seed=seed,
            abstention_policy=ABSTENTION_POLICY_EXCLUDED,
        )

    def _items(self, models: Sequence[str], measure: str) -> Sequence[ComparedItem]:
        items: defaultdict[int, ComparedItem] = defaultdict(ComparedItem)
        for position, model in enumerate(models):
            key = model, measure
            for sample, mean in zip(self._samples[key], self._means[key], strict=True):
                items[sample].outcomes[_system(position)].CopyFrom(SystemOutcome(score=mean))
        for sample, item in items.items():
            item.id = str(sample)
        return list(items.values())


def ranked_models(leaderboard: Sequence[LeaderboardEntry]) -> Sequence[str]:
    """The ranked models, by rank."""
    return [entry.model for entry in leaderboard if entry.rank]


def model_differences(response: CompareRunsResponse, models: Sequence[str]) -> Sequence[ModelDifference]:
    """The differences of the models to the first of them, from the response to ``SampleMeans.request``."""
    made = {}
    for comparison in response.comparisons:
        found = next(one for one in comparison.policies if one.policy == ABSTENTION_POLICY_EXCLUDED)
        model = models[int(comparison.system)]
        difference = made[model] = ModelDifference(
            model=model, first_model=models[0], difference=found.difference, test=found.test
        )
        if found.HasField("p_value"):
            difference.p_value = found.p_value
        if found.HasField("adjusted_p_value"):
            difference.adjusted_p_value = found.adjusted_p_value
    return [made[model] for model in models if model in made]


def _system(position: int) -> str:
    """The name of a model's system: names of models may be empty or long."""
    return str(position)
