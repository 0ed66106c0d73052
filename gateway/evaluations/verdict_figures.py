"""Figures of verdicts by model and criterion, which several kinds have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS, Verdict
from dramaturg.api.evaluation.v1.summary_pb2 import VerdictFigures
from dramaturg.results.means import mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.results.sums import SumAccumulator
from gateway.evaluations.statistics import estimate_of

TOPIC = "topic"
"""The tag that verdicts have by themselves: the task's topic."""

Key = tuple[str | None, str]
"""The model, None for all, and the criterion, empty for all."""


@dataclass
class _Counts:
    passed: int = 0
    failed: int = 0
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)


class VerdictCounter:
    """Counts verdicts that pass, fail or abstain, by model and criterion, sample by sample.

    Args:
        order: The criteria in the order of the figures; others follow by name.
    """

    def __init__(self, order: Sequence[str] = ()) -> None:
        self._order = order
        self._counts: defaultdict[Key, _Counts] = defaultdict(_Counts)

    def add(self, verdicts: Iterable[tuple[str, Verdict]]) -> None:
        """Adds the verdicts of one sample, each with the model that it is about."""
        values: defaultdict[Key, list[float]] = defaultdict(list)
        for model, verdict in verdicts:
            for key in _keys(model, verdict.criterion):
                counted = self._counts[key]
                if verdict.outcome == OUTCOME_PASS:
                    counted.passed += 1
                    values[key].append(1.0)
                elif verdict.outcome == OUTCOME_FAIL:
                    counted.failed += 1
                    values[key].append(0.0)
                else:
                    counted.abstentions[abstention_name(verdict.abstain_reason)] += 1
        for key, some in values.items():
            self._counts[key].sums.add_values(some)

    def figures(self, tags: Mapping[str, str]) -> Iterator[VerdictFigures]:
        """The figures of a group: by model, all models last; by criterion, all criteria last."""
        for (model, criterion), counted in sorted(
            self._counts.items(), key=lambda one: _in_order(one[0], self._order)
        ):
            judged, abstained = counted.passed + counted.failed, counted.abstentions.total()
            total = judged + abstained
            figures = VerdictFigures(
                tags=tags,
                model=model or "",
                all_models=model is None,
                criterion=criterion,
                verdict_count=total,
                pass_count=counted.passed,
                fail_count=counted.failed,
                abstentions_by_reason=counted.abstentions,
                pass_rate=estimate_of(mean_of_sums(counted.sums.sums("", ""), 0.0, 1.0), total),
            )
            if total:
                figures.pass_rate_lowest = counted.passed / total
                figures.pass_rate_highest = (counted.passed + abstained) / total
            yield figures


def _keys(model: str, criterion: str) -> Sequence[Key]:
    """The figures that a verdict counts for."""
    return (model, criterion), (model, ""), (None, criterion), (None, "")


def _in_order(key: Key, order: Sequence[str]) -> tuple[bool, str, bool, int, str]:
    """The place of figures: all models last, all criteria last."""
    model, criterion = key
    place = order.index(criterion) if criterion in order else len(order)
    return model is None, model or "", not criterion, place, criterion
